"""The timeline of a conversation: the size of each request, what the cache gave, what it cost, and the compactions.

The chart shows all turns, thinned where there are too many to draw; the table shows them page by page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everlong.inspector.pages.compactions import CompactionRow, compaction_rows
from everlong.inspector.pages.now import window_of
from everlong.store.turns import TurnFigures, TurnMark, answered_turns, count_turns, page_of_turns, turns_by_id

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.store import Store

__all__ = ["ROWS", "read_chart", "read_timeline"]

ROWS = 100
"""Turns on one page of the table."""
_MOST_POINTS = 1_000
"""Points of the chart."""


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """One page of the table, newest first, and what the chart needs to know."""

    turns: tuple[TurnFigures, ...]
    compacted: Mapping[int, CompactionRow]
    """The compactions by the first request that was sent under each."""
    count: int
    next_before: int | None
    """The id of the last turn on this page, before which the next page begins; None on the last page."""
    is_first: bool
    is_by_cost: bool


def read_timeline(store: Store, ident: str, before: int | None = None, *, is_by_cost: bool = False) -> TimelinePage:
    """Return one page of a conversation's turns, or the dearest of all."""
    found = store.conversations.get(ident)
    path = store.conversations.path(ident)
    by = "cost" if is_by_cost else "id"
    rows = page_of_turns(store, path, found.parts, limit=ROWS + 1, before=None if is_by_cost else before, by=by)
    first = {one.view_id: one.id for one in reversed(answered_turns(store, found.parts)) if one.view_id is not None}
    return TimelinePage(
        turns=tuple(rows[:ROWS]),
        compacted={first[one.done.view_id]: one for one in compaction_rows(store, ident) if one.done.view_id in first},
        count=count_turns(store, found.parts),
        next_before=rows[ROWS - 1].id if len(rows) > ROWS and not is_by_cost else None,
        is_first=before is None,
        is_by_cost=is_by_cost,
    )


def read_chart(store: Store, settings: Settings, ident: str) -> dict[str, Any]:
    """Return the columns of the chart as JSON-ready data: one entry for each request that was answered."""
    found = store.conversations.get(ident)
    path = store.conversations.path(ident)
    every = answered_turns(store, found.parts)
    numbers = {one.id: place for place, one in enumerate(every, 1)}
    shown = [one for one in turns_by_id(store, path, _thin(every)) if one.prompt]
    window, threshold = window_of(store, settings, found)
    views: dict[int | None, int] = {}
    for place, one in enumerate(every, 1):
        views.setdefault(one.view_id, place)
    marks = [
        {"at": views[done.view_id], "number": number, "before": done.tokens_before, "after": done.tokens_after}
        for number, done in enumerate(store.conversations.compactions(ident), 1)
        if done.view_id in views
    ]
    return {
        "request": [numbers[one.id] for one in shown],
        "turn": [one.turn for one in shown],
        "prompt": [one.prompt for one in shown],
        "read": [one.read for one in shown],
        "written": [one.written for one in shown],
        "cost": [round(one.cost, 6) for one in shown],
        "seconds": [None if one.seconds is None else round(one.seconds, 1) for one in shown],
        "model": [one.model or "" for one in shown],
        "compactions": marks,
        "window": window,
        "threshold": threshold,
    }


def _thin(turns: Sequence[TurnMark]) -> list[int]:
    """Return the ids of as many turns as can be drawn: evenly, with those on both sides of each compaction."""
    if len(turns) <= _MOST_POINTS:
        return [one.id for one in turns]
    keep = {len(turns) * place // _MOST_POINTS for place in range(_MOST_POINTS)} | {len(turns) - 1}
    edges = {place for place in range(1, len(turns)) if turns[place].view_id != turns[place - 1].view_id}
    if len(edges) < _MOST_POINTS:
        keep |= edges | {place - 1 for place in edges}
    return [turns[place].id for place in sorted(keep)]
