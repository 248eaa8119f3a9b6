"""Requests for the caching tests: in every layout, with the oddities that clients send."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from everlong.testing.strategies import conversations
from everlong.wire import sendable, to_anthropic
from tests.wild import wild_conversations

Body = dict[str, Any]
MODEL = "claude-sonnet-4-5"


def long_text(word: str, tokens: int) -> str:
    return (f"{word} " * (4 * tokens))[: 4 * tokens]


def system(tokens: int = 2_000) -> Body:
    return {"role": "system", "content": long_text("rule", tokens)}


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def reply(text: str) -> Body:
    return {"role": "assistant", "content": text}


def step(number: int, width: int = 1, tokens: int = 100) -> list[Body]:
    """An assistant message with so many calls, and their results."""
    ids = [f"call_{number}_{at}" for at in range(width)]
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    results = [{"role": "tool", "tool_call_id": one, "content": long_text(one, tokens)} for one in ids]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def tool_schemas(*, deferred: bool = False) -> list[Body]:
    tools: list[Body] = [
        {"name": f"tool_{at}", "description": long_text("tool", 50), "input_schema": {}} for at in range(3)
    ]
    return [*tools[:2], {**tools[2], "defer_loading": True}] if deferred else tools


def markers_in(value: Any) -> list[str]:
    """The time to live of every marker anywhere in a request, in the order of its parts."""
    if isinstance(value, list):
        return [found for entry in value for found in markers_in(entry)]
    if not isinstance(value, dict):
        return []
    inner: list[str] = []
    for key in ("tools", "system", "messages"):
        inner += markers_in(value.get(key))
    for key in ("content", "tool_calls"):
        inner += markers_in(value.get(key))
    own = value.get("cache_control")
    return [*inner, own.get("ttl", "5m")] if isinstance(own, dict) else inner


def bodies() -> st.SearchStrategy[tuple[str, Body]]:
    """A provider's name and a request for it."""

    def openai(messages: list[Body]) -> Body:
        return {"messages": messages, "tools": tool_schemas()}

    def anthropic(messages: list[Body]) -> Body:
        prompt, listed = to_anthropic(messages)
        body: Body = {"messages": sendable(listed), "tools": tool_schemas(deferred=True)}
        return body if prompt is None else {**body, "system": prompt}

    plain = conversations()
    return st.one_of(
        plain.map(lambda messages: ("anthropic", anthropic(messages))),
        plain.map(lambda messages: ("anthropic", openai(messages))),
        plain.map(lambda messages: ("openrouter", openai(messages))),
        plain.map(lambda messages: ("bedrock", anthropic(messages))),
        wild_conversations().map(lambda messages: ("anthropic", openai(messages))),
        wild_conversations().map(lambda messages: ("openrouter", openai(messages))),
    )
