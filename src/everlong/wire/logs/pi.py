"""Session logs of pi: a tree of entries, one on each line, linked by ``id`` and ``parentId``.

The conversation is the path to the last entry. Summaries that pi put in the place of earlier messages are left out,
because those messages stand in the file themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from everlong.model import Message, added_parts, seconds_of
from everlong.wire.logs.log import (
    LogFacts,
    LogReader,
    LogUsage,
    NeedsWhole,
    count_of,
    dollars_of,
    parse_line,
    text_field,
)

__all__ = ["PiReader", "is_pi_session"]


def is_pi_session(entry: Mapping[str, Any]) -> bool:
    """Return whether a first line is that of a session of pi."""
    return entry.get("type") == "session" and isinstance(entry.get("id"), str) and "cwd" in entry


class PiReader(LogReader):
    """The reader of a session log of pi."""

    client = "pi"

    def __init__(self, carried: Mapping[str, Any] | None = None, offset: int = 0, *, is_whole: bool = False) -> None:
        super().__init__(carried, offset, is_whole=is_whole)
        told = (carried or {}).get("tip")
        self._tip = told if isinstance(told, str) else None
        self._places: dict[str, int] = {} if self._tip is None else {self._tip: 0}
        """Messages of the open part up to each entry of it."""
        self._calls: set[str] = set()

    def state(self) -> dict[str, Any]:
        """Return the newest entry."""
        return {"tip": self._tip}

    def feed(self, line: bytes, offset: int) -> None:
        """Read the next line."""
        entry = parse_line(line)
        if not isinstance(entry, dict):
            return
        kind, time = entry.get("type"), seconds_of(entry.get("timestamp"))
        if kind == "session":
            self._meet(entry, time)
            return
        ident = text_field(entry, "id")
        if ident is None:
            return
        if not self._calls and not self.is_whole:
            self.settle(offset)
            self._places = {} if self._tip is None else {self._tip: 0}
        self._go_to(text_field(entry, "parentId"))
        if kind == "message" and isinstance(entry.get("message"), dict):
            self._read_message(entry["message"], time)
        elif kind == "custom_message" and entry.get("content"):
            self.say({"role": "user", "content": added_parts(_parts(entry["content"]))}, time)
        elif kind == "model_change":
            self.learn(model=text_field(entry, "modelId"))
        elif kind == "session_info":
            self.learn(title=text_field(entry, "name"))
        self._tip = ident
        self._places[ident] = len(self._open.messages)

    def _meet(self, entry: Mapping[str, Any], time: float | None) -> None:
        parent = text_field(entry, "parentSession")
        if parent is not None:  # a path; its name ends with the id
            parent = parent.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl").rpartition("_")[2]
        folder = text_field(entry, "cwd")
        self.facts = LogFacts(self.client, text_field(entry, "id"), works_for=parent, folder=folder, started=time)

    def _go_to(self, parent: str | None) -> None:
        """Go back to an entry if the next one does not follow the newest."""
        if parent == self._tip:
            return
        place = 0 if parent is None and self.is_whole else self._places.get(parent or "")
        if place is None and self.is_whole:
            return  # its parent is not in the file: it was said after the newest entry all the same
        if place is None:
            raise NeedsWhole
        del self._open.messages[place:], self._open.times[place:]
        self._calls.clear()

    def _read_message(self, told: Mapping[str, Any], time: float | None) -> None:
        role, content = text_field(told, "role"), told.get("content")
        time = seconds_of(told.get("timestamp")) or time
        if role == "assistant":
            message = _answer(content)
            self._calls = {str(call["id"]) for call in message.get("tool_calls", ())}
            self.learn(model=text_field(told, "model"))
            self._count(told.get("usage"))
            if message.get("content") or message.get("tool_calls"):
                self.say(message, time)
        elif role == "toolResult":
            ident = str(told.get("toolCallId") or "")
            self._calls.discard(ident)
            result: Message = {"role": "tool", "tool_call_id": ident, "content": _parts(content)}
            self.say({**result, "is_error": True} if told.get("isError") else result, time)
        elif role == "system":
            sections = told.get("sections")
            some = sections.values() if isinstance(sections, dict) else ()
            texts = [content, *some] if isinstance(content, str) else list(some)
            if text := "\n\n".join(one for one in texts if isinstance(one, str) and one):
                self.say({"role": "system", "content": text}, time)
        elif role == "bashExecution":
            output = f"Ran `{told.get('command')}`\n```\n{told.get('output') or ''}\n```"
            self.say({"role": "user", "content": output}, time)
        elif role == "user" and content:
            self.say({"role": "user", "content": _parts(content)}, time)
        elif role == "custom" and content:  # of an extension
            self.say({"role": "user", "content": added_parts(_parts(content))}, time)

    def _count(self, told: object) -> None:
        if not isinstance(told, dict):
            return
        cost = told.get("cost")
        self.count(
            LogUsage(
                count_of(told.get("input")),
                count_of(told.get("output")),
                count_of(told.get("cacheRead")),
                count_of(told.get("cacheWrite")),
                count_of(told.get("reasoning")),
                1,
                dollars_of(cost.get("total") if isinstance(cost, dict) else None),
            )
        )


def _parts(content: object) -> Any:
    """Return content as OpenAI's parts."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return [_part(part) for part in content if isinstance(part, dict)]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "image" and isinstance(part.get("data"), str):
        return {"type": "image_url", "image_url": {"url": f"data:{part.get('mimeType')};base64,{part['data']}"}}
    return {name: value for name, value in part.items() if name != "textSignature"}


def _answer(content: object) -> Message:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "toolCall":
            arguments = json.dumps(part.get("arguments") or {}, ensure_ascii=False)
            function = {"name": str(part.get("name") or ""), "arguments": arguments}
            calls.append({"id": str(part.get("id") or ""), "type": "function", "function": function})
        elif kind == "thinking":
            signed = {"signature": part["thinkingSignature"]} if part.get("thinkingSignature") else {}
            parts.append({"type": "thinking", "thinking": part.get("thinking") or "", **signed})
        elif kind is not None:
            parts.append(_part(part))
    message: Message = {"role": "assistant", "content": parts or None}
    return {**message, "tool_calls": calls} if calls else message
