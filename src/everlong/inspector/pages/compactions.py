"""The compactions of a conversation: the list, and one of them with all that is known about it.

What was kept, cleared, shortened or summarized is a fact of the stored view; nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, select

from everlong.context.literals import NO_RULES, is_acknowledgement, is_summary, rules_block
from everlong.errors import NotStored
from everlong.model import Message, text_of
from everlong.store.database import in_batches
from everlong.store.schema import branch, view
from everlong.store.views import ViewItem, items_of
from everlong.store.whereabouts import became_of, is_undone, standing_views, summary_of

if TYPE_CHECKING:
    from everlong.store import Compaction, Store
    from everlong.store.shown_path import ShownPath

__all__ = [
    "CompactionPage",
    "CompactionRow",
    "compaction_rows",
    "first_cut",
    "read_compaction",
    "summary_text",
]

Became = Literal["kept", "cleared", "shortened", "stub", "summary", "summarized before", "told anew", "left out"]

_NOT_SENT = ("left out", "summarized before")
_MOST_RANGES = 400
_LONGEST = 6_000


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
    summary: str
    rules: tuple[str, ...]
    """The user's standing rules, which stand after the summary."""
    problems: tuple[str, ...]
    invented: tuple[str, ...]
    can_undo: bool
    is_void: bool
    """True if its words were forgotten since."""
    has_later: bool
    """True if messages followed what it covers; the system prompt may be counted among those that it sent."""


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
    earlier = [one.done for one in rows[: number - 1] if not one.is_undone]
    with store.database.read() as connection:
        ranges = list(_ranges(connection, items, path, done.branch))
        if earlier:
            past = _ranges(connection, _items(store, earlier[-1].view_id)[0], path, earlier[-1].branch)
            until = max((one.last_turn or 0 for one in past if one.became == "summary"), default=0)
            ranges = list(_split(ranges, until))
    replaced = sum(one.messages if one.became == "kept" else 1 for one in ranges if one.became not in _NOT_SENT)
    quality = _quality(done)
    return CompactionPage(
        row=row,
        count=len(rows),
        ranges=tuple(ranges[:_MOST_RANGES]),
        hidden_ranges=max(0, len(ranges) - _MOST_RANGES),
        summary=summary_text(items),
        rules=tuple(_rules(items)),
        problems=_texts(quality.get("problems")),
        invented=_texts(quality.get("invented")),
        can_undo=row.is_in_force,
        is_void=state == "void",
        has_later=(done.messages_after or 0) > replaced + 1,
    )


def first_cut(store: Store, ident: str, turn: int) -> int | None:
    """Return the number of the compaction that first sent something else for a message; None if none did."""
    path = store.conversations.path(ident)
    for row in compaction_rows(store, ident):
        if row.is_undone or (row.turn or 0) < turn:
            continue
        items, _ = _items(store, row.done.view_id)
        with store.database.read() as connection:
            for one in _ranges(connection, items, path, row.done.branch):
                if one.became != "kept" and (one.first_turn or 1) <= turn <= (one.last_turn or 0):
                    return row.number
    return None


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


def _split(ranges: Iterable[ChangedRange], until: int) -> Iterator[ChangedRange]:
    """Yield the stretches; of a summarized one, apart what an earlier compaction had summarized up to a turn."""
    for one in ranges:
        first, last = one.first_turn or 1, one.last_turn or 0
        if one.became == "summary" and first <= until < last:
            yield ChangedRange("summarized before", first, until, until - first + 1, "")
            yield one._replace(first_turn=until + 1, messages=last - until)
        else:
            yield one


def _became(item: ViewItem) -> Became:
    if item.kind == "keep":
        return "kept"
    if item.message is None:
        return "left out"
    if item.kind == "edit":
        return became_of(item.message)
    return "summary" if is_summary(item.message) else "told anew"


def _literals(items: Sequence[ViewItem]) -> Iterator[Message]:
    for item in items:
        if item.kind == "new" and item.message is not None and not is_acknowledgement(item.message):
            yield item.message


def summary_text(items: Sequence[ViewItem]) -> str:
    """Return the words of the summaries, or what an engine of somebody else wrote: its summaries look as they like."""
    return summary_of(items) or "\n\n".join(map(text_of, _literals(items)))


def _rules(items: Sequence[ViewItem]) -> Iterator[str]:
    for message in _literals(items):
        lines = rules_block(message).splitlines()
        yield from (line[2:].strip() for line in lines if line.startswith("- ") and line != NO_RULES)


def _quality(done: Compaction) -> dict[str, Any]:
    told = (done.report or {}).get("quality")
    return told if isinstance(told, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else ()
