"""Hypothesis strategies for conversations in the OpenAI format, as a correct agent would send them.

Needs ``everlong[testing]``. Examples are small and shrink well. Strategies are made once and kept, because making one
costs more than drawing from it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from everlong.model import Message

__all__ = [
    "arguments",
    "contents",
    "conversations",
    "messages",
    "texts",
    "tool_calls",
]

_WORDS = (
    "fix the login test",
    "src/app/main.py",
    "def handler(event):\n    return event['id']",
    "ERROR 2024-05-01 12:00:00 connection refused (10.0.0.7:5432)",
    '{"status": "ok", "items": [1, 2, 3]}',
    "请修复登录页面的错误",
    "Привет, мир",
    "שלום עולם",
    "🚀👩‍👩‍👧‍👦",
    "line one\nline two\nline three",
    "decided to use SQLite because it needs no server",
)
_PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_THINKING: dict[str, Any] = {"type": "thinking", "thinking": "Let me look at the file first.", "signature": "c2ln"}
_TOOLS = ("read_file", "terminal", "search", "write_file")

_some = cache(st.sampled_from)
"""A strategy for one of a tuple's values."""
_whole = cache(st.integers)
"""A strategy for a whole number from one to another."""


@cache
def texts(max_chars: int = 20_000) -> st.SearchStrategy[str]:
    """Generate texts of every kind of up to about ``max_chars`` characters; long ones repeat a short one."""
    repeated = st.builds(_repeat, st.sampled_from(_WORDS), st.integers(1, 300) | st.integers(1, max_chars))
    return st.one_of(st.sampled_from(_WORDS), repeated, st.text(max_size=12))


def _repeat(unit: str, length: int) -> str:
    """Return a text of about so many characters, in lines of one unit."""
    return f"{unit}\n" * (length // (len(unit) + 1) + 1)


@cache
def arguments() -> st.SearchStrategy[str]:
    """Generate the JSON text of a call's arguments."""
    names = st.sampled_from(("path", "command", "query"))
    return st.dictionaries(names, texts(200) | st.integers(), max_size=2).map(
        lambda value: json.dumps(value, ensure_ascii=False)
    )


@cache
def tool_calls() -> st.SearchStrategy[dict[str, Any]]:
    """Generate calls of a function; the caller replaces the id if it must match a result."""
    body = st.fixed_dictionaries({"name": st.sampled_from(_TOOLS), "arguments": arguments()})
    return body.map(lambda value: {"id": "call_0", "type": "function", "function": value})


@cache
def contents() -> st.SearchStrategy[str | list[dict[str, Any]]]:
    """Generate content as a string or as parts, pictures among them."""
    part = texts().map(_text_part) | st.just(_PICTURE)
    return st.one_of(texts(), texts(), st.lists(part, min_size=1, max_size=3))


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@cache
def messages(role: str) -> st.SearchStrategy[Message]:
    """Generate messages of one role, without calls; an assistant's may carry its thinking."""
    content: st.SearchStrategy[Any] = contents() if role == "user" else texts()
    plain: st.SearchStrategy[Message] = st.fixed_dictionaries({"role": st.just(role), "content": content})
    if role != "assistant":
        return plain
    with_field = st.builds(lambda message, thought: {**message, "reasoning_content": thought}, plain, texts(500))
    with_part = plain.map(lambda message: {**message, "content": [_THINKING, _text_part(message["content"])]})
    return st.one_of(plain, plain, with_field, with_part)


def _step(draw: st.DrawFn, number: int) -> list[Message]:
    """Generate an assistant message with up to four parallel calls and their results in any order."""
    count = draw(_whole(0, 4))
    assistant = dict(draw(messages("assistant")))
    if not count:
        return [assistant]
    calls = [{**draw(tool_calls()), "id": f"call_{number}_{place}"} for place in range(count)]
    assistant["tool_calls"] = calls
    if draw(_some((False, True))):
        assistant["content"] = None
    results: list[Message] = [{"role": "tool", "tool_call_id": call["id"], "content": draw(texts())} for call in calls]
    turned = draw(_whole(0, count - 1))
    return [assistant, *results[turned:], *results[:turned]]


@st.composite
def _conversations(draw: st.DrawFn, max_turns: int) -> list[Message]:
    conversation: list[Message] = [draw(messages("system"))] if draw(_some((True, False))) else []
    for number in range(draw(_whole(1, max_turns))):
        kind = draw(_some(("ask", "step", "step", "step", "instruct")))
        if number == 0 or kind == "ask":
            conversation.append(draw(messages("user")))
        elif kind == "instruct":
            conversation.append({"role": "developer", "content": draw(texts(300))})
        conversation.extend(_step(draw, number))
    return conversation


@cache
def conversations(max_turns: int = 9) -> st.SearchStrategy[list[Message]]:
    """Generate well-formed agent conversations: every call answered, roles in order."""
    return _conversations(max_turns)
