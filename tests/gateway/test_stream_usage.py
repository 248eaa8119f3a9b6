"""Streams of chat completions whose client did not ask for their usage: they are counted, and look as they came."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from everlong.agent.accounting import Account, account
from everlong.config import Settings
from everlong.testing import ModelServer
from tests.gateway.running import Raw, Running, run_gateway
from tests.gateway.test_wire_streams import GPT, HELLO, reply_in
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE

CHAT = "/v1/chat/completions"
USAGE = GPT[-2]
SHOWN = [piece for piece in GPT if piece is not USAGE]


def asked(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}], **fields}
    ).encode()


def total(running: Running) -> Account:
    return account(running.store(), Settings()).total


def test_a_stream_is_counted_and_its_client_sees_no_more_than_it_asked_for(
    raw: Raw, relay: Running, upstream: Upstream
) -> None:
    upstream.script = lambda exchange: exchange.stream(*GPT)
    body = asked()
    assert raw.ask(body, CHAT).body == b"".join(SHOWN)
    assert upstream.last.body == body[:-1] + b',"stream_options":{"include_usage":true}}'
    assert reply_in(relay) == HELLO
    books = total(relay)
    assert (books.calls, books.tokens.input_tokens, books.tokens.output_tokens) == (1, 3, 2)
    assert (books.estimated_calls, books.unanswered) == (0, 0)


def test_the_usage_is_hidden_however_the_stream_is_cut_into_pieces(raw: Raw, upstream: Upstream) -> None:
    for line_end, size in ((b"\n", 1), (b"\r\n", 1), (b"\n", 7), (b"\r\n", 100_000)):
        whole, shown = (b"".join(pieces).replace(b"\n", line_end) for pieces in (GPT, SHOWN))
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        upstream.script = lambda exchange, pieces=pieces: exchange.stream(*pieces)  # type: ignore[misc]
        assert raw.ask(asked(), CHAT).body == shown


def test_what_the_client_says_of_its_stream_stays(raw: Raw, upstream: Upstream) -> None:
    upstream.script = lambda exchange: exchange.stream(*GPT)
    said: list[tuple[Any, Any, list[bytes]]] = [
        ({"include_usage": True}, {"include_usage": True}, GPT),
        ({"include_usage": False}, {"include_usage": True}, SHOWN),
        ({"include_obfuscation": False}, {"include_obfuscation": False, "include_usage": True}, SHOWN),
        (None, {"include_usage": True}, SHOWN),
        ("odd", "odd", GPT),
    ]
    for options, sent, shown in said:
        assert raw.ask(asked(stream_options=options), CHAT).body == b"".join(shown)
        assert json.loads(upstream.last.body)["stream_options"] == sent


def test_other_requests_are_not_asked_for_usage(raw: Raw, upstream: Upstream) -> None:
    for body, path in ((asked(stream=False), CHAT), (asked(max_tokens=9), "/v1/messages")):
        raw.ask(body, path)
        assert upstream.last.body == body
    raw.ask(asked(), CHAT, [("x-everlong", "off")])
    assert upstream.last.body == asked()


def test_an_upstream_that_tells_no_usage_is_counted_here(raw: Raw, relay: Running, upstream: Upstream) -> None:
    upstream.script = lambda exchange: exchange.stream(*SHOWN)
    long = [{"role": "user", "content": "the boats lie in the harbour " * 200}]
    assert raw.ask(asked(messages=long), CHAT).body == b"".join(SHOWN)
    books = total(relay)
    assert (books.calls, books.estimated_calls) == (1, 1)
    assert 1_000 < books.tokens.input_tokens < 1_500
    assert 0 < books.tokens.output_tokens < 20


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_a_packed_request_without_a_reported_usage_is_counted_by_its_words(
    path: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    upstream.script = lambda exchange: exchange.answer(json.dumps({**reply, "choices": [choice]}).encode())
    long = [{"role": "user", "content": "the boats lie in the harbour " * 200}]
    packed = gzip.compress(asked(stream=False, max_tokens=9, messages=long))
    assert raw.ask(packed, path, [("content-encoding", "gzip")]).status == 200
    assert upstream.last.body == packed
    assert 1_000 < total(relay).tokens.input_tokens < 1_500


def test_a_small_request_is_counted_while_no_thread_is_free(raw: Raw, relay: Running, upstream: Upstream) -> None:
    upstream.script = lambda exchange: exchange.answer(
        b'{"choices":[{"message":{"role":"assistant","content":"Yo."}}]}'
    )
    assert raw.ask(asked(stream=False), CHAT).status == 200
    relay.store()  # once it is stored, the next one is not looked up
    is_over = threading.Event()

    async def take_all_threads() -> None:
        for _ in range(100):
            relay.loop.run_in_executor(None, is_over.wait)

    asyncio.run_coroutine_threadsafe(take_all_threads(), relay.loop).result(PATIENCE)
    words = [("user", "hi"), ("assistant", "Yo."), ("user", "well")]
    try:
        messages = [{"role": role, "content": content} for role, content in words]
        assert raw.ask(asked(stream=False, messages=messages), CHAT).status == 200
    finally:
        is_over.set()
    assert total(relay).estimated_calls == 2


def test_an_answer_in_one_piece_stays_as_it_came(raw: Raw, upstream: Upstream) -> None:
    whole = b'{"choices": [], "usage": {"prompt_tokens": 3}}'
    upstream.script = lambda exchange: exchange.answer(whole)
    answer = raw.ask(asked(), CHAT)
    assert (answer.body, answer.header("content-length")) == (whole, str(len(whole)))


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Entity"])
def test_an_upstream_that_refuses_to_be_asked_is_asked_no_more(
    status: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    def script(exchange: Exchange) -> None:
        if b"stream_options" in exchange.received.body:
            exchange.answer(b'{"error":{"message":"Unrecognized request argument: stream_options"}}', status)
        else:
            exchange.stream(*SHOWN)

    upstream.script = script
    for _ in range(2):
        assert raw.ask(asked(), CHAT).body == b"".join(SHOWN)
    assert [b"stream_options" in one.body for one in upstream.requests] == [True, False, False]
    assert (total(relay).estimated_calls, total(relay).unanswered) == (2, 0)
    refused = raw.ask(asked(stream_options={"include_usage": True}), CHAT)
    assert (refused.status, len(upstream.requests)) == (int(status[:3]), 4)


def test_a_request_with_look_ups_hides_the_usage_too(tmp_path: Path) -> None:
    settings = {"gateway": {"routes": {"*": {"recall": True}}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    with ModelServer() as model, run_gateway(model.url, str(tmp_path / "g.db"), settings) as running:
        with running.raw() as raw:
            answer = raw.ask(asked(model="gpt-5", tools=tools), CHAT, [("authorization", "Bearer k")]).body
        sent = model.requests[-1].body
        assert any(tool["function"]["name"].startswith("everlong_") for tool in sent["tools"])
        assert sent["stream_options"] == {"include_usage": True}
        assert b'"choices":[]' not in answer.replace(b" ", b"")
        assert answer.endswith(b"data: [DONE]\n\n")
        assert total(running).tokens.input_tokens > 0
