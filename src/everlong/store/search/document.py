"""What of a stored message can be found: its words, the names and arguments of its calls, what tools answered.

Also who said it. Knows the shape of messages and no database. A change to `searchable_text` needs a new `INDEX_VERSION`
in `everlong.store.search.words`: the index takes a text out by the same terms that it put in.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from everlong.model import Message, calls_of, is_reasoning, part_text, parts_of, read_message

# "Mia: …", "[Mia]: …", "[14 May, 10:05] Mia: …", "Mia said, …"
_SPEAKER = re.compile(
    r"\s*(?:[\[(][^\])\n]{0,60}[\])]\s*)?\[?([^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30})?)\]?(?:: | said[,:] )"
)
_LABEL = re.compile(r"[A-Z][A-Z_]{2,}|(?i:note|update|thought|summary|error|warning|todo|plan|edit|ps)")
"""What stands before a colon and is no person: THOUGHT, ERROR, Note."""
_MAX_DEPTH = 40


def searchable_text(message: Message) -> str:
    """All that can be found of a message, in its order; a participant's name stands before, as in a transcript."""
    content = message.get("content")
    name = message.get("name")
    if isinstance(content, str) and not name and "tool_calls" not in message:
        return content
    pieces = [f"{name}:"] if isinstance(name, str) and name else []
    pieces += _texts(parts_of(message), 0)
    for call in calls_of(message):
        pieces += (call.name, _argument_text(call.arguments))
    return "\n".join(piece for piece in pieces if piece)


def own_text(message: Message) -> str:
    """What can be found of a message without what a client wrapped around the user's words; empty if that is all."""
    if message.get("role") == "user" and not any(part.get("type") == "tool_result" for part in parts_of(message)):
        read = read_message(message)
        if read.added:
            return read.text
    return searchable_text(message)


def _texts(parts: list[dict[str, Any]], depth: int) -> list[str]:
    found: list[str] = []
    for part in parts:
        if is_reasoning(part) or depth > _MAX_DEPTH:
            continue
        if text := part_text(part):
            found.append(text)
        elif part.get("type") == "tool_use":
            found += (str(part.get("name") or ""), _argument_text(part.get("input")))
        elif part.get("type") == "tool_result":
            found += _texts(parts_of(part), depth + 1)
    return found


def _argument_text(arguments: object) -> str:
    """The values of a call's arguments, with their keys; a text that is no JSON as it stands."""
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except ValueError:
            return str(arguments)
    pieces: list[str] = []
    waiting = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in reversed(value):
                waiting += (value[key], key)
        elif isinstance(value, list):
            waiting += reversed(value)
        elif value is not None:
            pieces.append(str(value))
    return "\n".join(pieces)


def speaker_of(message: Message, text: str) -> str:
    """Who said it: the name that the message carries, or the one that its text begins with; else nothing."""
    name = message.get("name")
    if isinstance(name, str) and name:
        return name if message.get("role") != "tool" else ""
    begun = _SPEAKER.match(text) if message.get("role") in {"user", "assistant"} else None
    return begun[1] if begun and not _LABEL.fullmatch(begun[1]) else ""


def tools_of(message: Message) -> list[str]:
    """Names of the tools that a message calls, or that it says it is the answer of."""
    names = [call.name for call in calls_of(message)]
    names += [str(part.get("name")) for part in parts_of(message) if part.get("type") == "tool_use"]
    if message.get("role") == "tool" and message.get("name"):
        names.append(str(message["name"]))
    return names


def answered_calls(message: Message) -> list[str]:
    """Ids of the calls that a message answers."""
    ids = [message.get("tool_call_id")] if message.get("role") == "tool" else []
    ids += [part.get("tool_use_id") for part in parts_of(message) if part.get("type") == "tool_result"]
    return [ident for ident in ids if isinstance(ident, str)]


def called_tools(message: Message) -> dict[str, str]:
    """Ids of the calls that a message makes, each with the tool's name."""
    named = {call.id: call.name for call in calls_of(message)}
    for part in parts_of(message):
        if part.get("type") == "tool_use":
            named[str(part.get("id"))] = str(part.get("name"))
    return named
