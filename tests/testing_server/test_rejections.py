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
    ({"messages": [said("user", text(""))]}, "messages: text content blocks must be non-empty"),
    ({"messages": [{**OK, "name": "Ada"}]}, "messages.0.name: Extra inputs are not permitted"),
    ({"messages": [OK, said("assistant", USE), OK]}, "`tool_result` blocks immediately after: toolu_1"),
    ({"messages": [said("user", RESULT)]}, "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"),
    ({"messages": [said("user", *[text(str(n), cache_control=MARK) for n in range(5)])]}, "A maximum of 4 blocks"),
    (
        {"messages": [said("user", text("a", cache_control=MARK), text("b", cache_control={**MARK, "ttl": "1h"}))]},
        "must not come after a ttl='5m'",
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
    ({"messages": [{**OK, "_anthropic": {}}]}, "Unknown parameter: 'messages[0]._anthropic'.", "unknown_parameter"),
    (
        {"messages": [said("user", text(cache_control=MARK))]},
        "messages[0].content[0].cache_control",
        "unknown_parameter",
    ),
    ({"messages": [said("user", {"type": "thinking", "thinking": ""})]}, "Invalid value: 'thinking'.", "invalid_value"),
    ({"messages": [OK, CALLED]}, "did not have response messages: call_1", None),
    ({"messages": [OK, TOLD]}, "must be a response to a preceeding message", None),
    ({"max_tokens": 9}, "Use 'max_completion_tokens' instead.", "unsupported_parameter"),
]


@pytest.mark.parametrize(("change", "wording", "code"), OPENAI, ids=[wording[:40] for _, wording, _ in OPENAI])
def test_openai_refuses(serve: Serve, change: dict[str, Any], wording: str, code: str | None) -> None:
    raw = post(serve(), "/v1/chat/completions", {"model": "gpt-5", "messages": [OK], **change})
    assert raw.status == 400
    error = raw.json["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert wording in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)


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
