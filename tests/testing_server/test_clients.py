"""The official clients get from the server what they would get from the real APIs, whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from everlong.testing import Answer, Ask, Call, ModelServer
from tests.testing_server.conftest import Serve

Claude = Callable[[ModelServer], anthropic.Anthropic]
Gpt = Callable[[ModelServer], openai.OpenAI]
HELLO: Any = [{"role": "user", "content": "Hello"}]
SCHEMA: Any = {"type": "object", "properties": {"path": {"type": "string"}}}
CLAUDE_TOOLS: Any = [{"name": "read_file", "description": "Read a file", "input_schema": SCHEMA}]
GPT_TOOLS: Any = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]
TWO_CALLS = Answer("Both.", [Call("read_file", {"path": "ä.py"}), Call("read_file", {"path": "b.py"})])


def test_claude_streams_thinking_text_and_parallel_calls(serve: Serve, claude: Claude) -> None:
    server = serve([Answer("Both.", TWO_CALLS.calls, thinking="Which files?", redacted_thinking="hidden")])
    thinking: Any = {"type": "adaptive"}
    with claude(server).messages.stream(
        model="claude-opus-5", max_tokens=2000, messages=HELLO, tools=CLAUDE_TOOLS, thinking=thinking
    ) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "text", *["tool_use"] * 2]
    assert message.content[3].to_dict()["input"] == {"path": "ä.py"}
    assert message.stop_reason == "tool_use"
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_gpt_streams_parallel_calls_and_usage_when_asked(serve: Serve, gpt: Gpt) -> None:
    client = gpt(serve([TWO_CALLS, TWO_CALLS]))
    chunks = list(
        client.chat.completions.create(
            model="gpt-5", messages=HELLO, tools=GPT_TOOLS, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    arguments: dict[int, str] = {}
    for chunk in chunks[:-1]:
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert [json.loads(text) for text in arguments.values()] == [{"path": "ä.py"}, {"path": "b.py"}]
    quiet = list(client.chat.completions.create(model="gpt-5", messages=HELLO, tools=GPT_TOOLS, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in quiet)


def test_a_tool_loop_goes_round_on_both_apis(serve: Serve, claude: Claude, gpt: Gpt) -> None:
    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer(f"It says {ask.results[-1][1]}")
        return Answer(
            "Looking.", [Call("read_file", {"path": "a.py"})], thinking="Where?" if ask.api == "anthropic" else None
        )

    server = serve(script)
    client = claude(server)
    history: Any = [*HELLO]
    first = client.messages.create(model="claude-opus-5", max_tokens=500, messages=history, tools=CLAUDE_TOOLS)
    result = {"type": "tool_result", "tool_use_id": first.content[-1].to_dict()["id"], "content": "42"}
    history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model="claude-opus-5", max_tokens=500, messages=history, tools=CLAUDE_TOOLS)
    assert second.content[0].to_dict()["text"] == "It says 42"

    other = gpt(server)
    turns: Any = [*HELLO]
    asked = other.chat.completions.create(model="gpt-5", messages=turns, tools=GPT_TOOLS).choices[0].message
    assert asked.tool_calls
    turns += [asked, {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "42"}]
    said = other.chat.completions.create(model="gpt-5", messages=turns, tools=GPT_TOOLS).choices[0].message
    assert said.content == "It says 42"
    assert server.rejections == []


def test_a_script_that_runs_out_says_so_to_the_client_and_to_the_test(gpt: Gpt) -> None:
    server = ModelServer(["only this"])
    server.__enter__()
    client = gpt(server)
    client.chat.completions.create(model="gpt-5", messages=HELLO)
    with pytest.raises(openai.InternalServerError, match="script failed"):
        client.chat.completions.create(model="gpt-5", messages=HELLO)
    with pytest.raises(AssertionError, match="the script has 1 answers and was asked for one more"):
        server.__exit__(None, None, None)
