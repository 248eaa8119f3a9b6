"""Sessions of opencode: rows of its database, each with a JSON value.

A session has messages, a message has parts. A step of the model (text, reasoning, calls with their results) is one
message there; here it is a message with calls and the messages that answer them. What it compacted stands in the
database itself, so its summaries are left out. Messages behind the place to which a person went back (``revert``) are
no part of the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everlong.model import Message, added_parts, seconds_of
from everlong.wire.logs.log import LogFacts, LogRun, LogUsage, count_of, dicts_in, dollars_of, text_field

__all__ = ["OpencodeMessage", "read_opencode_session"]

CLIENT = "opencode"
_INTERRUPTED = "[Tool execution was interrupted]"

OpencodeMessage = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""A message and its parts, each as the JSON that opencode keeps, with its ``id``."""


def read_opencode_session(session: Mapping[str, Any], messages: Iterable[OpencodeMessage]) -> LogRun:
    """Return the conversation of a session.

    Args:
        session: The session, with ``id``, ``parentID``, ``directory``, ``title``, ``version``, ``time`` and ``revert``.
        messages: Its messages in order, each with its parts in order.
    """
    ident, parent = text_field(session, "id"), text_field(session, "parentID")
    times = session.get("time")
    revert = session.get("revert")
    until = text_field(revert, "messageID") if isinstance(revert, dict) else None
    run = LogRun(LogFacts(CLIENT, ident), is_total=True)
    model, agent = None, None
    for told, parts in messages:
        if until is not None and told.get("id") == until:
            break
        at = told.get("time")
        time = seconds_of(at.get("created")) if isinstance(at, dict) else None
        if told.get("role") == "user":
            made = _asked(parts)
        else:
            model = text_field(told, "modelID") or model
            agent = text_field(told, "agent", "mode") or agent
            run.usage = run.usage.plus(_usage(told))
            made = [] if told.get("summary") is True else _steps(parts)
        run.messages += made
        run.times += [time] * len(made)
    run.facts = LogFacts(
        CLIENT,
        ident,
        agent=ident if parent is not None else None,
        works_for=parent,
        title=_title(text_field(session, "title")),
        folder=text_field(session, "directory"),
        model=model,
        version=text_field(session, "version"),
        started=seconds_of(times.get("created")) if isinstance(times, dict) else None,
    )
    return run


def _title(title: str | None) -> str | None:
    """Return the title; None for the one that says nothing but the date."""
    return None if title is None or title.startswith(("New session - ", "Child session - ")) else title


def _usage(told: Mapping[str, Any]) -> LogUsage:
    tokens = told.get("tokens")
    if not isinstance(tokens, dict):
        return LogUsage()
    cache = tokens.get("cache")
    kept: Mapping[str, Any] = cache if isinstance(cache, dict) else {}
    thought = count_of(tokens.get("reasoning"))
    counts = (count_of(tokens.get("input")), count_of(tokens.get("output")) + thought)
    usage = LogUsage(*counts, count_of(kept.get("read")), count_of(kept.get("write")), thought)
    return usage._replace(api_calls=1, cost=dollars_of(told.get("cost"))) if usage.is_told else usage


def _asked(parts: Sequence[Mapping[str, Any]]) -> list[Message]:
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

    def end() -> None:
        if said or calls:
            is_plain = len(said) == 1 and said[0]["type"] == "text"
            message: Message = {"role": "assistant", "content": said[0]["text"] if is_plain else list(said) or None}
            made.append({**message, "tool_calls": list(calls)} if calls else message)
            made.extend(results)
        said.clear()
        calls.clear()
        results.clear()

    for part in parts:
        kind = part.get("type")
        if kind == "step-start" and calls:
            end()
        elif kind == "text" and part.get("text"):
            said.append({"type": "text", "text": part["text"]})
        elif kind == "reasoning":
            said.append({"type": "thinking", "thinking": str(part.get("text") or "")})
        elif kind == "tool":
            call, result = _call(part)
            calls.append(call)
            if result is not None:
                results.append(result)
    end()
    return made


def _call(part: Mapping[str, Any]) -> tuple[dict[str, Any], Message | None]:
    told = part.get("state")
    state: Mapping[str, Any] = told if isinstance(told, dict) else {}
    ident = str(part.get("callID") or part.get("id") or "")
    arguments = json.dumps(state.get("input") or {}, ensure_ascii=False)
    call = {
        "id": ident,
        "type": "function",
        "function": {"name": str(part.get("tool") or ""), "arguments": arguments},
    }
    status = state.get("status")
    if status == "completed":
        content: Any = str(state.get("output") or "")
        pictures = [_file(one) for one in dicts_in(state.get("attachments")) if text_field(one, "url")]
        if pictures:
            content = [{"type": "text", "text": content}, *pictures]
        return call, {"role": "tool", "tool_call_id": ident, "content": content}
    if status == "error":
        words = str(state.get("error") or _INTERRUPTED)
        return call, {"role": "tool", "tool_call_id": ident, "content": words, "is_error": True}
    return call, None
