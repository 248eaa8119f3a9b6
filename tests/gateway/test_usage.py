"""Whatever an upstream reports as used: the client gets its answer, and the turn is stored."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from everlong.agent.accounting import Account, account
from everlong.config import Settings
from everlong.providers.anthropic_api import anthropic_usage
from everlong.providers.catalogue import Catalogue
from everlong.providers.openai_api import openai_usage
from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask
from tests.gateway.running import Raw, Running, run_gateway
from tests.gateway.test_wire_streams import GPT, HELLO, reply_in
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE, until

KEYS = [("x-api-key", "mine"), ("anthropic-version", "2023-06-01")]
DOLLARS = "everlong_dollars_total"
PRICES = {"models": {"m": {"input_price": 3.0, "output_price": 15.0}}}
TEXT = {"type": "output_text", "text": "hi", "annotations": []}
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]
    },
    "/v1/messages": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]},
    "/v1/responses": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}],
    },
}
COUNTED = '{"prompt_tokens": %s, "completion_tokens": %s, "input_tokens": %s, "output_tokens": %s}'
ODD = ["1" + "0" * 30, "1e400", "-5", '"many"', "9223372036854775807", "null", "[1]", '{"a": 1}', "true"]
USAGES = [*(COUNTED % ((count,) * 4) for count in ODD), "[]", '"much"', '{"iterations": [1, {"input_tokens": "x"}]}']


@pytest.mark.parametrize("path", ANSWERS)
def test_an_odd_usage_keeps_nobody_from_an_answer(path: str, upstream: Upstream, tmp_path: Path) -> None:
    name = "input" if path == "/v1/responses" else "messages"
    whole = json.dumps({"id": "a_1", "model": "m", **ANSWERS[path]})[:-1]
    with run_gateway(upstream.url, str(tmp_path / "store.db"), PRICES) as running, running.raw() as raw:
        for usage in USAGES:
            told = f'{whole}, "usage": {usage}}}'.encode()
            upstream.script = lambda exchange, told=told: exchange.answer(told)  # type: ignore[misc]
            said = [{"role": "user", "content": f"hello {usage} " * 60}]
            for number in range(3):
                answer = raw.ask(json.dumps({"model": "m", "max_tokens": 9, name: said}).encode(), path)
                assert (answer.status, answer.body) == (200, told)
                said += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": f"and {number}?"}]
        assert [turn.status for turn in running.store().turns.since()] == ["done"] * 3 * len(USAGES)
        assert not any(running.gateway.journal._folder.glob("*.broken"))


def test_a_request_that_the_upstream_refused_cost_nothing(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"error":{"message":"no"}}', "401 Unauthorized")
    with run_gateway(upstream.url, str(tmp_path / "store.db")) as running, running.raw() as raw:
        assert raw.ask(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}').status == 401
        store = running.store()
        assert [turn.status for turn in store.turns.since()] == ["failed"]
        assert account(store, Settings()).total.unanswered == 0


@pytest.mark.parametrize("writer", ["own model", "configured model", "lcm"])
def test_every_screen_has_the_upstreams_account_to_the_cent(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind an upstream of the user's own, where the maker's prices hold."""
    window = 8_000
    words = "what the client says takes up some room in the window of the model " * 20
    history: list[dict[str, Any]] = []

    def script(ask: Ask) -> Answer:
        said = ask.last_user.lower()
        return Answer("## Goal\nSail to the harbour at dawn." if "summar" in said else "Go on.")

    with ModelServer(script, window=window) as model:
        settings: dict[str, Any] = {
            "models": {"claude-sonnet-5": {"context_length": window}, "w": PRICES["models"]["m"]}
        }
        if writer == "configured model":
            monkeypatch.setenv("WRITER_KEY", "made-up-key")
            settings["providers"] = {"shop": {"base_url": f"{model.url}/v1", "key_variable": "WRITER_KEY"}}
            settings["gateway"] = {"summaries": "shop:w"}
        if writer == "lcm":
            settings["context"] = {"engine": "lcm"}
        with run_gateway(model.url, str(tmp_path / "store.db"), settings, summarizer=None) as running:
            for number in range(40):
                history.append({"role": "user", "content": f"Question {number}: {words}"})
                body = {"model": "claude-sonnet-5", "max_tokens": 200, "messages": history}
                with running.raw() as raw:
                    assert raw.ask(json.dumps(body).encode(), headers=KEYS).status == 200
                history.append({"role": "assistant", "content": "Go on."})
            until(lambda: not running.gateway._compactor._ahead)
            if writer == "configured model":
                assert running.gateway.summaries.told == "shop:w, as gateway.summaries says"
            store, read = running.store(), Settings.model_validate(settings)
            prices, billed = Catalogue(read.models, read.providers), Decimal(0)
            for record in model.requests:
                usage = anthropic_usage if record.path == "/v1/messages" else openai_usage
                rates = prices.rates(record.body["model"], 1_000, 0.0)
                assert rates is not None
                billed += rates.cost(usage(record.usage))
            books = account(store, read)
            assert books.total.kinds["summary"].calls >= 1
            assert books.total.cost == billed
            (found,) = store.conversations.newest()
            assert found.cost == pytest.approx(float(billed))
            counted = next(line for line in running.gateway.metrics.text().splitlines() if line.startswith(DOLLARS))
            assert float(counted.split()[1]) == pytest.approx(float(billed))


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
