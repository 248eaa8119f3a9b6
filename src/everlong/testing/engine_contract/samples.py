"""Fixed conversations on which every engine is tried, besides the generated ones: long, odd and broken."""

from __future__ import annotations

import json
from typing import Any

from everlong.model import Message

__all__ = ["BROKEN", "ODD", "REQUEST", "SYSTEM", "call", "long_conversation", "long_errand", "result", "said"]

SYSTEM: Message = {"role": "system", "content": "You are a careful agent. Answer in English; never touch prod.db."}
REQUEST = "Now add a test for the importer, and tell me which port it uses."


def said(role: str, content: Any) -> Message:
    """Return one message."""
    return {"role": role, "content": content}


def call(*idents: str, name: str = "read_file", content: str | None = None) -> Message:
    """Return an assistant message with a call for each id."""
    body = {"name": name, "arguments": json.dumps({"path": "src/importer.py"})}
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": ident, "type": "function", "function": body} for ident in idents],
    }


def result(ident: str, content: str = "ok") -> Message:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": ident, "content": content}


def long_conversation(context_length: int, times: float = 4.0) -> list[Message]:
    """Return a session of about ``times`` windows: requests, calls, results, answers, a last request."""
    messages = [
        SYSTEM,
        said("user", "Fix the importer. The port is 8437."),
        said("assistant", "I start with it."),
    ]
    written, number = 0, 0
    while written < context_length * times:
        number += 1
        lines = (4, 30, 90)[number % 3]
        output = "".join(f"src/importer.py:{n}: row {number * 31 + n} was read twice\n" for n in range(lines))
        messages += [call(f"call_{number}", content=f"Step {number}."), result(f"call_{number}", output)]
        written += lines * 14 + 40
        if number % 7 == 0:
            messages += [
                said("assistant", f"Step {number} is done."),
                said("user", f"Good. Go on with step {number + 1}."),
            ]
    return [*messages, said("assistant", "The importer works."), said("user", REQUEST)]


def long_errand(context_length: int, times: float = 2.0) -> list[Message]:
    """Return one request, and an agent's work on it alone for ``times`` windows."""
    messages, number = [SYSTEM, said("user", "Hello."), said("assistant", "Hello!"), said("user", REQUEST)], 0
    while number * 300 < context_length * times:
        number += 1
        output = "".join(f"tests/test_importer.py:{n}: assert {number * 17 + n} == 8437\n" for n in range(20))
        messages += [call(f"call_{number}", content=f"Step {number}."), result(f"call_{number}", output)]
    return messages


_TALK = [SYSTEM, said("user", "Fix the importer."), said("assistant", "I look at it.")]
_HUGE = "x = [0, 1, 2, 3]  # 数据\n" * 40_000

ODD: dict[str, list[Message]] = {
    "an empty list": [],
    "one user message": [said("user", "hello")],
    "one system message": [SYSTEM],
    "one assistant message": [said("assistant", "hello")],
    "a call that has no result yet": [*_TALK, call("a", "b")],
    "two calls of which one has its result": [*_TALK, call("a", "b"), result("b")],
    "two user messages in a row": [*_TALK, said("user", "And?"), said("user", "Are you there?")],
    "content that is null or empty": [*_TALK, said("assistant", None), said("user", ""), said("assistant", "")],
    "content in parts, with a picture": [
        *_TALK,
        said(
            "user",
            [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        ),
        said("assistant", [{"type": "text", "text": "A chart."}]),
        said("user", "Thanks."),
    ],
    "texts in many scripts": [
        *_TALK,
        said("user", "请修复登录页面 🚀👩‍👩‍👧 שלום"),
        said("assistant", "Привет"),
        said("user", "e\u0301\u202e ok"),
    ],
    "half of a surrogate pair, as broken clients send it": [
        *_TALK,
        call("a"),
        result("a", "ok\udfff"),
        said("user", "\ud800"),
    ],
    "an old tool result of a million characters": [
        *_TALK,
        call("a"),
        result("a", _HUGE),
        said("assistant", "That was long."),
        *(said(role, f"{role} {n}") for n in range(30) for role in ("user", "assistant")),
        said("user", REQUEST),
    ],
    "a newest tool result of a million characters": [*_TALK, said("user", REQUEST), call("a"), result("a", _HUGE)],
    "a developer message in between": [*_TALK, said("developer", "Be brief."), said("user", "And?")],
    "fields that only one client knows": [*_TALK, {**said("user", "And?"), "x_client": {"seen": [1, None]}}],
}
"""Valid lists that real clients send."""

BROKEN: dict[str, list[Message]] = {
    "a result without a call": [*_TALK, result("gone"), said("user", "And?")],
    "a call without a result in the middle": [*_TALK, call("a", "b"), result("a"), said("user", "And?")],
    "a result before its call": [*_TALK, result("a"), call("a"), said("user", "And?")],
    "a result at the very beginning": [result("a"), *_TALK],
    "a result that comes after other messages": [*_TALK, call("a"), said("user", "And?"), result("a")],
    "the same result twice": [*_TALK, call("a"), result("a"), result("a"), said("user", "And?")],
}
"""Lists whose tool calls do not fit together, as clients leave them after a crash."""
