"""Reading a session bit by bit: its messages without holding them all, how many they are, the newest of the store.

A message's turn is its place in its session, counted in blocks from the session's beginning, as search hits count it.
This module reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, func, select

from everlong.store.paths import Entry, message_of, segments_to
from everlong.store.schema import branch, content, node, session

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.store.session import Session
    from everlong.store.store import Store

STEP = 256
"""Blocks that are read at a time."""


class Newest(NamedTuple):
    """A message as it was recorded last; ``turn`` counts from its branch's beginning where it is in no session."""

    seq: int
    node: bytes
    session: str | None
    title: str | None
    turn: int
    role: str
    at: float
    message: Message


def entries_of(store: Store, found: Session, low: int | None = None, high: int | None = None) -> Iterator[Entry]:
    """The messages of a session in order, some at a time; between two turns, the first one not included, if given."""
    if found.branch is None:
        return
    at = store.branch(found.branch)
    end = at.depth if found.to_depth is None else found.to_depth
    if high is not None:
        end = min(end, found.from_depth + high)
    start = found.from_depth + (low or 0)
    start = start if start > 0 else -1  # what precedes the first message belongs to it
    while start < end:
        stop = min(max(start, 0) + STEP, end)
        yield from store.entries(at, start, stop)
        start = stop


def message_counts(store: Store, sessions: Sequence[Session]) -> dict[str, int]:
    """How many messages each session has."""
    with store.database.read() as connection:
        return {one.id: _count(connection, one) for one in sessions}


def _count(connection: Connection, one: Session) -> int:
    if one.branch is None:
        return 0
    end = one.to_depth
    if end is None:
        end = connection.execute(select(branch.c.head_depth).where(branch.c.id == one.branch)).scalar() or 0
    total = 0
    for part in segments_to(connection, one.branch, end):
        low = max(part.low, one.from_depth)
        if low < part.high:
            inside = (node.c.branch == part.branch, node.c.depth > low, node.c.depth <= part.high)
            total += connection.execute(select(func.count()).select_from(node).where(*inside)).scalar_one()
    return total


def newest_messages(store: Store, limit: int, *, after: int | None = None) -> list[Newest]:
    """The messages that were recorded last, oldest of them first; with ``after``, the first ones after that number."""
    held = (content.c.bytes, content.c.codec, content.c.state, content.c.stub)
    query = select(node, *held).join(content, content.c.digest == node.c.digest).where(node.c.tenant == store.tenant)
    if after is None:
        query = query.order_by(node.c.seq.desc()).limit(limit)
    else:
        query = query.where(node.c.seq > after).order_by(node.c.seq).limit(limit)
    with store.database.read() as connection:
        rows = sorted(connection.execute(query).all(), key=lambda row: row.seq)
        spans = _sessions_on(connection, store.tenant, {row.branch for row in rows})
    return [_newest(row, spans.get(row.branch, ())) for row in rows]


def _sessions_on(connection: Connection, tenant: str, numbers: set[int]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    query = select(session.c.id, session.c.title, session.c.branch, session.c.from_depth, session.c.to_depth)
    query = query.where(session.c.tenant == tenant, session.c.branch.in_(sorted(numbers))).order_by(session.c.started)
    for row in connection.execute(query):
        found.setdefault(row.branch, []).append(row)
    return found


def _newest(row: Any, spans: Sequence[Any]) -> Newest:
    over = [one for one in spans if one.from_depth < row.depth and (one.to_depth is None or row.depth <= one.to_depth)]
    one = over[-1] if over else None
    message = message_of(row.bytes, row.codec, row.state, row.stub)
    turn = row.depth - (one.from_depth if one else 0)
    ident, title = (one.id, one.title) if one else (None, None)
    return Newest(row.seq, bytes(row.id), ident, title, turn, row.role, row.ts, message)
