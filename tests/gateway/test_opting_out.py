"""A client that asks the gateway to stay out of the way gets its answer, and leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from everlong.store import Store
from tests.gateway.running import Raw, Running
from tests.gateway.served import raw as connected, serving
from tests.gateway.test_auth import ADA, KEYS
from tests.gateway.upstream import Exchange, Upstream

OFF = ("X-Everlong", "Off")
LONG = "The harbour office keeps a list of berths. " * 300
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1_000_000, "output_tokens": 1},
}
PATHS = ["/v1/messages", "/v1/chat/completions", "/v1/responses"]


def body_of(said: str = LONG, model: str = "claude-sonnet-5") -> bytes:
    messages = [{"role": "user", "content": said}]
    return json.dumps({"model": model, "max_tokens": 9, "messages": messages, "input": messages}, indent=1).encode()


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_stored(path: str, relay: Running, raw: Raw, upstream: Upstream, journal: list[Any]) -> None:
    assert raw.ask(body_of(), path, [OFF]).status == 200
    assert raw.ask(b"no JSON", path, [OFF]).status == 200
    assert [one.header("x-everlong") for one in upstream.requests] == [None, None]
    assert not list(relay.store().turns.since())
    assert relay.gateway.conversations == 0
    assert not journal


@pytest.mark.parametrize("path", PATHS)
def test_off_leaves_every_byte_alone(path: str, raw: Raw, upstream: Upstream) -> None:
    raw.ask(body_of(), path, [OFF])
    assert upstream.last.body == body_of()
    packed = gzip.compress(body_of())
    raw.ask(packed, path, [OFF, ("content-encoding", "gzip")])
    assert (upstream.last.body, upstream.last.header("content-encoding")) == (packed, "gzip")


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens"])
def test_a_wish_that_nobody_knows_is_refused_rather_than_stored(path: str, raw: Raw, upstream: Upstream) -> None:
    answer = raw.ask(body_of(), path, [("x-everlong", "nostore")])
    assert answer.status == 400
    assert "x-everlong is 'nostore', but must be off" in answer.json()["error"]["message"]
    assert not upstream.requests


@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_it_costs_counts_towards_the_limit_and_is_in_the_log(
    is_streamed: bool, upstream: Upstream, tmp_path: Path
) -> None:
    def script(exchange: Exchange) -> None:
        start = {"type": "message_start", "message": {**ANSWER, "content": []}}
        events = [("message_start", start), ("message_stop", {"type": "message_stop"})]
        if not is_streamed:
            exchange.answer(json.dumps(ANSWER).encode())
        else:
            exchange.stream(*(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in events))

    upstream.script = script
    gateway = {"keys": {"ada": {**KEYS["ada"], "dollars_per_day": 2.0}}}
    prices: Any = {"models": {"m": {"input_price": 3.0, "output_price": 15.0}}}
    log = io.BytesIO()
    with serving(upstream.url, tmp_path, gateway, log, **prices) as hosted, connected(hosted.address) as client:
        headers = [OFF, ("x-everlong-key", ADA)]
        assert client.ask(body_of(model="m"), headers=headers).status == 200
        assert client.ask(body_of(model="m"), headers=headers).status == 429
    first = json.loads(log.getvalue().splitlines()[0])
    assert (first["opted_out"], first["prompt_tokens"], "session" in first) == (True, 1_000_000, False)
    with Store.open(tmp_path / "served.db", "ada") as store:
        assert not list(store.turns.since())
