"""What each key may use: requests, requests at a time, bytes, and time to send a body."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from everlong.config.settings import KeySettings
from everlong.gateway import bounds, server
from everlong.gateway.auth import KeyLimits, Refused
from tests.gateway.served import raw, serving
from tests.gateway.test_auth import ADA, ASKED, BOB, KEYS, sha256
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE, until


class Clock:
    """A time that a test turns."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def refusal(call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as raised:
        call()
    return raised.value


def test_requests_of_a_minute_may_come_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    limits, ada = KeyLimits(100, clock=clock), ("ada", KeySettings(sha256=sha256("ada"), requests_per_minute=3))
    for _ in range(3):
        limits.enter(*ada)
    refused = refusal(lambda: limits.enter(*ada))
    assert refused.status == 429
    assert refused.retry_after == pytest.approx(20)
    clock.now += 19.9
    assert refusal(lambda: limits.enter(*ada)).retry_after == pytest.approx(0.1)
    clock.now += 0.2
    limits.enter(*ada)
    refusal(lambda: limits.enter(*ada))
    clock.now += 3_600
    for _ in range(3):
        limits.enter(*ada)
    refusal(lambda: limits.enter(*ada))


def test_the_official_clients_see_a_limit_as_one_of_the_api(upstream: Upstream, tmp_path: Path) -> None:
    keys = {"ada": {**KEYS["ada"], "requests_per_minute": 1}}
    said: Any = [{"role": "user", "content": "hi"}]
    with serving(upstream.url, tmp_path, {"keys": keys}) as hosted:
        with openai.OpenAI(base_url=f"{hosted.address}/v1", api_key=ADA, max_retries=0) as gpt:
            gpt.chat.completions.create(model="m", messages=said)
            with pytest.raises(openai.RateLimitError) as first:
                gpt.chat.completions.create(model="m", messages=said)
        with (
            anthropic.Anthropic(base_url=hosted.address, api_key=ADA, max_retries=0) as claude,
            pytest.raises(anthropic.RateLimitError) as second,
        ):
            claude.messages.create(model="m", max_tokens=9, messages=said)
    assert 1 <= int(first.value.response.headers["retry-after"]) <= 60
    assert second.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert len(upstream.requests) == 1


def test_only_so_many_requests_are_under_way_at_a_time(upstream: Upstream, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def script(exchange: Exchange) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        exchange.answer(b"{}")

    upstream.script = script
    keys = {"ada": {**KEYS["ada"], "concurrent_requests": 1}, "bob": KEYS["bob"]}
    with serving(upstream.url, tmp_path, {"keys": keys}) as hosted, raw(hosted.address) as first:
        first.begin(ASKED, headers=[("x-everlong-key", ADA)])
        begun.wait(PATIENCE)
        with raw(hosted.address) as second:
            assert second.ask(ASKED, headers=[("x-everlong-key", ADA)]).status == 429
            second.begin(ASKED, headers=[("x-everlong-key", BOB)])
            go_on.set()
            assert second.answer().status == 200
        assert first.answer().status == 200
        assert first.ask(ASKED, headers=[("x-everlong-key", ADA)]).status == 200


def test_a_client_that_hangs_up_gives_its_place_back(upstream: Upstream, tmp_path: Path) -> None:
    begun = threading.Event()

    def script(exchange: Exchange) -> None:
        begun.set()
        exchange.sees_hangup()

    upstream.script = script
    keys = {"ada": {**KEYS["ada"], "concurrent_requests": 1}}
    with serving(upstream.url, tmp_path, {"keys": keys}) as hosted:
        with raw(hosted.address) as first:
            first.begin(ASKED, headers=[("x-everlong-key", ADA)])
            begun.wait(PATIENCE)
        upstream.script = lambda exchange: exchange.answer(b"{}")
        with raw(hosted.address) as second:
            until(lambda: second.ask(ASKED, headers=[("x-everlong-key", ADA)]).status == 200)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    chunked: bool, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_BODY_BYTES", 1_000_000)
    body = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 1_100_000 + b'"}]}'
    sent = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" if chunked else body
    more = [("transfer-encoding", "chunked")] if chunked else []
    with serving(upstream.url, tmp_path) as hosted, raw(hosted.address) as client:
        answer = client.ask(sent, headers=more)
        assert answer.status == 413
        assert answer.json()["error"]["type"] == "request_too_large"
    assert upstream.requests == []


def test_a_body_that_does_not_come_is_given_up(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "BODY_SECONDS", 1.0)
    with serving(upstream.url, tmp_path) as hosted, raw(hosted.address) as client:
        client.begin(b'{"model"', "/v1/messages", [("content-length", "500")])
        answer = client.answer()
        assert (answer.status, answer.header("connection")) == (408, "close")
    assert upstream.requests == []
