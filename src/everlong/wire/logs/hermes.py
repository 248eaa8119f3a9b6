"""Sessions of Hermes Agent: rows of its ``state.db``.

A compaction there ends a session and begins a child, as here; a child of such an end goes on with the conversation of
its parent. Other children are sub-agents or forks. Messages that a person took back (``active`` is 0) are left out;
those that a compaction left behind (``compacted``) are kept, and the summary that stands for them is left out where
they are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everlong.model import SUMMARY_STARTS, Message, seconds_of
from everlong.wire.logs.log import LogFacts, LogRun, LogUsage, count_of, dollars_of, text_field

__all__ = ["COMPRESSION", "is_summary", "join_lineage", "read_hermes_session"]

CLIENT = "hermes"
COMPRESSION = "compression"
"""The end reason of a session that a compaction ended."""


def read_hermes_session(session: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> LogRun:
    """Return a session as a conversation of its own, with the system prompt first.

    Args:
        session: A row of ``sessions``, by the names of its columns.
        rows: Its rows of ``messages`` in order.
    """
    config = _json(session.get("model_config"))
    is_agent = session.get("source") == "subagent" or (isinstance(config, dict) and "_delegate_from" in config)
    ident, parent = text_field(session, "id"), text_field(session, "parent_session_id")
    facts = LogFacts(
        CLIENT,
        ident,
        agent=ident if is_agent else None,
        works_for=parent,
        title=text_field(session, "title", "display_name"),
        folder=text_field(session, "cwd"),
        git_branch=text_field(session, "git_branch"),
        model=text_field(session, "model"),
        started=seconds_of(session.get("started_at")),
        ended=seconds_of(session.get("ended_at")),
        end_reason=text_field(session, "end_reason"),
        user=text_field(session, "user_id"),
    )
    cost = dollars_of(session.get("actual_cost_usd")) or dollars_of(session.get("estimated_cost_usd"))
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    counts = {name: count_of(session.get(name)) for name in names}
    usage = LogUsage(**counts, api_calls=count_of(session.get("api_call_count")), cost=cost)
    run = LogRun(facts, usage=usage, is_total=True)
    prompt = text_field(session, "system_prompt")
    if prompt is not None:
        run.messages.append({"role": "system", "content": prompt})
        run.times.append(facts.started)
    for row in rows:
        if row.get("active") == 0 and not row.get("compacted"):
            continue
        message = _message(row)
        if message is not None:
            run.messages.append(message)
            run.times.append(seconds_of(row.get("timestamp")))
    return run


def join_lineage(parts: Sequence[LogRun]) -> list[int]:
    """Return for each part of a lineage the place of its first new message; those before it repeat the parts before.

    A compaction begins a child with the system prompt, a summary, and copies of messages that it kept.
    """
    places: list[int] = []
    said: list[str] = []
    for part in parts:
        keys = [_key(message) for message in part.messages]
        first = 0 if not said else _first_new(part.messages, keys, said)
        places.append(first)
        said += [key for key, one in zip(keys[first:], part.messages[first:], strict=True) if one["role"] != "system"]
    return places


def _first_new(messages: Sequence[Message], keys: Sequence[str], before: Sequence[str]) -> int:
    """Return the place of the first message of a child that its parents do not have."""
    start = next((at + 1 for at, one in enumerate(messages) if is_summary(one)), 0)
    if not start:  # nothing tells where the summary is: the child begins with what it has from its parents, if anything
        known = set(before)
        while start < len(keys) and (messages[start]["role"] == "system" or keys[start] in known):
            start += 1
        return start
    for length in range(min(len(keys) - start, len(before)), 0, -1):
        if list(before[-length:]) == list(keys[start : start + length]):
            return start + length
    return start


def _key(message: Message) -> str:
    told = {name: message.get(name) for name in ("role", "content", "tool_calls", "tool_call_id")}
    return json.dumps(told, sort_keys=True, ensure_ascii=False, default=str)


def is_summary(message: Message) -> bool:
    """Return whether a message is a summary that a compaction of Hermes, or of this host, wrote."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    return text.lstrip().startswith(SUMMARY_STARTS)


def _message(row: Mapping[str, Any]) -> Message | None:
    role = row.get("role")
    content = _content(row.get("content"))
    if role == "tool":
        name = text_field(row, "tool_name")
        answer: Message = {"role": "tool", "tool_call_id": str(row.get("tool_call_id") or ""), "content": content or ""}
        return {**answer, "name": name} if name else answer
    if role == "assistant":
        calls = _json(row.get("tool_calls"))
        thought = text_field(row, "reasoning_content", "reasoning")
        if thought is not None:
            said = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
            content = [{"type": "thinking", "thinking": thought}, *said]
        message: Message = {"role": "assistant", "content": content or None}
        if isinstance(calls, list) and calls:
            message["tool_calls"] = [call for call in calls if isinstance(call, dict)]
        return message if message["content"] or "tool_calls" in message else None
    return {"role": role, "content": content} if isinstance(role, str) and role and content else None


def _content(value: object) -> Any:
    """Return content: text, or parts that Hermes keeps as JSON after a NUL character."""
    if isinstance(value, str) and value.startswith("\x00json:"):
        return _json(value.removeprefix("\x00json:"))
    return value if isinstance(value, str) else None


def _json(value: object) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) and value else None
    except ValueError:
        return None
