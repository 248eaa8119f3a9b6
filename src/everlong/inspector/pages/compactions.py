"""The compactions of a conversation: the list, and one of them with all that is known about it.

What was kept, cleared, shortened or summarized is a fact of the stored view; nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, select

from everlong.context.literals import is_acknowledgement, is_summary, rules_block, summary_body
from everlong.context.names import entities
from everlong.context.oversized import is_stub
from everlong.errors import NotStored, QueryError
from everlong.model import CLEARED_RESULT, Message, text_of, whole_text
from everlong.store.compaction import read_evidence
from everlong.store.database import in_batches
from everlong.store.paths import read_message
from everlong.store.schema import branch, view
from everlong.store.search import Filters
from everlong.store.transcripts import one_line
from everlong.store.views import ViewItem, items_of
from everlong.store.whereabouts import is_undone, standing_views

if TYPE_CHECKING:
    from everlong.context.exchanges import SummaryExchange
    from everlong.store import Compaction, Store
    from everlong.store.search import Hit
    from everlong.store.shown_path import ShownPath

__all__ = [
    "CompactionPage",
    "CompactionRow",
    "compaction_rows",
    "find_sources",
    "line_at",
    "read_compaction",
    "summary_text",
]

Became = Literal["kept", "cleared", "shortened", "stub", "summary", "told anew", "left out"]

_MOST_RANGES = 400
_LONGEST = 6_000
_KEY_SECTION = "Critical Context"


@dataclass(frozen=True, slots=True)
class CompactionRow:
    """One compaction of a history."""

    number: int
    """Its number in the history of the conversation, from 1."""
    done: Compaction
    turn: int | None
    """The last turn that it covers."""
    is_in_force: bool
    is_undone: bool
    """True if it was taken back, so that no later request was sent under it."""


class SummaryLine(NamedTuple):
    """One line of a summary; ``number`` names it in addresses."""

    number: int
    kind: Literal["heading", "item", "text"]
    text: str
    section: str
    is_key: bool
    """True for a line of the original, word for word."""


class ChangedRange(NamedTuple):
    """A stretch of the conversation, and what is sent in its place."""

    became: Became
    first_turn: int | None
    last_turn: int | None
    messages: int
    text: str
    """The words in its place; empty for messages that are kept or left out."""


@dataclass(frozen=True, slots=True)
class CompactionPage:
    """One compaction."""

    row: CompactionRow
    count: int
    """The compactions of the conversation."""
    ranges: tuple[ChangedRange, ...]
    hidden_ranges: int
    lines: tuple[SummaryLine, ...]
    rules: tuple[str, ...]
    """The user's standing rules, which stand after the summary."""
    report: dict[str, Any]
    problems: tuple[str, ...]
    invented: tuple[str, ...]
    exchanges: tuple[SummaryExchange, ...]
    """What models were asked for the summary, and answered; oldest first."""
    asked: int
    """The number of all questions, also those that are not kept."""
    has_evidence: bool
    """False for a compaction from before evidence was kept, of an engine that keeps none, or that was forgotten."""
    can_undo: bool
    is_void: bool
    """True if its words were forgotten since."""


def compaction_rows(store: Store, ident: str) -> list[CompactionRow]:
    """Return the compactions of a conversation, oldest first."""
    found = store.conversations.compactions(ident)
    path = store.conversations.path(ident)
    views = _views(store, [one.view_id for one in found if one.view_id is not None])
    in_force, standing = _in_force(store, path), standing_views(store, path)
    with store.database.read() as connection:
        covers = [(one.branch, views[one.view_id].cover_depth) if one.view_id in views else None for one in found]
        turns = [None if cover is None else path.turn_at(connection, *cover) for cover in covers]
    return [
        CompactionRow(number, one, turn, one.view_id in in_force, is_undone(one, standing))
        for number, (one, turn) in enumerate(zip(found, turns, strict=True), 1)
    ]


def read_compaction(store: Store, ident: str, number: int) -> CompactionPage:
    """Return one compaction of a conversation by its number, from 1."""
    rows = compaction_rows(store, ident)
    if not 1 <= number <= len(rows):
        raise NotStored(f"conversation {ident!r} has no compaction {number}; it has {len(rows)}")
    row = rows[number - 1]
    done = row.done
    path = store.conversations.path(ident)
    items, state = _items(store, done.view_id)
    with store.database.read() as connection:
        ranges = list(_ranges(connection, items, path, done.branch))
    quality = _quality(done)
    evidence = read_evidence(store, [done.id]).get(done.id)
    return CompactionPage(
        row=row,
        count=len(rows),
        ranges=tuple(ranges[:_MOST_RANGES]),
        hidden_ranges=max(0, len(ranges) - _MOST_RANGES),
        lines=tuple(summary_lines(summary_text(items))),
        rules=tuple(_rules(items)),
        report=done.report or {},
        problems=_texts(quality.get("problems")),
        invented=_texts(quality.get("invented")),
        exchanges=() if evidence is None else evidence.exchanges,
        asked=0 if evidence is None else evidence.asked,
        has_evidence=evidence is not None,
        can_undo=row.is_in_force,
        is_void=state == "void",
    )


def summary_lines(text: str) -> Iterator[SummaryLine]:
    """Yield the lines of a summary that say something, numbered from 1."""
    section, number = "", 0
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            continue
        number += 1
        if line.startswith("#"):
            section = line.lstrip("#").strip()
            yield SummaryLine(number, "heading", section, section, is_key=False)
            continue
        is_item = line.startswith(("- ", "* ", "• "))
        words = line[2:].strip() if is_item else line
        is_key = section == _KEY_SECTION and raw[:1].isspace()
        yield SummaryLine(number, "item" if is_item else "text", words, section, is_key)


# -- the parts of a page -----------------------------------------------------------------------------------------------


def _views(store: Store, idents: Sequence[int]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    columns = (view.c.id, view.c.cover_depth, view.c.state, view.c.origin)
    with store.database.read() as connection:
        for some in in_batches(list(idents)):
            rows = connection.execute(select(*columns).where(view.c.id.in_(some), view.c.tenant == store.tenant))
            found |= {row.id: row for row in rows}
    return found


def _in_force(store: Store, path: ShownPath) -> frozenset[int]:
    """Return the view in force at the end of a conversation, and the one that it repeats."""
    if not path.runs:
        return frozenset()
    with store.database.read() as connection:
        query = select(branch.c.view_id).where(branch.c.id == path.runs[-1].branch, branch.c.tenant == store.tenant)
        current = connection.execute(query).scalar()
        if current is None:
            return frozenset()
        origin = connection.execute(select(view.c.origin).where(view.c.id == current)).scalar()
    return frozenset({current} if origin is None else {current, origin})


def _items(store: Store, view_id: int | None) -> tuple[list[ViewItem], str]:
    if view_id is None:
        return [], ""
    with store.database.read() as connection:
        state = connection.execute(
            select(view.c.state).where(view.c.id == view_id, view.c.tenant == store.tenant)
        ).scalar()
        return ([], "") if state is None else (items_of(connection, store.reader, view_id), str(state))


def _ranges(connection: Connection, items: Sequence[ViewItem], path: ShownPath, number: int) -> Iterator[ChangedRange]:
    """Yield the stretches of the conversation that a view covers, and what stands in the place of each."""
    for item in items:
        first, last = path.turns_within(connection, number, item.from_depth, item.to_depth)
        count = 0 if first is None or last is None else last - first + 1
        text = "" if item.message is None else text_of(item.message)[:_LONGEST]
        yield ChangedRange(_became(item), first, last, count, text)


def _became(item: ViewItem) -> Became:
    if item.kind == "keep":
        return "kept"
    if item.message is None:
        return "left out"
    if item.kind == "edit":
        if is_stub(item.message):
            return "stub"
        return "cleared" if text_of(item.message) == CLEARED_RESULT else "shortened"
    return "summary" if is_summary(item.message) else "told anew"


def _literals(items: Sequence[ViewItem]) -> Iterator[Message]:
    for item in items:
        if item.kind == "new" and item.message is not None and not is_acknowledgement(item.message):
            yield item.message


def summary_text(items: Sequence[ViewItem]) -> str:
    """Return the words of the summaries among the items of a view."""
    told = [summary_body(message) for message in _literals(items) if is_summary(message)]
    if not told:  # an engine of somebody else, whose summaries look as they like
        told = [text_of(message) for message in _literals(items)]
    return "\n\n".join(told)


def _rules(items: Sequence[ViewItem]) -> Iterator[str]:
    for message in _literals(items):
        for line in rules_block(message).splitlines()[1:]:
            yield line.removeprefix("- ").strip()


def _quality(done: Compaction) -> dict[str, Any]:
    told = (done.report or {}).get("quality")
    return told if isinstance(told, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else ()


# -- the sources of a summary's lines ----------------------------------------------------------------------------------


_MOST_SOURCES = 3
_LOOKED_AT = 12
_LONGEST_LINE = 300
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
    exact = list(_exact(store, _hits(store, ident, words[:_LONGEST_LINE], "substring", last), words))
    if exact:
        return exact[:_MOST_SOURCES]
    names = list(dict.fromkeys(entities(words)))
    asked = " ".join(names) if names else words[:_LONGEST_LINE]
    return _probable(store, _hits(store, ident, asked, "auto", last), names)[:_MOST_SOURCES]


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
