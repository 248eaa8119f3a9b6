"""Paths: the stretches of branches that lead to a place, and the messages on them.

Knows the tables of the tree and how a row becomes a message; knows no view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, Row, Select, bindparam, or_, select, text

from everlong.errors import NotStored
from everlong.model import Message
from everlong.store.content import value_of
from everlong.store.database import Database, in_batches
from everlong.store.schema import branch, content, node, session
from everlong.store.tombstones import PLACEHOLDER, read_stub


class Segment(NamedTuple):
    """A stretch of one branch's own nodes: depths in ``(low, high]``."""

    branch: int
    low: int
    high: int
    is_last: bool

    def holds(self, number: int, depth: int) -> bool:
        """Return whether a node is on the stretch, by its own branch and its depth."""
        return self.branch == number and self.low < depth <= self.high


class Entry(NamedTuple):
    """One stored message of a conversation; those without identity have no ``id`` and the depth of the node before."""

    depth: int
    id: bytes | None
    seq: int
    digest: bytes
    message: Message
    ts: float
    forgotten: bool


UPWARDS = (
    "WITH RECURSIVE chain(id, parent, fork_depth, up) AS (SELECT id, parent, fork_depth, 0 FROM branch WHERE id = ?"
    " UNION ALL SELECT b.id, b.parent, b.fork_depth, chain.up + 1 FROM branch b JOIN chain ON b.id = chain.parent)"
    " SELECT id, parent, fork_depth FROM chain ORDER BY up"
)
"""A branch and those that it forked from, nearest first; plain SQL, because it is run with every turn."""

# Made once: to put a statement together takes several times as long as to run it.
_UPWARDS = text(UPWARDS.replace("?", ":number"))
_VALUES = select(content).where(content.c.digest.in_(bindparam("wanted", expanding=True)))


def segments_to(connection: Connection, number: int, depth: int) -> list[Segment]:
    """Return the stretches from the first message to a depth on a branch, in order."""
    return segments_of(connection.execute(_UPWARDS, {"number": number}).all(), depth)


def segments_of(rows: Sequence[Sequence[Any]], depth: int) -> list[Segment]:
    """Return the stretches up to a depth on the branches that `UPWARDS` has found."""
    found: list[Segment] = []
    high = depth
    for ident, parent, fork_depth in rows:
        if fork_depth < high or parent is None or not found:
            found.append(Segment(ident, min(fork_depth, high), high, is_last=not found))
        high = min(high, fork_depth)
    return found[::-1]


class Reader:
    """The reader of messages along paths, with statements that are prepared once."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._tenant = tenant
        held = "c.digest, c.bytes, c.codec, c.state, c.stub"
        self._nodes = database.sql(
            f"SELECT n.depth, n.id, n.seq, n.ts, {held} FROM node n JOIN content c ON c.digest = n.digest"  # noqa: S608
            " AND c.tenant = n.tenant WHERE n.branch = ? AND n.depth > ? AND n.depth <= ? AND n.tenant = ?"
            " ORDER BY n.depth"
        )
        self._asides = database.sql(
            f"SELECT a.depth, NULL, a.seq, a.first_ts, {held} FROM annex a JOIN content c ON c.digest = a.digest"  # noqa: S608
            " AND c.tenant = a.tenant WHERE a.branch = ? AND a.depth >= ? AND a.depth <= ? AND a.tenant = ? AND a.shown"
            " ORDER BY a.depth, a.ord"
        )

    def entries(self, connection: Connection, path: list[Segment], low: int, high: int) -> list[Entry]:
        """Return the messages at depths in ``(low, high]``, in order; a ``low`` of -1 adds what precedes the first."""
        found: list[Entry] = []
        for segment in path:
            if segment.low >= high and segment.low > 0:
                continue
            if segment.high <= low and not (segment.is_last and segment.high > low):
                continue
            found += self._of_segment(connection, segment, low, high)
        return found

    def _of_segment(self, connection: Connection, segment: Segment, low: int, high: int) -> Iterator[Entry]:
        bottom, top = max(low, segment.low), min(high, segment.high)
        nodes = connection.exec_driver_sql(self._nodes, (segment.branch, bottom, top, self._tenant)).all()
        # What follows the last node of a stretch belongs to the branch that goes on from there.
        first, last = max(low + 1, segment.low), min(high, segment.high if segment.is_last else segment.high - 1)
        beside = (segment.branch, first, last, self._tenant)
        asides = connection.exec_driver_sql(self._asides, beside).all() if first <= last else []
        if not asides:
            return map(entry_of, nodes)
        # Both are in order; a node stands before what follows it.
        return map(entry_of, sorted([*nodes, *asides], key=lambda row: (row[0], row[1] is None)))

    def values(self, connection: Connection, digests: Iterable[bytes]) -> dict[bytes, Any]:
        """Return contents by digest."""
        found: dict[bytes, Any] = {}
        for some in in_batches(sorted(set(digests))):
            for row in connection.execute(_VALUES, {"wanted": some}):
                found[bytes(row.digest)] = message_of(row.bytes, row.codec, row.state, row.stub)
        return found


def entry_of(row: Sequence[Any]) -> Entry:
    """Return a row of one of the reader's statements as an entry."""
    depth, ident, seq, ts, digest, data, codec, state, stub = row
    message = message_of(data, codec, state, stub)
    ident = None if ident is None else bytes(ident)
    return Entry(depth, ident, seq, bytes(digest), message, ts, state != "live")


def message_of(data: bytes | None, codec: int, state: str, stub: bytes | None) -> Any:
    """Return the value of a content; of a forgotten one, its shape."""
    if state == "live" and data is not None:
        return value_of(data, codec)
    return read_stub(stub)[0] if stub else {"role": "user", "content": PLACEHOLDER}


def leads_through(path: Iterable[Segment], number: int, depth: int) -> bool:
    """Return whether a node is on a path, by its own branch and its depth."""
    return any(part.holds(number, depth) for part in path)


def read_message(database: Database, tenant: str, ident: bytes) -> Any:
    """Return a stored message by its id; raises `NotStored` if there is none."""
    with database.read() as connection:
        row = connection.execute(
            select(content.c.bytes, content.c.codec, content.c.state, content.c.stub)
            .join(node, node.c.digest == content.c.digest)
            .where(node.c.id == ident, node.c.tenant == tenant)
        ).first()
    if row is None:
        raise NotStored(f"there is no message {ident.hex()} in {database.backend.where}")
    return message_of(*row)


def branches_of_tree(root: int | BindParameter[int], forked_from: int | BindParameter[int] = 0) -> Select[tuple[int]]:
    """Return the select for a branch and all that were forked from it at a depth or beyond, directly or not."""
    tree = select(branch.c.id).where(branch.c.id == root).cte("tree", recursive=True)
    forks = select(branch.c.id).where(branch.c.parent == tree.c.id, branch.c.fork_depth >= forked_from)
    return select(tree.union_all(forks).c.id)


def sessions_along(connection: Connection, tenant: str, path: Sequence[Segment]) -> list[Row[Any]]:
    """Return the sessions on the branches of a path and on the forks of its last one, newest first."""
    values = {"tenant": tenant, "path": [part.branch for part in path], "last": path[-1].branch}
    return list(connection.execute(_SESSIONS, values).all())


_SESSIONS = (  # made once, as the statements above
    select(session)
    .where(
        session.c.tenant == bindparam("tenant"),
        or_(
            session.c.branch.in_(bindparam("path", expanding=True)),
            session.c.branch.in_(branches_of_tree(bindparam("last", type_=branch.c.id.type))),
        ),
    )
    .order_by(session.c.started.desc(), session.c.id.desc())
)


def stretch_of(connection: Connection, row: Row[Any]) -> list[Segment]:
    """Return the stretches of branches that a session shows."""
    end = row.to_depth
    if end is None:
        end = connection.execute(select(branch.c.head_depth).where(branch.c.id == row.branch)).scalar() or 0
    parts = segments_to(connection, row.branch, end)
    return [part._replace(low=max(part.low, row.from_depth)) for part in parts if part.high > row.from_depth]
