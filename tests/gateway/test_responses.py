"""The Responses API passes untouched, and what is said by it is one conversation, however it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.running import TENANT, Raw, Running, run_gateway
from tests.gateway.upstream import Exchange, Upstream

CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"at": "a"}'}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}


def text(words: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def response(number: int, output: list[Any]) -> dict[str, Any]:
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3, "total_tokens": 13}
    usage["output_tokens_details"] = {"reasoning_tokens": 1}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": output,
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def script(exchange: Exchange, output: list[Any] | None = None) -> None:
    """Answers number so many; streams where that is asked for."""
    asked = json.loads(exchange.received.body)
    number = len(json.dumps(asked.get("input", "")))
    told = response(number, output or [text(f"Reply {number}.")])
    if not asked.get("stream"):
        exchange.answer(json.dumps(told).encode())
        return
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {**told, "status": "in_progress", "output": []}},
        {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Rep", "item_id": "msg_1"},
        {"type": "response.completed", "sequence_number": 2, "response": told},
    ]
    exchange.stream(*(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events))


@pytest.fixture
def gpt(relay: Running, upstream: Upstream) -> Iterator[openai.OpenAI]:
    upstream.script = script
    with openai.OpenAI(base_url=f"{relay.url}/v1", api_key="k", max_retries=0) as client:
        yield client


def told(running: Running, turn: int, tenant: str = "local") -> list[tuple[str, Any]]:
    """What the request of a turn said, from the beginning of its conversation."""
    store = running.store(tenant)
    found = store.turns.get(turn)
    entries = store.entries(store.branch(found.branch, found.depth))
    return [(entry.message["role"], entry.message.get("content")) for entry in entries if entry.id]


def test_a_text_is_asked_and_answered(gpt: openai.OpenAI, relay: Running) -> None:
    said = gpt.responses.create(model="m", input="Hello?", instructions="Be brief.")
    assert said.output_text == "Reply 8."
    turn = relay.store().turns.get(1)
    assert (turn.status, turn.session) == ("done", None)
    assert relay.store().turns.reply(1) == {"role": "assistant", "content": "Reply 8."}
    assert turn.usage is not None
    assert [turn.usage[name] for name in ("prompt_tokens", "cache_read_tokens", "output_tokens")] == [10, 4, 3]
    assert told(relay, 1) == [("user", "Hello?")]


def test_a_stream_passes_and_is_stored(gpt: openai.OpenAI, relay: Running) -> None:
    kinds = [event.type for event in gpt.responses.create(model="m", input="Hello?", stream=True)]
    assert kinds == ["response.created", "response.output_text.delta", "response.completed"]
    assert relay.store().turns.reply(1) == {"role": "assistant", "content": "Reply 8."}


def test_a_request_goes_on_from_the_response_that_it_names(gpt: openai.OpenAI, relay: Running) -> None:
    first = gpt.responses.create(model="m", input="Hello?")
    second = gpt.responses.create(model="m", input="And then?", previous_response_id=first.id)
    gpt.responses.create(model="m", input="And in the end?", previous_response_id=second.id)
    other = gpt.responses.create(model="m", input="Or otherwise?", previous_response_id=first.id)  # a fork
    assert [words for _, words in told(relay, 3)] == [
        *("Hello?", [{"type": "text", "text": "Reply 8."}]),
        *("And then?", [{"type": "text", "text": "Reply 11."}], "And in the end?"),
    ]
    assert [words for _, words in told(relay, 4)][2:] == ["Or otherwise?"]
    turns = list(relay.store().turns.since())
    assert turns[0].session is None
    assert turns[1].session == turns[2].session != turns[3].session
    assert turns[0].echo_node is not None
    assert other.id == "resp_15"
    assert relay.store().verify().problems == []


def test_a_client_that_repeats_everything_is_known_again(
    gpt: openai.OpenAI, relay: Running, upstream: Upstream
) -> None:
    upstream.script = lambda exchange: script(exchange, [REASONING, CALL])
    items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "Look."}]}]
    said = gpt.responses.create(model="m", input=items, store=False, include=["reasoning.encrypted_content"])
    items += [item.to_dict() for item in said.output]
    items.append({"type": "function_call_output", "call_id": "call_1", "output": "nothing"})
    upstream.script = script
    gpt.responses.create(model="m", input=items, store=False)
    items.append(text("Nothing there."))
    items.append({"role": "user", "content": "Sure?"})
    gpt.responses.create(model="m", input=items, store=False)
    turns = list(relay.store().turns.since())
    assert len({turn.branch for turn in turns}) == 1
    assert [turn.session is None for turn in turns] == [True, False, False]
    assert [role for role, _ in told(relay, 3)] == ["user", "assistant", "tool", "assistant", "user"]
    assert turns[0].echo_node is not None
    assert json.loads(upstream.last.body)["input"] == items


def test_a_conversation_that_the_upstream_keeps_is_one_conversation(gpt: openai.OpenAI, relay: Running) -> None:
    for words in ("One?", "Two, then?", "And three?"):
        gpt.responses.create(model="m", input=words, conversation="conv_1")
    assert [words for role, words in told(relay, 3) if role == "user"] == ["One?", "Two, then?", "And three?"]


def test_a_response_is_known_after_a_restart_and_only_to_its_tenant(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = script
    path = str(tmp_path / "store.db")

    def ask(raw: Raw, tenant: str, **fields: Any) -> str:
        body = json.dumps({"model": "m", **fields}).encode()
        return str(raw.ask(body, "/v1/responses", [(TENANT, tenant)]).json()["id"])

    with run_gateway(upstream.url, path) as running, running.raw() as raw:
        first = ask(raw, "ada", input="Hello?")
    with run_gateway(upstream.url, path) as running, running.raw() as raw:
        ask(raw, "ada", input="Go on.", previous_response_id=first)
        ask(raw, "ben", input="Go on, please.", previous_response_id=first)
        ask(raw, "ada", input="Go on!", previous_response_id="resp_%")
        assert [words for _, words in told(running, 2, "ada")] == ["Hello?", "Reply 8.", "Go on."]
        assert [words for _, words in told(running, 3, "ben")] == ["Go on, please."]
        assert [words for _, words in told(running, 4, "ada")] == ["Go on!"]


BODIES = [
    b'{ "model":"m" , "input":"a \\u00fc", "big":123456789012345678901234567890 }',
    b'{"model":"m","input":[{"role":"user","content":"x"},{"type":"item_reference","id":"msg_1"}],"model":"n"}',
    b'{"model":"m","input":5}',
    b'{"model":"m","input":[7]}',
    b"no JSON",
    b"",
]


@pytest.mark.parametrize("body", BODIES)
def test_bytes_pass_untouched_whatever_they_are(body: bytes, raw: Raw, upstream: Upstream) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"error":{"message":"no"}}', "400 Bad Request")
    answer = raw.ask(body, "/v1/responses?x=1", [("openai-beta", "responses=v1")])
    assert (answer.status, answer.body) == (400, b'{"error":{"message":"no"}}')
    assert (upstream.last.body, upstream.last.target) == (body, "/v1/responses?x=1")
    assert upstream.last.header("openai-beta") == "responses=v1"


def test_a_failed_response_is_no_reply(raw: Raw, relay: Running, upstream: Upstream) -> None:
    failed = {"type": "response.failed", "response": {**response(1, []), "status": "failed"}}
    data = f"event: response.failed\ndata: {json.dumps(failed)}\n\n".encode()
    upstream.script = lambda exchange: exchange.stream(data)
    assert raw.ask(b'{"model":"m","input":"x","stream":true}', "/v1/responses").body == data
    assert relay.store().turns.get(1).status == "failed"


def test_an_upstream_that_hangs_up_is_an_error_in_the_shape_of_the_api(
    raw: Raw, relay: Running, upstream: Upstream
) -> None:
    upstream.script = lambda exchange: exchange.cut()
    answer = raw.ask(b'{"model":"m","input":"x"}', "/v1/responses")
    assert (answer.status, answer.json()["error"]["type"]) == (502, "api_error")
    assert relay.store().turns.get(1).status == "failed"
