"""Reading a part of a conversation bit by bit: its messages without holding them all, how many they are.

Also the newest messages of the store. A whole conversation is read by `everlong.store.conversations`. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, func, select

from everlong.store.paths import Entry, message_of, segments_to
from everlong.store.schema import branch, content, node
from everlong.store.shown_path import Located, Place, locate

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.store.core import StoreCore
    from everlong.store.session import Session

STEP = 256
"""Blocks that are read at a time."""


class Newest(NamedTuple):
    """A message as it was recorded last; ``session`` is its conversation, ``turn`` its place in it.

    Where no conversation shows it, ``turn`` counts from its branch's beginning.
    """

    seq: int
    node: bytes
    session: str | None
    title: str | None
    turn: int
    role: str
    at: float
    message: Message


def entries_of(core: StoreCore, found: Session, low: int | None = None, high: int | None = None) -> Iterator[Entry]:
    """The messages of a session in order, some at a time; between two turns, the first one not included, if given."""
    if found.branch is None:
        return
    at = core.branch(found.branch)
    end = at.depth if found.to_depth is None else found.to_depth
    if high is not None:
        end = min(end, found.from_depth + high)
    start = found.from_depth + (low or 0)
    start = start if start > 0 else -1  # what precedes the first message belongs to it
    while start < end:
        stop = min(max(start, 0) + STEP, end)
        yield from core.entries(at, start, stop)
        start = stop


def message_counts(core: StoreCore, sessions: Sequence[Session]) -> dict[str, int]:
    """How many messages each session has."""
    with core.database.read() as connection:
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


def newest_messages(core: StoreCore, limit: int, *, after: int | None = None) -> list[Newest]:
    """The messages that were recorded last, oldest of them first; with ``after``, the first ones after that number."""
    held = (content.c.bytes, content.c.codec, content.c.state, content.c.stub)
    query = select(node, *held).join(content, content.c.digest == node.c.digest).where(node.c.tenant == core.tenant)
    if after is None:
        query = query.order_by(node.c.seq.desc()).limit(limit)
    else:
        query = query.where(node.c.seq > after).order_by(node.c.seq).limit(limit)
    with core.database.read() as connection:
        rows = sorted(connection.execute(query).all(), key=lambda row: row.seq)
        places = [Place(row.branch, row.depth, bytes(row.id)) for row in rows]
        located = locate(connection, core.tenant, places)
    return [_newest(row, located.get(place)) for row, place in zip(rows, places, strict=True)]


def _newest(row: Any, where: Located | None) -> Newest:
    message = message_of(row.bytes, row.codec, row.state, row.stub)
    ident, title, turn = (None, None, row.depth) if where is None else where[:3]
    return Newest(row.seq, bytes(row.id), ident, title, turn, row.role, row.ts, message)
