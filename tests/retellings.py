"""The same conversation as another client, or the same one later, would send it: a Hypothesis strategy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from everlong.model import Message

_REMINDER = {"type": "text", "text": "<system-reminder>The file was changed.</system-reminder>"}
_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
_CHANGES = ("list", "marker", "space", "remind", "think", "empty", "keys", "split", "merge", "wire", "prompt", "same")


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or [])


def _listed(message: Message, extra: dict[str, Any] | None = None, *, first: bool = False) -> Message:
    parts = _parts(message)
    added = [extra] if extra else []
    return {**message, "content": [*added, *parts] if first else [*parts, *added]}


def _marked(message: Message) -> Message:
    parts = _parts(message)
    if not parts:
        return {**message, "cache_control": {"type": "ephemeral"}}
    return {**message, "content": [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]}


def _other_wire(message: Message) -> Message:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": message["content"]}
        return {"role": "user", "content": [{**result, "is_error": False}]}
    if message.get("tool_calls"):
        uses = [
            {"type": "tool_use", "id": c["id"], "name": c["function"]["name"], "input": _arguments(c)}
            for c in message["tool_calls"]
        ]
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**kept, "content": [*_parts(message), *uses]}
    return message


def _arguments(call: dict[str, Any]) -> Any:
    return json.loads(call["function"]["arguments"])


def _split(message: Message) -> list[Message]:
    said = _parts(message)
    if len(said) < 2 or any(part.get("type") != "text" for part in said):
        return [message]
    return [{"role": message["role"], "content": said[:1]}, {**message, "content": said[1:]}]


def _spaced(message: Message) -> Message:
    content = message.get("content")
    return {**message, "content": content + " \n"} if isinstance(content, str) else message


_ANY: dict[str, Callable[[Message], list[Message]]] = {
    "space": lambda message: [_spaced(message)],
    "keys": lambda message: [dict(reversed(message.items()))],
    "wire": lambda message: [_other_wire(message)],
    "same": lambda message: [message],
}
_SPOKEN: dict[str, Callable[[Message], list[Message]]] = {
    "list": lambda message: [_listed(message)],
    "marker": lambda message: [_marked(message)],
    "empty": lambda message: [message, {"role": message["role"], "content": ""}],
    "split": _split,
}
_OF_ROLE: dict[str, dict[str, Callable[[Message], list[Message]]]] = {
    "user": {**_ANY, **_SPOKEN, "remind": lambda message: [_listed(message, _REMINDER)]},
    "assistant": {**_ANY, **_SPOKEN, "think": lambda message: [_listed(message, _THOUGHT, first=True)]},
    "system": {**_ANY, "prompt": lambda message: [{**message, "content": "Today is another day."}]},
}


def _retell(message: Message, change: str) -> list[Message]:
    """Return one message told again, as one or more."""
    return _OF_ROLE.get(message["role"], _ANY).get(change, _ANY["same"])(message)


def _merge_user_messages(messages: list[Message]) -> list[Message]:
    """Return the messages with neighbouring plain user messages merged."""
    result: list[Message] = []
    for message in messages:
        if result and message["role"] == result[-1]["role"] == "user" and set(message) == set(result[-1]):
            result[-1] = {**result[-1], "content": [*_parts(result[-1]), *_parts(message)]}
        else:
            result.append(message)
    return result


@st.composite
def retellings(draw: st.DrawFn, conversation: list[Message]) -> list[Message]:
    """Generate the same conversation as another client, or the same one later, would send it."""
    told: list[Message] = []
    for message in conversation:
        told += _retell(message, draw(st.sampled_from(_CHANGES)))
    return _merge_user_messages(told) if draw(st.booleans()) else told
