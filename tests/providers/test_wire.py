"""Conversations go out and come back through the official clients, on both formats, whole and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench.agent.billing import READ_SHARE, play, summed
from hypothesis import given, settings

from everlong.context.invariants import repair_all
from everlong.model import Message
from everlong.providers import (
    Done,
    TextDelta,
    ThinkingDelta,
    ToolCallMade,
    Usage,
    UsageReported,
)
from everlong.providers.anthropic_api import anthropic_body, anthropic_usage
from everlong.providers.openai_api import openai_body, openai_usage
from everlong.testing import Answer, Ask, Call
from tests.api_rules.anthropic import check_anthropic
from tests.api_rules.openai import check_openai
from tests.api_rules.prompt_cache import anthropic_blocks_of
from tests.examples import examples, few, length
from tests.providers.conftest import APIS, Connect, asked
from tests.testing_server.conftest import Serve
from tests.wild import wild_conversations

SYSTEM: Message = {"role": "system", "content": "Be brief."}

HELLO: Message = {"role": "user", "content": "Hello"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run a command",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]
both_apis = pytest.mark.parametrize("api", APIS)
both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@both_apis
@both_ways
def test_parallel_calls_come_whole_and_their_results_go_back(
    serve: Serve, connected: Connect, api: str, streamed: bool
) -> None:
    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer(" and ".join(text for _, text in ask.results))
        return Answer("Both.", [Call("bash", {"command": "ls ü"}), Call("bash", {"command": "pwd"})])

    server = serve(script)
    provider = connected(api, server)
    reply = asked(provider, [HELLO], streamed=streamed, tools=TOOLS)
    assert reply.stop == "tool_calls"
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("bash", '{"command": "ls ü"}'),
        ("bash", '{"command": "pwd"}'),
    ]
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"out {at}", "is_error": False}
        for at, call in enumerate(reply.calls)
    ]
    second = asked(provider, [HELLO, reply.message, *results], streamed=streamed, tools=TOOLS)
    assert second.text == "out 0 and out 1"
    assert server.rejections == []


@both_ways
def test_thinking_comes_back_byte_for_byte_and_the_server_takes_it(
    serve: Serve, connected: Connect, streamed: bool
) -> None:
    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer("Done.")
        return Answer("So.", [Call("bash", {})], thinking="Where? „Hier“ 🙂\n", redacted_thinking="hidden")

    server = serve(script)
    provider = connected("anthropic", server)
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    reply = asked(provider, [HELLO], streamed=streamed, tools=TOOLS, max_tokens=4000, options=options)
    thinking, redacted, words = reply.message["content"]
    assert thinking["thinking"] == "Where? „Hier“ 🙂\n"
    assert thinking.keys() == {"type", "thinking", "signature"}
    assert redacted.keys() == {"type", "data"}
    assert words == {"type": "text", "text": "So."}
    assert reply.usage.reasoning_tokens > 0
    history = [HELLO, reply.message, {"role": "tool", "tool_call_id": reply.calls[0].id, "content": "ok"}]
    assert asked(provider, history, streamed=streamed, tools=TOOLS, max_tokens=4000, options=options).text == "Done."
    assert server.requests[1].body["messages"][1]["content"][:2] == [thinking, redacted]
    assert server.rejections == []


@both_apis
def test_a_stream_tells_what_comes_in_order_and_ends_with_the_whole(serve: Serve, connected: Connect, api: str) -> None:
    server = serve([Answer("One two three.", [Call("bash", {"a": 1})], thinking="Hm." if api == "anthropic" else None)])
    events = list(connected(api, server).stream([HELLO], tools=TOOLS))
    kinds = [type(event) for event in events]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "One two three."
    assert [event.call.arguments for event in events if isinstance(event, ToolCallMade)] == ['{"a": 1}']
    assert (ThinkingDelta in kinds) == (api == "anthropic")
    assert kinds[-2:] == [UsageReported, Done]
    assert kinds.count(TextDelta) > 1


def test_reasoning_of_other_servers_is_thinking_and_goes_back_to_them_only(serve: Serve, connected: Connect) -> None:
    script: Callable[[Ask], Answer] = lambda _: Answer("Yes.", thinking="Because.")  # noqa: E731 - it is used twice
    for dialect, field in (("vllm", "reasoning_content"), ("openrouter", "reasoning")):
        server = serve(script, dialect=dialect)
        provider = connected("openai", server, "local", name="workshop")
        streamed = asked(provider, [HELLO], streamed=True)
        assert streamed.message == {"role": "assistant", "content": "Yes.", field: "Because."}
        assert provider.complete([HELLO]).message == streamed.message
        provider.complete([HELLO, streamed.message, HELLO])
        assert server.requests[-1].body["messages"][1] == streamed.message
    strict = serve("ok")
    connected("openai", strict).complete([HELLO, streamed.message, HELLO])
    assert strict.requests[0].body["messages"][1] == {"role": "assistant", "content": "Yes."}


MIXED: list[Message] = [
    SYSTEM,
    {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": ""}], "name": "ada"},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "of another provider"}, {"type": "text", "text": "ok"}],
        "reasoning_content": "not for OpenAI",
        "tool_calls": [
            {"id": "functions.bash:0", "type": "function", "function": {"name": "bash", "arguments": "{broken"}}
        ],
        "_anthropic": {"extra": {"id": "msg_1"}},
    },
    {"role": "tool", "tool_call_id": "functions.bash:0", "content": "", "is_error": True},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": [{"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}]},
]


@both_apis
@both_ways
def test_a_conversation_with_traces_of_other_providers_is_taken_by_the_strictest_server(
    serve: Serve, connected: Connect, api: str, streamed: bool
) -> None:
    server = serve("ok", alternate_roles=True)
    reply = asked(connected(api, server), MIXED, streamed=streamed, tools=TOOLS, max_tokens=99)
    assert reply.text == "ok"
    assert server.rejections == []


@pytest.mark.spec("1.1")
def test_usage_in_every_providers_words_is_one_vocabulary() -> None:
    assert openai_usage({"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 6}) == Usage(4, 2, 6)
    steps: dict[str, Any] = {
        "iterations": [{"input_tokens": 5, "output_tokens": 1}, {"input_tokens": 7, "output_tokens": 2}]
    }
    assert anthropic_usage({**steps, "input_tokens": 7, "output_tokens": 2}) == Usage(12, 3)
    assert openai_usage({}) == anthropic_usage({}) == Usage()
    assert Usage(1, 2, 3, 4, 1, 1) + Usage(1, 1, 1, 1) == Usage(2, 3, 4, 5, 1, 1)


def without_thinking(message: Message) -> Message:
    """Return a message without thinking, whose signatures are made up here and would be refused."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kept = [part for part in content if not (isinstance(part, dict) and "thinking" in str(part.get("type")))]
    return {**message, "content": kept}


def check_both(messages: list[Message]) -> None:
    asked = [*map(without_thinking, messages), {"role": "user", "content": "And now?"}]
    body = anthropic_body(asked, "claude-opus-5", max_tokens=100)
    check_anthropic(body, alternate_roles=True)
    anthropic_blocks_of(body)
    check_openai(openai_body(asked, "gpt-5", max_tokens=100))


def test_ids_that_come_again_are_made_different_and_stay_so_when_the_conversation_grows() -> None:
    step: list[Message] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "functions.a:0", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "functions.a:0", "content": "ok"},
    ]
    first: Message = {"role": "user", "content": "go"}
    short = anthropic_body([first, *step, *step], "claude-opus-5", max_tokens=9)["messages"]
    long = anthropic_body([first, *step, *step, *step], "claude-opus-5", max_tokens=9)["messages"]
    assert long[: len(short)] == short
    uses = [turn["content"][0]["id"] for turn in long if turn["role"] == "assistant"]
    assert uses == ["functions_a_0", "functions_a_0_2", "functions_a_0_3"]
    assert [turn["content"][0]["tool_use_id"] for turn in long[2::2]] == uses


@given(wild_conversations())
@settings(max_examples=examples(60), deadline=None)
def test_anything_that_a_client_could_send_is_taken_once_repaired(messages: list[Any]) -> None:
    asked = [*map(without_thinking, messages), {"role": "user", "content": "And now?"}]
    check_both(repair_all(asked))


@pytest.mark.spec("6.4")
@pytest.mark.parametrize("strategy", few(["ledger, 1h", "ledger"]))
def test_every_request_of_a_session_is_billed_as_the_simulator_predicts(strategy: str) -> None:
    # In both of them calls are tried again, something is compacted, a pause is long and somebody goes back.
    turns, seed, window = length(60, 24), length(3, 14), length(40_000, 20_000)
    billing = play(turns, strategy, seed, window)
    assert billing.failures, "no call was tried again"
    assert billing.compactions, "nothing was compacted"
    assert billing.pauses, "no pause outlived the cache"
    assert billing.rewinds, "nobody went back"
    assert billing.billed == billing.predicted
    assert billing.reported == billing.billed
    assert billing.read_share >= READ_SHARE
    assert bool(summed(billing.billed).written_1h) == ("1h" in strategy)
