"""A message in pieces for people to read: words, thinking, calls with their arguments, results, pictures.

Whatever shape a client gave the message, something is shown for every part of it. Knows no format of output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from everlong.model import Message, calls_of, is_image, is_reasoning, part_text, parts_of

Kind: TypeAlias = Literal["text", "thinking", "call", "result", "image", "other"]

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_MAX_DEPTH = 20
_NO_TOOLS: Mapping[str, str] = {}


class Piece(NamedTuple):
    """One thing that a message says; ``label`` is a tool's name or what kind of thing it is."""

    kind: Kind
    label: str
    body: str


def pieces_of(message: Message, tools: Mapping[str, str] = _NO_TOOLS) -> list[Piece]:
    """All that a message says, in order; not one piece if it says nothing.

    With ``tools`` (the tool of each call, by the call's id) a result is labelled with the name of its tool.
    """
    is_result = message.get("role") == "tool"
    found = [_thought(message.get(name)) for name in ("reasoning_content", "reasoning")]
    pieces = [piece for piece in found if piece is not None][:1]
    pieces += _of_parts(parts_of(message), 0, tools)
    if is_result:
        call_id = str(message.get("tool_call_id") or "")
        name = str(message.get("name") or tools.get(call_id, call_id))
        pieces = [Piece("result", name, piece.body) if piece.kind == "text" else piece for piece in pieces]
    pieces += [Piece("call", call.name or "?", readable_arguments(call.arguments)) for call in calls_of(message)]
    return pieces


def _thought(value: object) -> Piece | None:
    return Piece("thinking", "thinking", value) if isinstance(value, str) and value else None


def _of_parts(parts: list[dict[str, Any]], depth: int, tools: Mapping[str, str]) -> list[Piece]:
    pieces: list[Piece] = []
    for part in parts:
        kind = part.get("type", "text")
        if words := part_text(part):
            pieces.append(Piece("text", "", words))
        elif is_reasoning(part):
            thought = part.get("thinking", part.get("text"))
            pieces.append(Piece("thinking", "thinking", thought if isinstance(thought, str) else ""))
        elif is_image(part):
            pieces.append(Piece("image", "image", _picture(part)))
        elif kind == "tool_use":
            pieces.append(Piece("call", str(part.get("name") or "?"), readable_arguments(part.get("input"))))
        elif kind == "tool_result" and depth < _MAX_DEPTH:
            inside = _of_parts(parts_of(part), depth + 1, tools)
            call_id = str(part.get("tool_use_id") or "")
            label = tools.get(call_id, call_id)
            pieces += [Piece("result", label, piece.body) if piece.kind == "text" else piece for piece in inside]
        elif kind not in {"text", "input_text", "output_text"}:
            pieces.append(Piece("other", str(kind), json.dumps(part, ensure_ascii=False, default=str)))
    return pieces


def readable_arguments(arguments: object) -> str:
    """A call's arguments with a line for each, texts as they are; what is no JSON object as it stands."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    if not isinstance(value, dict):
        return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    lines: list[str] = []
    for key, item in value.items():
        text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
        lines.append(f"{key}:\n{text}" if "\n" in text else f"{key}: {text}")
    return "\n".join(lines)


def _picture(part: dict[str, Any]) -> str:
    """A picture's data url if it is one that can be shown without asking anyone for it; else nothing."""
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "base64" and source.get("media_type") in _TYPES:
        data = source.get("data")
        if isinstance(data, str) and _BASE64.fullmatch(data):
            url = f"data:{source['media_type']};base64,{data}"
    return url if isinstance(url, str) and _PICTURE.fullmatch(url) else ""
