"""Sessions of Hermes Agent: rows of its ``state.db``.

A compaction there ends a session and begins a child, as here; a child of such an end goes on with the conversation of
its parent. Other children are sub-agents or forks. Messages that a person took back (``active`` is 0) are left out;
those that a compaction left behind (``compacted``) are kept, and the summary that stands for them is left out where
they are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from everlong.model import SUMMARY_STARTS, Message, seconds_of
from everlong.wire.logs import (
    LogFacts,
    LogRun,
    LogUsage,
    count_of,
    dicts_in,
    dollars_of,
    json_in,
    result_message,
    text_at,
    usage_at,
    value_at,
)

__all__ = ["COMPRESSION", "join_lineage", "read_hermes_session"]

COMPRESSION = "compression"
"""The end reason of a session that a compaction ended."""


def read_hermes_session(session: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> LogRun:
    """Return a session as a conversation of its own, with the system prompt first.

    Args:
        session: A row of ``sessions``, by the names of its columns.
        rows: Its rows of ``messages`` in order.
    """
    is_agent = session.get("source") == "subagent" or value_at(json_in(session.get("model_config")), "_delegate_from")
    ident = text_at(session, "id")
    facts = LogFacts(
        "hermes",
        ident,
        agent=ident if is_agent else None,
        works_for=text_at(session, "parent_session_id"),
        title=text_at(session, "title", "display_name"),
        folder=text_at(session, "cwd"),
        git_branch=text_at(session, "git_branch"),
        model=text_at(session, "model"),
        started=seconds_of(session.get("started_at")),
        ended=seconds_of(session.get("ended_at")),
        end_reason=text_at(session, "end_reason"),
        user=text_at(session, "user_id"),
    )
    cost = dollars_of(session.get("actual_cost_usd")) or dollars_of(session.get("estimated_cost_usd"))
    used = usage_at(session, **{name: name for name in LogUsage._fields[:5]})
    run = LogRun(facts, usage=used._replace(api_calls=count_of(session.get("api_call_count")), cost=cost))
    prompt = text_at(session, "system_prompt")
    if prompt is not None:
        run.say(facts.started, {"role": "system", "content": prompt})
    for row in rows:
        if row.get("active") != 0 or row.get("compacted"):
            run.say(seconds_of(row.get("timestamp")), *_messages(row))
    return run


def join_lineage(parts: Sequence[LogRun]) -> LogRun:
    """Return the sessions of a lineage, in order, as one conversation.

    A compaction begins a child with the system prompt, a summary, and copies of messages that it kept.
    """
    whole = replace(parts[0], messages=[], times=[], usage=LogUsage().plus(*(part.usage for part in parts)))
    said: list[str] = []
    for number, part in enumerate(parts):
        keys = [_key(message) for message in part.messages]
        first = _first_new(part.messages, keys, said) if said else 0
        for key, message, time in list(zip(keys, part.messages, part.times, strict=True))[first:]:
            if message["role"] != "system":
                said.append(key)
            elif number:
                continue
            whole.messages.append(message)
            whole.times.append(time)
    return whole


def _first_new(messages: Sequence[Message], keys: Sequence[str], before: Sequence[str]) -> int:
    """Return the place of the first message of a child that its parents do not have."""
    start = next((at + 1 for at, one in enumerate(messages) if _is_summary(one)), 0)
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


def _is_summary(message: Message) -> bool:
    """Return whether a message is a summary that a compaction of Hermes, or of this host, wrote."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    return text.lstrip().startswith(SUMMARY_STARTS)


def _messages(row: Mapping[str, Any]) -> list[Message]:
    role = row.get("role")
    content: Any = row.get("content")
    if isinstance(content, str) and content.startswith("\x00json:"):  # parts
        content = json_in(content.removeprefix("\x00json:"))
    if role == "tool":
        name = text_at(row, "tool_name")
        answer = result_message(row.get("tool_call_id"), content or "")
        return [{**answer, "name": name} if name else answer]
    if role == "assistant":
        thought = text_at(row, "reasoning_content", "reasoning")
        if thought is not None:
            said = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
            content = [{"type": "thinking", "thinking": thought}, *said]
        calls = dicts_in(json_in(row.get("tool_calls")))
        message: Message = {"role": "assistant", "content": content or None}
        return [{**message, "tool_calls": calls} if calls else message] if content or calls else []
    return [{"role": role, "content": content}] if isinstance(role, str) and role and content else []
