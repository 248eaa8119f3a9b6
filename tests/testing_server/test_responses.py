"""The Responses API of the model server: what the official client gets from it, and what it refuses."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from everlong.testing import Answer, Ask, Call, ModelServer
from tests.api_rules.responses_server import CompactingServer, LateRefusingServer
from tests.testing_server.conftest import KEY, post

PATH = "/v1/responses"
TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"type": {"type": "string", "description": "a name like any other"}},
    },
}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "nothing"}
QUESTION = {"role": "user", "content": "Hello?"}


def client(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.openai_url, api_key=KEY, max_retries=0)


def script(ask: Ask) -> Answer:
    if ask.results:
        return Answer(f"It says {ask.results[0][1]}.")
    return Answer("I look.", calls=[Call("look", {"type": "chart"})], thinking="Where is it?")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_step_with_reasoning_and_a_call_is_answered_and_taken_back(is_streamed: bool) -> None:
    with ModelServer(script) as server, client(server) as gpt:
        items: list[Any] = [QUESTION]
        about: Any = {"model": "m", "tools": [TOOL], "store": False, "include": ["reasoning.encrypted_content"]}
        said: Any = gpt.responses.create(input=items, stream=is_streamed, **about)
        if is_streamed:
            *_, last = said
            said = last.response
        assert [item.type for item in said.output] == ["reasoning", "message", "function_call"]
        assert said.usage.input_tokens == server.requests[0].prompt_tokens
        items += [item.to_dict() for item in said.output]
        call = said.output[-1]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "a reef"})
        again = gpt.responses.create(input=items, **about)
        assert again.output_text == "It says a reef."
        assert server.rejections == []


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([QUESTION, OUTPUT], "No tool call found for function call output with call_id call_1."),
        ([QUESTION, CALL], "No tool output found for function call call_1."),
        ([QUESTION, {**CALL, "type": "custom_tool_call", "input": ""}, OUTPUT], "Unknown parameter"),
        ([{"role": "user", "content": [{"type": "text", "text": "Hello?"}]}], "Invalid value: 'text'."),
        ([{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}], "Invalid value: 'input_text'."),
        ([{**QUESTION, "_note": 1}], "Unknown parameter: 'input[0]._note'."),
        ([{"role": "tool", "content": "x"}], "Invalid value: 'tool'."),
        ([{"type": "invented"}], "Invalid value: 'invented'."),
        ([QUESTION, {"type": "compaction_trigger"}], "Invalid value: 'compaction_trigger'."),
        ([{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}], "could not be verified"),
        ([], "empty array"),
    ],
)
def test_what_the_api_refuses_is_refused(items: list[Any], words: str) -> None:
    with ModelServer() as server:
        answer = post(server, PATH, {"model": "m", "input": items})
        assert answer.status == 400
        assert words in answer.json["error"]["message"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_prompt_that_is_too_long_is_refused_before_or_in_the_stream(is_late: bool) -> None:
    long = {"role": "user", "content": "word " * 2_000}
    with (LateRefusingServer if is_late else ModelServer)(window=1_000) as server:
        answer = post(server, PATH, {"model": "m", "input": [long], "stream": True})
        assert answer.status == (200 if is_late else 400)
        assert "context_length_exceeded" in answer.text
        assert ("event: response.failed" in answer.text) is is_late
        assert len(server.rejections) == 1


def test_a_compaction_is_one_item_that_the_model_can_read_later() -> None:
    with CompactingServer(lambda ask: "yes" if "the harbour" in ask.text else "no") as server:
        items = [{"role": "user", "content": "It is about the harbour."}, {"type": "compaction_trigger"}]
        told = post(server, PATH, {"model": "m", "input": items}).json
        assert [item["type"] for item in told["output"]] == ["compaction"]
        more = post(server, "/v1/responses/compact", {"model": "m", "input": items[:1]}).json
        assert more["object"] == "response.compaction"
        for item in (told["output"][0], more["output"][0]):
            answer = post(server, PATH, {"model": "m", "input": [item, QUESTION]}).json
            assert answer["output"][0]["content"][0]["text"] == "yes"
