"""The sources of a summary's lines: the messages that a line came from.

A line that stands in a message word for word has an exact source. For a model's prose the search finds messages that
share its names; they are probable. One line is looked up at a time, so that the page of a compaction costs the same for
a conversation of any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everlong.context.names import entities
from everlong.errors import NotStored, QueryError
from everlong.inspector.pages.compactions import CompactionPage, SummaryLine
from everlong.model import whole_text
from everlong.store.paths import read_message
from everlong.store.search import Filters
from everlong.store.transcripts import one_line

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.store.search import Hit

__all__ = ["LineSource", "find_sources", "line_at"]

_MOST = 3
_LOOKED_AT = 12
_LONGEST = 300
"""Characters of a line that are searched for."""
_AROUND = 240
_QUOTES = "\"“”'`"


@dataclass(frozen=True, slots=True)
class LineSource:
    """A message that a line of a summary came from."""

    node: str
    turn: int
    role: str
    at: float
    text: str
    """The words of the message around what the line says."""
    is_exact: bool
    shared: tuple[str, ...]
    """The names that the line and the message share."""


def line_at(page: CompactionPage, number: int) -> SummaryLine:
    """Return a line of a compaction's summary by its number; raise `NotStored` if there is none."""
    for line in page.lines:
        if line.number == number and line.kind != "heading":
            return line
    raise NotStored(f"the summary of compaction {page.row.number} has no line {number}")


def find_sources(store: Store, ident: str, page: CompactionPage, line: SummaryLine) -> list[LineSource]:
    """Return the messages that a line of a summary came from: exact ones, else probable ones, best first."""
    words = line.text.strip().strip(_QUOTES).strip()
    last = page.row.turn
    exact = list(_exact(store, _hits(store, ident, words[:_LONGEST], "substring", last), words))
    if exact:
        return exact[:_MOST]
    names = list(dict.fromkeys(entities(words)))
    asked = " ".join(names) if names else words[:_LONGEST]
    return _probable(store, _hits(store, ident, asked, "auto", last), names)[:_MOST]


def _hits(store: Store, ident: str, words: str, mode: str, last: int | None) -> list[Hit]:
    if not words:
        return []
    try:
        found = store.search(words, mode=mode, filters=Filters(session=ident), limit=_LOOKED_AT).hits
    except QueryError:
        return []
    return [hit for hit in found if hit.node is not None and hit.is_match and (last is None or hit.turn <= last)]


def _exact(store: Store, hits: Sequence[Hit], words: str) -> Iterator[LineSource]:
    wanted = one_line(words).casefold().removesuffix("…").strip()
    for hit in sorted(hits, key=lambda one: one.turn):
        text = _text(store, hit)
        place = text.casefold().find(wanted)
        if place >= 0:
            yield _source(hit, _around(text, place, len(wanted)), is_exact=True)


def _probable(store: Store, hits: Sequence[Hit], names: Sequence[str]) -> list[LineSource]:
    found: list[LineSource] = []
    for hit in hits:
        text = _text(store, hit)
        shared = tuple(name for name in names if name.casefold() in text.casefold())
        if shared or not names:
            place = max(0, text.casefold().find(shared[0].casefold())) if shared else 0
            found.append(_source(hit, _around(text, place, 0), is_exact=False, shared=shared))
    return sorted(found, key=lambda one: -len(one.shared))


def _source(hit: Hit, text: str, *, is_exact: bool, shared: tuple[str, ...] = ()) -> LineSource:
    node = "" if hit.node is None else hit.node.hex()
    return LineSource(node, hit.turn, hit.role, hit.at, text, is_exact, shared[:6])


def _text(store: Store, hit: Hit) -> str:
    assert hit.node is not None  # noqa: S101 - summaries are left out
    return one_line(whole_text(read_message(store.database, store.tenant, hit.node)))


def _around(text: str, place: int, length: int) -> str:
    start, end = max(0, place - _AROUND // 2), min(len(text), place + length + _AROUND)
    return f"{'… ' if start else ''}{text[start:end].strip()}{' …' if end < len(text) else ''}"
