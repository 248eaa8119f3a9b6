"""The parts of a transcript: facts, messages in pieces, and texts made safe to display.

A message may hold characters that move a cursor, hide words or reverse them. Colour codes are taken out, and every
other such character is replaced by a mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from everlong.model import Message, calls_of, counted, is_image, is_reasoning, part_text, parts_of, text_of
from everlong.store.conversations import Conversation

if TYPE_CHECKING:
    from everlong.store.conversations import CompactionMark, ConversationLine
    from everlong.store.sessions import Session

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_BREAK = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
# Controls, halves of surrogate pairs, what reverses the order of writing, and tags that do not show.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARK = "\ufffd"


def plain(text: str) -> str:
    """Return a text in which every character is visible; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return _INVISIBLE.sub(_MARK, _BREAK.sub("\n", _ANSI.sub("", text)))


def one_line(text: str) -> str:
    """Return a text on one line in which every character is visible."""
    return " ".join(plain(text).split())


def moment(seconds: float) -> str:
    """Return a time on the reader's clock; a time that no clock knows as a number."""
    try:
        return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def name_of(one: Conversation | Session) -> str:
    """Return the title of a conversation or of a part, or its id if it has none."""
    return one_line(one.title or "") or one.id


def facts_of(one: Conversation) -> Iterator[tuple[str, str]]:
    """Yield the known facts about a conversation, as names and values."""
    yield "session", one.id
    yield "source", one_line(one.source)
    for name, value in (("client", one.client), ("folder", one.folder), ("model", one.model), ("user", one.user)):
        if value:
            yield name, one_line(value)
    yield "started", moment(one.started)
    yield "active", moment(one.active)
    if one.ended is not None:
        yield "ended", f"{moment(one.ended)} ({one_line(one.end_reason or 'no reason given')})"
    if one.works_for:
        yield "forked from" if one.kind == "main" else "works for", one.works_for
    agents = f", {counted(one.agents, 'agent')} worked for it" if one.agents else ""
    yield "messages", f"{one.messages:,}{agents}"
    if one.compactions:
        yield "compacted", counted(one.compactions, "time")
    if one.api_calls:
        used = f"{one.input_tokens:,} in, {one.output_tokens:,} out, {one.cache_read_tokens:,} from caches"
        yield "tokens", f"{used}, {counted(one.api_calls, 'call')}"
    if one.cost:
        yield "cost", f"${one.cost:,.2f}" if one.cost >= 1 else f"${one.cost:,.4f}"


def compaction_line(mark: CompactionMark) -> str:
    """Return a line about a compaction: its time, tokens before and after, the engine."""
    done = mark.compaction
    pieces = [f"compacted {moment(mark.at)}"]
    if done is not None:
        if done.tokens_before is not None and done.tokens_after is not None:
            pieces.append(f"{done.tokens_before:,} → {done.tokens_after:,} tokens")
        pieces += [f"{done.messages_before:,} → {counted(done.messages_after, 'message')}", one_line(done.engine)]
        if done.fallback:
            pieces.append(f"fell back: {one_line(done.fallback)}")
    return " · ".join(pieces)


def broken_words(line: ConversationLine) -> str:
    """Return how a reply broke off; empty for a whole message."""
    if line.status is None:
        return ""
    count = len(text_of(line.entry.message).split())
    reason = f": {one_line(line.error)[:200]}" if line.status == "failed" and line.error else ""
    return f"{line.status} after {counted(count, 'word')}{reason}"


Kind: TypeAlias = Literal["text", "thinking", "call", "result", "image", "other"]

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_MAX_DEPTH = 20
_NO_TOOLS: Mapping[str, str] = {}


class TranscriptPiece(NamedTuple):
    """One piece of a message; ``label`` is a tool's name or the kind of the piece."""

    kind: Kind
    label: str
    body: str


def pieces_of(message: Message, tools: Mapping[str, str] = _NO_TOOLS) -> list[TranscriptPiece]:
    """Return all that a message says, in order; no piece if it says nothing.

    With ``tools`` (the tool of each call, by the call's id) a result is labelled with the name of its tool.
    """
    is_result = message.get("role") == "tool"
    found = [_thought(message.get(name)) for name in ("reasoning_content", "reasoning")]
    pieces = [piece for piece in found if piece is not None][:1]
    pieces += _of_parts(parts_of(message), 0, tools)
    if is_result:
        call_id = str(message.get("tool_call_id") or "")
        name = str(message.get("name") or tools.get(call_id, call_id))
        pieces = [TranscriptPiece("result", name, piece.body) if piece.kind == "text" else piece for piece in pieces]
    pieces += [
        TranscriptPiece("call", call.name or "?", readable_arguments(call.arguments)) for call in calls_of(message)
    ]
    return pieces


def _thought(value: object) -> TranscriptPiece | None:
    return TranscriptPiece("thinking", "thinking", value) if isinstance(value, str) and value else None


def _of_parts(parts: list[dict[str, Any]], depth: int, tools: Mapping[str, str]) -> list[TranscriptPiece]:
    pieces: list[TranscriptPiece] = []
    for part in parts:
        kind = str(part.get("type", "text"))  # a file may have anything there
        if words := part_text(part):
            pieces.append(TranscriptPiece("text", "", words))
        elif is_reasoning(part):
            thought = part.get("thinking", part.get("text"))
            pieces.append(TranscriptPiece("thinking", "thinking", thought if isinstance(thought, str) else ""))
        elif is_image(part):
            pieces.append(TranscriptPiece("image", "image", _picture(part)))
        elif kind == "tool_use":
            pieces.append(TranscriptPiece("call", str(part.get("name") or "?"), readable_arguments(part.get("input"))))
        elif kind == "tool_result" and depth < _MAX_DEPTH:
            inside = _of_parts(parts_of(part), depth + 1, tools)
            call_id = str(part.get("tool_use_id") or "")
            label = tools.get(call_id, call_id)
            pieces += [
                TranscriptPiece("result", label, piece.body) if piece.kind == "text" else piece for piece in inside
            ]
        elif kind not in {"text", "input_text", "output_text"}:
            pieces.append(TranscriptPiece("other", kind, json.dumps(part, ensure_ascii=False, default=str)))
    return pieces


def readable_arguments(arguments: object) -> str:
    """Return a call's arguments with a line for each, texts as they are; what is no JSON object as it stands."""
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
    """Return a picture's data url if it can be shown without a request to anyone; else nothing."""
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "base64" and str(source.get("media_type")) in _TYPES:
        data = source.get("data")
        if isinstance(data, str) and _BASE64.fullmatch(data):
            url = f"data:{source['media_type']};base64,{data}"
    return url if isinstance(url, str) and _PICTURE.fullmatch(url) else ""
