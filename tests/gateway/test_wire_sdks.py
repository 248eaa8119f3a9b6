"""The official clients, pointed at the gateway, notice nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask, Call
from tests.gateway.running import Running
from tests.gateway.upstream import Upstream

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n not really").decode()
CLAUDE: Any = {"model": "claude-sonnet-5", "max_tokens": 200}
ASK: Any = [{"role": "user", "content": "hi"}]
LOOK: Any = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}


@pytest.fixture
def claude(gateway: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def gpt(gateway: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0) as client:
        yield client


def says(model: ModelServer, answer: Answer | str | Callable[[Ask], Answer | str]) -> None:
    model.model = type(model.model)(answer if callable(answer) else lambda _: answer)


CALLS = Answer("Looking.", calls=[Call("look", {"at": "a"}), Call("look", {"at": "ü b"})])


# -- Anthropic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_parallel_tools_and_their_results(
    streams: bool, claude: anthropic.Anthropic, model: ModelServer, gateway: Running
) -> None:
    says(model, lambda ask: CALLS if len(ask.turns) < 3 else "Both are there.")
    tools: Any = [{"name": "look", "description": "Look.", "input_schema": LOOK}]
    messages = list(ASK)
    for _ in range(2):
        if streams:
            with claude.messages.stream(**CLAUDE, messages=messages, tools=tools) as stream:
                said = stream.get_final_message()
        else:
            said = claude.messages.create(**CLAUDE, messages=messages, tools=tools)
        messages.append({"role": "assistant", "content": [block.to_dict() for block in said.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"at {block.input}"}
            for block in said.content
            if block.type == "tool_use"
        ]
        if results:
            assert [json.loads(result["content"][3:].replace("'", '"'))["at"] for result in results] == ["a", "ü b"]
            messages.append({"role": "user", "content": results})
    assert said.content[0].type == "text"
    assert not model.rejections
    turns = list(gateway.store().turns.since())
    assert [turn.status for turn in turns] == ["done", "done"]
    assert turns[0].echo_node is not None  # the reply was known again when the client sent it back


@pytest.mark.parametrize("streams", [False, True])
def test_thinking_with_its_signature_comes_back_to_the_upstream_unchanged(
    streams: bool, claude: anthropic.Anthropic, model: ModelServer
) -> None:
    says(model, Answer("So it is.", thinking="Is it so?"))
    options: Any = {
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "model": "claude-sonnet-5",
        "max_tokens": 4000,
    }
    messages = list(ASK)
    for _ in range(3):
        if streams:
            with claude.messages.stream(**options, messages=messages) as stream:
                said = stream.get_final_message()
        else:
            said = claude.messages.create(**options, messages=messages)
        assert said.content[0].type == "thinking"
        assert said.content[0].signature
        blocks = [block.to_dict() for block in said.content]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": "Go on."}]
    assert not model.rejections
    sent = model.requests[-1].body["messages"]
    assert [sent[1], sent[3]] == json.loads(json.dumps([messages[1], messages[3]]))


def test_pictures_documents_and_redacted_thinking_arrive(claude: anthropic.Anthropic, model: ModelServer) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    messages: Any = [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": source},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A page."}},
                {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}},
            ],
        }
    ]
    claude.messages.create(**CLAUDE, messages=messages)
    assert model.requests[0].body["messages"] == messages
    messages += [{"role": "assistant", "content": "A page."}, {"role": "user", "content": "Again?"}]
    claude.messages.create(**CLAUDE, messages=messages)
    assert model.requests[1].body["messages"] == messages


ERRORS = [
    (400, anthropic.BadRequestError, openai.BadRequestError),
    (401, anthropic.AuthenticationError, openai.AuthenticationError),
    (403, anthropic.PermissionDeniedError, openai.PermissionDeniedError),
    (404, anthropic.NotFoundError, openai.NotFoundError),
    (413, anthropic.RequestTooLargeError, openai.APIStatusError),
    (422, anthropic.UnprocessableEntityError, openai.UnprocessableEntityError),
    (429, anthropic.RateLimitError, openai.RateLimitError),
    (500, anthropic.InternalServerError, openai.InternalServerError),
    (529, anthropic.OverloadedError, openai.InternalServerError),
]


@pytest.mark.parametrize(("status", "kind", "_other"), ERRORS, ids=[str(error[0]) for error in ERRORS])
@pytest.mark.parametrize("streams", [False, True])
def test_an_error_is_the_clients_own_kind_of_error(
    status: int, kind: type[anthropic.APIStatusError], _other: object, streams: bool, relay: Running, upstream: Upstream
) -> None:
    body = {"type": "error", "error": {"type": "made_up_error", "message": "because"}, "request_id": "req_7"}
    upstream.script = lambda exchange: exchange.answer(
        json.dumps(body).encode(), f"{status} Odd", [("request-id", "req_7"), ("retry-after", "3")]
    )
    with (
        anthropic.Anthropic(base_url=relay.url, api_key="k", max_retries=0) as client,
        pytest.raises(kind) as caught,
    ):
        client.messages.create(**CLAUDE, messages=ASK, stream=streams)
    assert (caught.value.status_code, caught.value.body, caught.value.request_id) == (status, body, "req_7")
    assert caught.value.response.headers["retry-after"] == "3"


# -- OpenAI ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_parallel_tools_of_the_other_api(
    streams: bool, gpt: openai.OpenAI, model: ModelServer, gateway: Running
) -> None:
    says(model, lambda ask: CALLS if not any(turn.role == "tool" for turn in ask.turns) else "Both.")
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
    messages = list(ASK)
    if streams:
        calls: dict[int, dict[str, Any]] = {}
        for chunk in gpt.chat.completions.create(model="m", messages=messages, tools=tools, stream=True):
            for part in chunk.choices[0].delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": part.id, "type": "function", "function": {"arguments": ""}})
                assert part.function is not None
                call["function"]["name"] = call["function"].get("name") or part.function.name
                call["function"]["arguments"] += part.function.arguments or ""
        made = list(calls.values())
    else:
        said = gpt.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message
        made = [call.to_dict() for call in said.tool_calls or []]
    assert [json.loads(call["function"]["arguments"])["at"] for call in made] == ["a", "ü b"]
    messages.append({"role": "assistant", "content": "Looking.", "tool_calls": made})
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": "there"} for call in made]
    assert gpt.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message.content == "Both."
    assert not model.rejections
    assert gateway.store().turns.get(1).echo_node is not None
