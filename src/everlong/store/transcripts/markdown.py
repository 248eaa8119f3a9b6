"""A conversation as Markdown.

Words are quoted, so that no heading, list or unclosed fence of theirs reaches beyond them. What could be markup of a
page or fetch a picture, and all tool traffic, stands in fences that are longer than any inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from everlong.store.transcripts.parts import (
    TranscriptPiece,
    broken_words,
    compaction_line,
    facts_of,
    moment,
    name_of,
    one_line,
    pieces_of,
    plain,
)

if TYPE_CHECKING:
    from everlong.store.conversations import CompactionMark, Conversation, ConversationLine

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!<>|&~])")
_TICKS = re.compile(r"`+")


def heading(one: Conversation, prompt: str | None) -> Iterator[str]:
    """Yield the beginning of a conversation."""
    yield f"# {escaped(name_of(one))}\n\n"
    for name, value in facts_of(one):
        yield f"- {name}: {escaped(value)}\n"
    if prompt:
        yield f"\n## system\n\n{fenced(prompt)}\n"


def message(line: ConversationLine, tools: Mapping[str, str]) -> Iterator[str]:
    """Yield one message; ``tools`` names the tool of each call so far."""
    entry = line.entry
    role = escaped(one_line(str(entry.message.get("role"))))
    number = "" if line.turn is None else f"{line.turn} · "
    broken = f" · {escaped(broken_words(line))}" if line.status else ""
    yield f"\n## {number}{role} · {moment(entry.ts)}{broken}\n"
    for piece in pieces_of(entry.message, tools):
        yield f"\n{_piece(piece)}\n"


def compaction(mark: CompactionMark) -> Iterator[str]:
    """Yield the place where a compaction was."""
    yield f"\n---\n\n*{escaped(compaction_line(mark))}*\n\n---\n"


def ending() -> Iterator[str]:
    """Yield the end of a conversation."""
    yield "\n"


def _piece(piece: TranscriptPiece) -> str:
    label = escaped(one_line(piece.label))
    if piece.kind == "text":
        return _quoted(piece.body)
    if piece.kind == "image":
        return "*image*"
    name = {"call": f"**call of {label}**", "result": f"**result** {label}".rstrip()}.get(piece.kind, f"*{label}*")
    return f"{name}\n\n{fenced(piece.body)}" if piece.body.strip() else name


def _quoted(text: str) -> str:
    if "<" in text or "![" in text:
        return fenced(text)
    return "\n".join(f"> {line}".rstrip() for line in plain(text).split("\n"))


def fenced(text: str) -> str:
    """Return a text as it stands, in a fence that it cannot close."""
    body = plain(text)
    longest = max((len(run) for run in _TICKS.findall(body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def escaped(text: str) -> str:
    """Return a text on one line in which no character is markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
