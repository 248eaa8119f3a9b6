"""What the real APIs would refuse, the server refuses, in their shape and words."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.testing import Answer, Call, ModelServer
from tests.testing_server.conftest import Serve, post

OK = {"role": "user", "content": "Hello"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
TOOL = {"name": "bash", "input_schema": {"type": "object"}}
MARK = {"type": "ephemeral"}


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(words: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


ANTHROPIC: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens: Input should be a valid integer"),
    ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
    ({"max_tokens": 0, "stream": True}, "max_tokens: 0 may not be used"),
    ({"model": 3}, "model: Input should be a valid string"),
    ({"colour": "red"}, "colour: Extra inputs are not permitted"),
    ({"messages": []}, "messages: at least one message is required"),
    ({"messages": [said("assistant", text())]}, 'first message must use the "user" role'),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Input should be 'user'"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages.0: all messages must have non-empty content"),
    ({"messages": [{"role": "user", "content": " \n"}]}, "must contain non-whitespace text"),
    ({"messages": [said("user", text(""))]}, "messages: text content blocks must be non-empty"),
    ({"messages": [said("user", text("", cache_control=MARK))]}, "cache_control cannot be set for empty text blocks"),
    ({"messages": [{**OK, "name": "Ada"}]}, "messages.0.name: Extra inputs are not permitted"),
    (
        {"messages": [said("user", text(cache_control={**MARK, "scope": "global"}))]},
        "messages.0.content.0.cache_control.ephemeral.scope: Extra inputs are not permitted",
    ),
    (
        {"messages": [said("user", text(cache_control={**MARK, "scope": "mine"}))]},
        "cache_control.ephemeral.scope: Input should be 'global'",
    ),
    (
        {"messages": [said("user", {"type": "text", "text": "x", "_openai": 1})]},
        "messages.0.content.0.text._openai: Extra",
    ),
    ({"messages": [said("user", {"type": "image_url"})]}, "Input tag 'image_url' found using 'type' does not match"),
    ({"messages": [OK, said("assistant", text())]}, "does not support assistant message prefill"),
    (
        {"messages": [OK, said("assistant", USE)], "model": "claude-3-opus"},
        "messages.1: `tool_use` ids were found without",
    ),
    ({"messages": [OK, said("assistant", USE), OK]}, "`tool_result` blocks immediately after: toolu_1"),
    (
        {"messages": [OK, said("assistant", USE), said("user", text(), RESULT)]},
        "without `tool_result` blocks immediately",
    ),
    ({"messages": [said("user", RESULT)]}, "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"),
    (
        {"messages": [OK, said("assistant", USE), said("user", RESULT, RESULT)]},
        "each tool_use must have a single result",
    ),
    ({"messages": [OK, said("assistant", USE, USE), said("user", RESULT)]}, "`tool_use` ids must be unique"),
    (
        {"messages": [OK, said("assistant", {**USE, "input": "{}"})]},
        "tool_use.input: Input should be a valid dictionary",
    ),
    ({"messages": [OK, said("assistant", {**USE, "id": "a b"})]}, "tool_use.id: String should match pattern"),
    ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
    ({"tools": [{"name": "bash"}]}, "tools.0.custom.input_schema: Field required"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.custom.name: String should match pattern"),
    ({"tool_choice": {"type": "auto"}}, "tool_choice: may only be specified while providing tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "Tool 'x' not found in provided tools"),
    ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "greater than or equal to 1024"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, "`max_tokens` must be greater than"),
    ({"thinking": {"type": "maybe"}}, "thinking: Input tag 'maybe'"),
    ({"messages": [said("user", *[text(str(n), cache_control=MARK) for n in range(5)])]}, "A maximum of 4 blocks"),
    (
        {"messages": [said("user", text(cache_control={"type": "ephemeral", "ttl": "2h"}))]},
        "Input should be '5m' or '1h'",
    ),
    (
        {"messages": [said("user", text("a", cache_control=MARK), text("b", cache_control={**MARK, "ttl": "1h"}))]},
        "must not come after a ttl='5m'",
    ),
    (
        {"tools": [{**TOOL, "defer_loading": True, "cache_control": MARK}]},
        "cannot be set on a tool with `defer_loading`",
    ),
    (
        {"messages": [OK, said("assistant", USE), said("user", {**RESULT, "content": [text(cache_control=MARK)]})]},
        "nested content cannot be cached",
    ),
    (
        {"messages": [OK, said("assistant", {"type": "thinking", "thinking": "x", "signature": "forged"}, text()), OK]},
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
]


@pytest.mark.parametrize(("change", "wording"), ANTHROPIC, ids=[wording[:40] for _, wording in ANTHROPIC])
def test_anthropic_refuses(serve: Serve, change: dict[str, Any], wording: str) -> None:
    server = serve()
    raw = post(server, "/v1/messages", {"model": "claude-opus-5", "max_tokens": 2000, "messages": [OK], **change})
    assert raw.status == 400
    error = raw.json
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert wording in error["error"]["message"]
    assert error["request_id"] == raw.headers["request-id"]
    assert [record.rejected for record in server.requests] == [True]


CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD = {"role": "tool", "tool_call_id": "call_1", "content": "done"}

OPENAI: list[tuple[dict[str, Any], str, str | None]] = [
    ({"colour": "red"}, "Unknown parameter: 'colour'.", "unknown_parameter"),
    ({"messages": []}, "Invalid 'messages': empty array.", "empty_array"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "Invalid value: 'robot'.", "invalid_value"),
    ({"messages": [{"role": "user", "content": None}]}, "expected a string, got null.", None),
    ({"messages": [{**OK, "_anthropic": {}}]}, "Unknown parameter: 'messages[0]._anthropic'.", "unknown_parameter"),
    (
        {"messages": [said("user", text(cache_control=MARK))]},
        "messages[0].content[0].cache_control",
        "unknown_parameter",
    ),
    ({"messages": [said("user", {"type": "thinking", "thinking": ""})]}, "Invalid value: 'thinking'.", "invalid_value"),
    ({"messages": [OK, CALLED]}, "did not have response messages: call_1", None),
    ({"messages": [OK, CALLED, OK, TOLD]}, "did not have response messages: call_1", None),
    ({"messages": [OK, TOLD]}, "must be a response to a preceeding message", None),
    ({"messages": [OK, CALLED, TOLD, TOLD]}, "must be a response to a preceeding message", None),
    ({"messages": [OK, {**CALLED, "tool_calls": []}]}, "expected a string, got null.", None),
    (
        {"messages": [OK, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "bash", "arguments": {}}}]}, TOLD]},
        "expected a string, but got an object instead.",
        "invalid_type",
    ),
    (
        {"messages": [OK, {**CALLED, "tool_calls": [{**CALL, "id": "x" * 41}]}]},
        "string too long",
        "string_above_max_length",
    ),
    ({"tools": []}, "Invalid 'tools': empty array.", "empty_array"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "does not match pattern", "invalid_value"),
    ({"tool_choice": "auto"}, "only allowed when 'tools' are specified", None),
    ({"max_tokens": 9}, "Use 'max_completion_tokens' instead.", "unsupported_parameter"),
    ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled", None),
]


@pytest.mark.parametrize(("change", "wording", "code"), OPENAI, ids=[wording[:40] for _, wording, _ in OPENAI])
def test_openai_refuses(serve: Serve, change: dict[str, Any], wording: str, code: str | None) -> None:
    raw = post(serve(), "/v1/chat/completions", {"model": "gpt-5", "messages": [OK], **change})
    assert raw.status == 400
    error = raw.json["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert wording in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)


# -- thinking ---------------------------------------------------------------------------------------------------------


def thought(server: ModelServer, model: str = "claude-opus-4-5") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A body with thinking on, and the messages of a first step with a call and its result."""
    body = {"model": model, "max_tokens": 3000, "tools": [TOOL], "thinking": {"type": "enabled", "budget_tokens": 1024}}
    content = post(server, "/v1/messages", {**body, "messages": [OK]}).json["content"]
    result = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "done"}
    return body, [OK, said("assistant", *content), said("user", result)]


@pytest.fixture
def thinker(serve: Serve) -> ModelServer:
    return serve(
        lambda ask: Answer("ok") if ask.results else Answer("Well.", [Call("bash", {})], thinking="Let me see.")
    )


def test_thinking_that_was_changed_left_out_or_moved_is_refused(thinker: ModelServer) -> None:
    body, (first, step, result) = thought(thinker)
    block, words, call = step["content"]
    for content, wording in (
        ([{**block, "thinking": "Let me see!"}, words, call], "cannot be modified"),
        ([words, call], "must start with a thinking block"),
        ([words, block, call], "Expected `thinking` or `redacted_thinking`, but found `text`"),
        ([{**block, "cache_control": MARK}, words, call], "thinking.cache_control: Extra inputs"),
    ):
        raw = post(thinker, "/v1/messages", {**body, "messages": [first, said("assistant", *content), result]})
        assert wording in raw.json["error"]["message"]


# -- the window -------------------------------------------------------------------------------------------------------

LONG = {"role": "user", "content": "word " * 60}


@pytest.mark.parametrize(
    ("most", "wording"),
    [(50, "prompt is too long: 64 tokens > 60 maximum"), (30, "exceed context limit: 34 + 30 > 60")],
)
def test_anthropic_refuses_what_exceeds_the_window(serve: Serve, most: int, wording: str) -> None:
    long = LONG if most == 50 else {"role": "user", "content": "word " * 30}
    raw = post(serve(window=60), "/v1/messages", {"model": "claude-opus-5", "max_tokens": most, "messages": [long]})
    assert wording in raw.json["error"]["message"]


@pytest.mark.parametrize(
    ("dialect", "wording"),
    [
        ("openai", "maximum context length is 60 tokens. However, your messages resulted in 64 tokens"),
        ("openrouter", "This endpoint's maximum context length is 60 tokens. However, you requested about 64 tokens"),
        ("vllm", "your request has 64 input tokens"),
        ("llama.cpp", "request (64 tokens) exceeds the available context size (60 tokens)"),
    ],
)
def test_each_maker_words_an_overflow_its_own_way(serve: Serve, dialect: Any, wording: str) -> None:
    raw = post(serve(window=60, dialect=dialect), "/v1/chat/completions", {"model": "m", "messages": [LONG]})
    assert raw.status == 400
    assert wording in raw.json["error"]["message"]
    if dialect == "llama.cpp":
        assert (raw.json["error"]["n_prompt_tokens"], raw.json["error"]["n_ctx"]) == (64, 60)
    if dialect == "openai":
        assert raw.json["error"]["code"] == "context_length_exceeded"
