"""A session as Markdown.

Words are quoted, so that no heading, list or unclosed fence of theirs reaches beyond them. What could be markup of a
page or fetch a picture, and all tool traffic, stands in fences that are longer than any inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from everlong.store.transcripts.clean import one_line, plain
from everlong.store.transcripts.facts import facts_of, moment, name_of
from everlong.store.transcripts.pieces import Piece, pieces_of

if TYPE_CHECKING:
    from everlong.store.paths import Entry
    from everlong.store.session import Session

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!<>|&~])")
_TICKS = re.compile(r"`+")


def heading(session: Session, prompt: str | None) -> Iterator[str]:
    """The beginning of a session."""
    yield f"# {escaped(name_of(session))}\n\n"
    for name, value in facts_of(session):
        yield f"- {name}: {escaped(value)}\n"
    if prompt:
        yield f"\n## system\n\n{fenced(prompt)}\n"


def message(entry: Entry, turn: int | None, tools: Mapping[str, str]) -> Iterator[str]:
    """One message; ``tools`` names the tool of each call so far."""
    role = escaped(one_line(str(entry.message.get("role"))))
    number = "" if turn is None else f"{turn} · "
    yield f"\n## {number}{role} · {moment(entry.ts)}\n"
    for piece in pieces_of(entry.message, tools):
        yield f"\n{_piece(piece)}\n"


def ending() -> Iterator[str]:
    """The end of a session."""
    yield "\n"


def _piece(piece: Piece) -> str:
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
    """A text as it stands, in a fence that it cannot close."""
    body = plain(text)
    longest = max((len(run) for run in _TICKS.findall(body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def escaped(text: str) -> str:
    """A text on one line in which no character is markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
