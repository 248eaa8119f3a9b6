"""Trying again: what is tried, how long is waited, and when it is given up."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import NetworkFailure, Overloaded
from everlong.providers import Retrying, RetryPolicy, TextDelta
from everlong.testing import Fault
from tests.api_rules.faults import ManualClock
from tests.providers.conftest import Connect
from tests.testing_server.conftest import Serve

HELLO = {"role": "user", "content": "Hello"}


def test_after_the_last_attempt_the_error_is_raised(serve: Serve, connected: Connect) -> None:
    server, clock = serve("ok", faults=lambda _: Fault("overloaded")), ManualClock()
    provider = Retrying(connected("openai", server), RetryPolicy(attempts=3), sleep=clock.sleep)
    with pytest.raises(Overloaded):
        provider.complete([HELLO])
    assert len(clock.slept) == 2
    assert len(server.requests) == 3


def test_a_stream_that_has_begun_is_not_tried_again(serve: Serve, connected: Connect) -> None:
    server, clock = serve("A long answer. " * 40), ManualClock()
    server.fail_next(Fault("cut"))
    events = Retrying(connected("anthropic", server), sleep=clock.sleep).stream([HELLO])
    seen: list[Any] = []
    with pytest.raises(NetworkFailure):
        seen.extend(events)
    assert all(isinstance(event, TextDelta) for event in seen)
    assert (clock.slept, len(server.requests)) == ([], 1)
