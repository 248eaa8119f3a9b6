"""Session logs of pi: a tree of entries, one on each line, linked by ``id`` and ``parentId``.

The conversation is the path to the last entry. Summaries that pi put in the place of earlier messages are left out,
because those messages stand in the file themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everlong.model import Message, added_parts, seconds_of
from everlong.wire.logs import LogFacts, LogRun, call_of, dicts_in, result_message, text_at, usage_at

__all__ = ["is_pi_line", "read_pi"]

_USAGE = {
    "input_tokens": "usage.input",
    "output_tokens": "usage.output",
    "cache_read_tokens": "usage.cacheRead",
    "cache_write_tokens": "usage.cacheWrite",
    "reasoning_tokens": "usage.reasoning",
    "cost": "usage.cost.total",
}


def is_pi_line(entry: Mapping[str, Any]) -> bool:
    """Return whether a first line is that of a session of pi."""
    return entry.get("type") == "session" and isinstance(entry.get("id"), str) and "cwd" in entry


def read_pi(entries: Iterable[Mapping[str, Any]]) -> list[LogRun]:
    """Return the conversation of a session, given its lines."""
    run = LogRun(LogFacts("pi"))
    links: dict[str, tuple[str | None, Mapping[str, Any]]] = {}
    last: str | None = None
    for entry in entries:
        ident, parent = text_at(entry, "id"), text_at(entry, "parentId")
        if entry.get("type") == "session":
            run.learn(**_facts(entry))
        elif ident is not None and ident not in links:
            # A parent that is not in the file: it was said after the newest entry all the same.
            links[ident] = (parent if parent is None or parent in links else last, entry)
            last = ident
            run.usage = run.usage.plus(usage_at(entry.get("message"), **_USAGE))
    path: list[Mapping[str, Any]] = []
    while last is not None:
        last, entry = links[last]
        path.append(entry)
    for entry in reversed(path):
        time = seconds_of(entry.get("timestamp"))
        if entry.get("type") == "message" and isinstance(entry.get("message"), dict):
            message = entry["message"]
            run.learn(model=text_at(message, "model") if message.get("role") == "assistant" else None)
            run.say(seconds_of(message.get("timestamp")) or time, *_messages(message))
        elif entry.get("type") == "custom_message" and entry.get("content"):
            run.say(time, {"role": "user", "content": added_parts(_parts(entry["content"]))})
        elif entry.get("type") == "model_change":
            run.learn(model=text_at(entry, "modelId"))
        elif entry.get("type") == "session_info":
            run.learn(title=text_at(entry, "name"))
    return [run]


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    parent = text_at(entry, "parentSession")
    if parent is not None:  # a path; its name ends with the id
        parent = parent.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]
    started = seconds_of(entry.get("timestamp"))
    return {"session": text_at(entry, "id"), "works_for": parent, "folder": text_at(entry, "cwd"), "started": started}


def _messages(message: Mapping[str, Any]) -> list[Message]:
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        return _answer(dicts_in(content))
    if role == "toolResult":
        return [result_message(message.get("toolCallId"), _parts(content), is_error=bool(message.get("isError")))]
    if role == "system":
        sections = message.get("sections")
        texts = [content, *(sections.values() if isinstance(sections, dict) else ())]
        text = "\n\n".join(one for one in texts if isinstance(one, str) and one)
        return [{"role": "system", "content": text}] if text else []
    if role == "bashExecution":
        output = f"Ran `{message.get('command')}`\n```\n{message.get('output') or ''}\n```"
        return [{"role": "user", "content": output}]
    if role == "user" and content:
        return [{"role": "user", "content": _parts(content)}]
    if role == "custom" and content:  # of an extension
        return [{"role": "user", "content": added_parts(_parts(content))}]
    return []


def _parts(content: object) -> Any:
    """Return content as OpenAI's parts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return [_part(part) for part in dicts_in(content)]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "image" and isinstance(part.get("data"), str):
        return {"type": "image_url", "image_url": {"url": f"data:{part.get('mimeType')};base64,{part['data']}"}}
    return {name: value for name, value in part.items() if name != "textSignature"}


def _answer(content: list[dict[str, Any]]) -> list[Message]:
    parts = []
    calls = [
        call_of(part.get("id"), part.get("name"), part.get("arguments"))
        for part in content
        if part.get("type") == "toolCall"
    ]
    for part in content:
        if part.get("type") == "thinking":
            signed = {"signature": part["thinkingSignature"]} if part.get("thinkingSignature") else {}
            parts.append({"type": "thinking", "thinking": part.get("thinking") or "", **signed})
        elif part.get("type") not in {"toolCall", None}:
            parts.append(_part(part))
    message: Message = {"role": "assistant", "content": parts or None}
    return [{**message, "tool_calls": calls} if calls else message] if parts or calls else []
