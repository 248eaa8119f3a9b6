"""A gateway that is told to stop behind a balancer, or with clients that keep their connections: nobody is refused."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.gateway.served import raw
from tests.gateway.test_full_disk import Talk, answer_of, gateway, ready
from tests.gateway.upstream import Upstream
from tests.waiting import until


def test_a_balancer_hears_of_a_stop_before_anybody_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path) as served:
        assert ready(served) == 200
        served.tell(signal.SIGTERM)
        until(lambda: ready(served) == 503)
        with raw(served.address) as client:
            assert Talk(client, "late").ask()[0] == 200
        served.tell(signal.SIGTERM)
        served.end()


def test_a_kept_connection_gets_its_answer_and_ends_with_it(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = answer_of
    with gateway(upstream, tmp_path) as served, raw(served.address) as client:
        talk = Talk(client, "first")
        assert talk.ask()[0] == 200
        assert ready(served) == 200
        served.tell(signal.SIGTERM)
        until(lambda: ready(served) == 503)
        got = client.ask(b'{"model":"m","messages":[{"role":"user","content":"again"}]}', "/v1/chat/completions")
        assert (got.status, got.header("connection")) == (200, "close")
        served.tell(signal.SIGTERM)
        served.end()
