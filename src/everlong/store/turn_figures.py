"""The figures of a conversation: tokens, cost and cache of each request, and the size of its messages.

A conversation may have tens of thousands of turns, so they are read in plain SQL, and in pages where a person reads
them. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.paths import Segment
from everlong.store.sessions import usage_totals
from everlong.store.shown_path import ShownPath, count_messages

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.tokens import MessageCounter


_COLUMNS = "id, branch, depth, view_id, model, status, usage, cost, ts, ended, session, error"


class TurnFigures(NamedTuple):
    """One request: its place in the conversation, the tokens that the provider reported, and their cost."""

    id: int
    turn: int | None
    """The number of the last message that was sent; None if the conversation does not show it."""
    branch: int
    view_id: int | None
    model: str | None
    status: str
    at: float
    seconds: float | None
    session: str | None
    error: str | None
    prompt: int
    """All tokens sent."""
    read: int
    written: int
    output: int
    cost: float
    missed: int
    """Tokens that lay in the provider's cache and were paid again."""
    missed_by: str
    missed_detail: str
    usage: dict[str, Any]


class TurnMark(NamedTuple):
    """A turn that was answered, and the view under which it was sent."""

    id: int
    view_id: int | None


def answered_turns(core: StoreCore, parts: Sequence[str]) -> list[TurnMark]:
    """Return all answered turns of a conversation, oldest first; ``parts`` are the ids of its sessions."""
    found: list[TurnMark] = []
    for some in in_batches(list(parts)):
        marks = ",".join("?" * len(some))
        statement = core.database.sql(
            f"SELECT id, view_id FROM turn WHERE tenant = ? AND session IN ({marks}) AND usage IS NOT NULL ORDER BY id"  # noqa: S608 - marks only
        )
        with core.database.read() as connection:
            rows = connection.exec_driver_sql(statement, (core.tenant, *some)).all()
        found += [TurnMark(*row) for row in rows]
    return sorted(found)


def turns_by_id(core: StoreCore, path: ShownPath, idents: Sequence[int]) -> list[TurnFigures]:
    """Return the figures of some turns, oldest first."""
    found: list[TurnFigures] = []
    for some in in_batches(list(idents)):
        marks = ",".join("?" * len(some))
        found += _rows(core, path, f"id IN ({marks}) ORDER BY id", some)
    return sorted(found, key=lambda one: one.id)


def page_of_turns(
    core: StoreCore, path: ShownPath, parts: Sequence[str], *, limit: int, before: int | None = None
) -> list[TurnFigures]:
    """Return the newest turns of a conversation before a turn's id, newest first."""
    found: list[TurnFigures] = []
    for some in in_batches(list(parts)):
        marks = ",".join("?" * len(some))
        most = 2**62 if before is None else before
        found += _rows(core, path, f"session IN ({marks}) AND id < ? ORDER BY id DESC LIMIT ?", [*some, most, limit])
    return sorted(found, key=lambda one: -one.id)[:limit]


def count_turns(core: StoreCore, parts: Sequence[str]) -> int:
    """Return how many turns some sessions have."""
    total = 0
    for some in in_batches(list(parts)):
        marks = ",".join("?" * len(some))
        statement = core.database.sql(f"SELECT count(*) FROM turn WHERE session IN ({marks})")  # noqa: S608 - marks only
        with core.database.read() as connection:
            total += int(connection.exec_driver_sql(statement, tuple(some)).scalar_one())
    return total


def newest_change(core: StoreCore) -> tuple[int, int, int]:
    """Return numbers that grow with every turn, message and compaction, so that a reader sees when to look again."""
    statement = core.database.sql(
        "SELECT (SELECT coalesce(max(id), 0) FROM turn), (SELECT coalesce(max(seq), 0) FROM node),"
        " (SELECT coalesce(max(id), 0) FROM compaction)"
    )
    with core.database.read() as connection:
        row = connection.exec_driver_sql(statement).one()
    return int(row[0]), int(row[1]), int(row[2])


def _rows(core: StoreCore, path: ShownPath, condition: str, values: Sequence[Any]) -> Iterator[TurnFigures]:
    statement = core.database.sql(f"SELECT {_COLUMNS} FROM turn WHERE tenant = ? AND {condition}")  # noqa: S608 - ours
    with core.database.read() as connection:
        rows = connection.exec_driver_sql(statement, (core.tenant, *values)).all()
        turns = [path.turn_at(connection, row[1], row[2]) for row in rows]
    yield from map(_figures, rows, turns)


def _figures(row: Sequence[Any], turn: int | None) -> TurnFigures:
    ident, branch, _, view_id, model, status, told, cost, at, ended, session, error = row
    usage = _read_usage(told)
    totals = usage_totals(usage)
    read, written = totals["cache_read_tokens"], totals["cache_write_tokens"]
    miss = usage.get("cache_miss")
    about: dict[str, Any] = miss if isinstance(miss, dict) else {}
    missed = about.get("tokens")
    return TurnFigures(
        id=ident,
        turn=turn,
        branch=branch,
        view_id=view_id,
        model=model,
        status=status,
        at=at,
        seconds=None if ended is None else ended - at,
        session=session,
        error=error,
        prompt=totals["input_tokens"] + read + written,
        read=read,
        written=written,
        output=totals["output_tokens"],
        cost=cost or 0.0,
        missed=missed if isinstance(missed, int) else 0,
        missed_by=str(about.get("reason") or ""),
        missed_detail=str(about.get("detail") or ""),
        usage=usage,
    )


def _read_usage(told: str | None) -> dict[str, Any]:
    try:
        usage = orjson.loads(told) if told else {}
    except orjson.JSONDecodeError:
        return {}
    return usage if isinstance(usage, dict) else {}


# -- sizes -------------------------------------------------------------------------------------------------------------

MOST_BLOCKS = 500
"""The blocks of a stretch whose messages are all counted."""


class StretchSize(NamedTuple):
    """The size of a stretch of messages."""

    messages: int
    tokens: int


def size_along(
    core: StoreCore, connection: Connection, path: Sequence[Segment], low: int, high: int, counter: MessageCounter
) -> StretchSize:
    """Return the size of the messages at depths in ``(low, high]`` of a path.

    Of a stretch longer than `MOST_BLOCKS`, the newest messages stand for all.
    """
    entries = core.reader.entries(connection, list(path), max(low, high - MOST_BLOCKS), high)
    newest = [one for one in entries if one.id is not None]
    tokens = sum(counter.counts([one.message for one in newest]))
    stretch = [one._replace(low=max(low, one.low), high=min(high, one.high)) for one in path]
    messages = sum(count_messages(connection, [one for one in stretch if one.low < one.high]))
    return StretchSize(messages, tokens * messages // max(1, len(newest)))
