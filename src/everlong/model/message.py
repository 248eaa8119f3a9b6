"""Chat messages in the OpenAI format, read safely.

A message is the plain ``dict`` that the OpenAI SDK sends and receives, so that any client's list can be passed in and
handed on as it is. This module reads such dicts and checks their outer shape; it does not know about tokens,
compaction or any provider's client library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from everlong.errors import MessageError

__all__ = ["CLEARED_RESULT", "SUMMARY_STARTS"]

Message: TypeAlias = dict[str, Any]
"""One chat message: ``role``, ``content`` and, by role, ``tool_calls``, ``tool_call_id``, ``name`` and others.

>>> asked: Message = {"role": "user", "content": "Which port?"}
>>> asked["role"]
'user'
"""

SYSTEM_ROLES = frozenset({"system", "developer"})
"""Roles that instruct the model rather than take part in the conversation."""

EPHEMERAL = "_ephemeral"
"""A private key that a host sets on a message or part for one request only; it is not sent."""

ADDED = "_added"
"""A private key on a part of a user message whose words a client, plugin or memory wrote; it is not sent."""


class ToolCall(NamedTuple):
    """One call of an assistant message; ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


def calls_of(message: Message) -> list[ToolCall]:
    """Return the tool calls of a message, in order; malformed entries are read as far as possible."""
    raw = message.get("tool_calls")
    if not isinstance(raw, list):
        return []
    calls: list[ToolCall] = []
    for entry in raw:
        if not isinstance(entry, dict):
            continue
        # Besides "function", the API has "custom" tools, whose one free-text argument is called "input".
        body = entry.get("function") or entry.get("custom")
        if not isinstance(body, dict):
            body = {}
        arguments = body.get("arguments", body.get("input"))
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
        calls.append(ToolCall(str(entry.get("id") or ""), str(body.get("name") or ""), arguments))
    return calls


def is_system(message: Message) -> bool:
    """Return whether a message instructs the model (``system`` or ``developer``)."""
    role = message.get("role")
    return isinstance(role, str) and role in SYSTEM_ROLES


def leading_system_count(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the start of a list."""
    count = 0
    while count < len(messages) and is_system(messages[count]):
        count += 1
    return count


def checked_messages(value: Iterable[Any]) -> list[Message]:
    """Return the messages as a new list; raise `MessageError` for the first entry that is not a message."""
    messages = list_messages(value)
    check_messages(messages)
    return messages


def list_messages(value: Iterable[Any]) -> list[Message]:
    """Return the entries as a new list, unchecked; raise `MessageError` for what is no list."""
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise MessageError(f"expected a list of messages, got {type(value).__name__}")
    return list(value)


def check_messages(messages: Sequence[Any], first: int = 0) -> None:
    """Raise `MessageError` for the first entry that is not a message; it counts from the number of the first one."""
    for index, message in enumerate(messages, first):
        if not isinstance(message, dict):
            has_dump = hasattr(message, "model_dump")
            hint = "; use its .model_dump(exclude_none=True)" if has_dump else ""
            raise MessageError(f"expected a dict with a role, got {type(message).__name__}{hint}", index)
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise MessageError(f"'role' must be a non-empty string, got {role!r}", index)
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            raise MessageError(
                f"'content' must be a string, a list of parts or null, got {type(content).__name__}", index
            )


SUMMARY_STARTS = ("[CONTEXT COMPACTION — REFERENCE ONLY]", "[CONTEXT COMPACTION]", "[CONTEXT SUMMARY]:")
"""The beginnings of a compaction's summary, of this version and of older ones."""

CLEARED_RESULT = "[Old tool output cleared to save context space]"
"""The text that replaces an old tool result."""

_LATEST = 1e11
"""The year 5138. Later moments have no date in every time zone, and numbers above are milliseconds."""


def seconds_of(value: object) -> float | None:
    """Return a moment in seconds since 1970, from a text or from seconds or milliseconds; None for anything else."""
    seconds = 0.0
    if isinstance(value, str):
        with suppress(ValueError, OverflowError, OSError):
            seconds = datetime.fromisoformat(value).timestamp()
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1_000 * _LATEST:
        seconds = value / 1_000 if value > _LATEST else float(value)
    return seconds if 0 < seconds <= _LATEST else None
