"""Whatever is sent to the gateway, it answers or hangs up, goes on, and tells nobody what was said."""

from __future__ import annotations

import pytest

from tests.examples import few
from tests.gateway.fuzzing import play, upstream_script
from tests.gateway.running import Running
from tests.gateway.upstream import Upstream


@pytest.mark.parametrize("seed", few([1, 2, 3]))
def test_odd_requests_do_no_harm(seed: int, relay: Running, upstream: Upstream) -> None:
    upstream.script = upstream_script
    outcomes, problems = play(relay, seed, 250)
    assert problems == []
    assert outcomes["200"] > 25  # many of them are odd inside only
    assert relay.store().verify().problems == []
