"""Sessions of opencode: rows of its database, each with a JSON value.

A session has messages, a message has parts. A step of the model (text, reasoning, calls with their results) is one
message there; here it is a message with calls and the messages that answer them. What it compacted stands in the
database itself, so its summaries are left out. Messages behind the place to which a person went back (``revert``) are
no part of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everlong.model import Message, added_parts, seconds_of
from everlong.wire.logs import (
    LogFacts,
    LogRun,
    answer_message,
    call_of,
    dicts_in,
    result_message,
    text_at,
    usage_at,
    value_at,
)

__all__ = ["OpencodeMessage", "read_opencode_session"]

_USAGE = {
    "input_tokens": "tokens.input",
    "output_tokens": "tokens.output",
    "cache_read_tokens": "tokens.cache.read",
    "cache_write_tokens": "tokens.cache.write",
    "reasoning_tokens": "tokens.reasoning",
    "cost": "cost",
}

OpencodeMessage = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""A message and its parts, each as the JSON that opencode keeps, with its ``id``."""


def read_opencode_session(session: Mapping[str, Any], messages: Iterable[OpencodeMessage]) -> LogRun:
    """Return the conversation of a session.

    Args:
        session: The session, with ``id``, ``parentID``, ``directory``, ``title``, ``version``, ``time`` and ``revert``.
        messages: Its messages in order, each with its parts in order.
    """
    ident, parent = text_at(session, "id"), text_at(session, "parentID")
    title = text_at(session, "title")
    is_date = title is not None and title.startswith(("New session - ", "Child session - "))
    run = LogRun(
        LogFacts(
            "opencode",
            ident,
            agent=ident if parent is not None else None,
            works_for=parent,
            title=None if is_date else title,
            folder=text_at(session, "directory"),
            version=text_at(session, "version"),
            started=seconds_of(value_at(session, "time.created")),
        )
    )
    until = text_at(session, "revert.messageID")
    for message, parts in messages:
        if until is not None and message.get("id") == until:
            break
        time = seconds_of(value_at(message, "time.created"))
        if message.get("role") == "user":
            run.say(time, *_question(parts))
            continue
        run.learn(model=text_at(message, "modelID"))
        used = usage_at(message, **_USAGE)
        run.usage = run.usage.plus(used._replace(output_tokens=used.output_tokens + used.reasoning_tokens))
        if message.get("summary") is not True:
            run.say(time, *_steps(parts))
    return run


def _question(parts: Sequence[Mapping[str, Any]]) -> list[Message]:
    made: list[dict[str, Any]] = []
    for part in parts:
        kind = part.get("type")
        if kind == "text" and part.get("text") and not part.get("ignored"):
            said = [{"type": "text", "text": part["text"]}]
            made += added_parts(said) if part.get("synthetic") else said
        elif kind == "file" and isinstance(part.get("url"), str):
            made.append(_file(part))
    if not made:
        return []
    is_plain = len(made) == 1 and made[0].keys() == {"type", "text"}
    return [{"role": "user", "content": made[0]["text"] if is_plain else made}]


def _file(part: Mapping[str, Any]) -> dict[str, Any]:
    url, kind = part["url"], str(part.get("mime") or "")
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if url.startswith("data:"):
        return {"type": "file", "file": {"filename": str(part.get("filename") or "file"), "file_data": url}}
    return {"type": "text", "text": f"[{part.get('filename') or url}]({url})"}


def _steps(parts: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of one answer: a new one begins with every step after calls."""
    made: list[Message] = []
    said: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    for part in parts:
        kind = part.get("type")
        if kind == "text" and part.get("text"):
            said.append({"type": "text", "text": part["text"]})
        elif kind == "reasoning":
            said.append({"type": "thinking", "thinking": str(part.get("text") or "")})
        elif kind == "tool":
            calls.append(call_of(part.get("callID") or part.get("id"), part.get("tool"), value_at(part, "state.input")))
            results += _results(part)
        elif kind == "step-start" and calls:
            made += [*answer_message(said, calls), *results]
            said, calls, results = [], [], []
    return [*made, *answer_message(said, calls), *results]


def _results(part: Mapping[str, Any]) -> list[Message]:
    ident, status = part.get("callID") or part.get("id"), value_at(part, "state.status")
    if status == "completed":
        content: Any = str(value_at(part, "state.output") or "")
        pictures = [_file(one) for one in dicts_in(value_at(part, "state.attachments")) if text_at(one, "url")]
        if pictures:
            content = [{"type": "text", "text": content}, *pictures]
        return [result_message(ident, content)]
    if status == "error":
        words = str(value_at(part, "state.error") or "[Tool execution was interrupted]")
        return [result_message(ident, words, is_error=True)]
    return []
