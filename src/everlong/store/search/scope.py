"""The scope of a search: the documents that its filters leave, as conditions that every statement takes over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, or_, select

from everlong.errors import NotStored, QueryError
from everlong.store.database import ask
from everlong.store.paths import Segment, segments_to, stretch_of
from everlong.store.schema import node, session
from everlong.store.sessions import conversations_in
from everlong.store.shown_path import parts_of, shown_paths

MAX_NUMBER = (1 << 40) - 1
"""The highest number that a document can have."""

_MOST_STRETCHES = 200
"""Stretches that are conditions of a statement: databases nest these only so deep. `SearchScope.holds` checks more."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The documents that count; a filter of None does not matter.

    ``session`` takes what a conversation shows, by the id of any of its parts. ``role`` is a message's role, or
    ``summary``. ``tool`` takes calls of a tool and its answers. Times are seconds since 1970.
    ``path`` takes what leads to a depth of a branch, with what its client has left out of it since. ``folders`` takes
    what conversations show that work in one of these folders now.
    """

    session: str | None = None
    path: tuple[int, int] | None = None
    role: str | None = None
    tool: str | None = None
    since: float | None = None
    before: float | None = None
    folders: tuple[str, ...] | None = None


class Source(NamedTuple):
    """Documents of one kind: their rows, the conditions on these with their values, and the names of columns."""

    rows: str
    where: str
    values: tuple[Any, ...]
    seq: str
    ts: str
    low: int
    high: int
    """The lowest and the highest number that a document among them can have."""


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The documents that count: those of a tenant, or of all, and only some of them if a filter is set."""

    tenant: str | None = None
    stretches: tuple[Segment, ...] | None = None
    role: str | None = None
    since: float | None = None
    before: float | None = None
    bounds: tuple[int, int] = (1, MAX_NUMBER)
    """The lowest and the highest number that a message in it can have."""
    has_summaries: bool = True

    @property
    def is_filtered(self) -> bool:
        """True if not all messages of the tenant are in it."""
        return (self.stretches, self.role, self.since, self.before) != (None, None, None, None)

    def sources(self) -> list[Source]:
        """Return where its documents are: messages, summaries or both."""
        found: list[Source] = []
        if self.role != "summary":
            where, values = self._conditions("n.tenant", "n.branch", "n.depth", "n.ts")
            if self.role is not None:
                where, values = f"{where} AND n.role = ?", (*values, self.role)
            found.append(Source("node n", where, values, "n.seq", "n.ts", *self.bounds))
        if self.has_summaries and self.role in {None, "summary"}:
            where, values = self._conditions("v.tenant", "v.branch", "i.to_depth", "v.ts")
            where += " AND v.state <> 'void' AND i.kind = 'new'"
            found.append(
                Source("view_item i JOIN view v ON v.id = i.view", where, values, "-i.seq", "v.ts", -MAX_NUMBER, -1)
            )
        return found

    def _conditions(self, tenant: str, branch: str, depth: str, ts: str) -> tuple[str, tuple[Any, ...]]:
        sql, values = "1 = 1", list[Any]()
        if self.tenant is not None:
            sql, values = f"{tenant} = ?", [self.tenant]
        if self.stretches is not None and len(self.stretches) <= _MOST_STRETCHES:
            parts = [f"({branch} = ? AND {depth} > ? AND {depth} <= ?)"] * len(self.stretches)
            sql += f" AND ({' OR '.join(parts) or '1 = 0'})"
            values += [value for one in self.stretches for value in one[:3]]
        elif self.stretches is not None:
            sql += f" AND {branch} IN ({', '.join(str(one.branch) for one in self.stretches)})"
        for sign, limit in ((">=", self.since), ("<", self.before)):
            if limit is not None:
                sql += f" AND {ts} {sign} ?"
                values.append(limit)
        return sql, tuple(values)

    def holds(self, branch: int, depth: int) -> bool:
        """Return whether a place is on one of its stretches."""
        if self.stretches is None or len(self.stretches) <= _MOST_STRETCHES:  # a condition of every statement
            return True
        return any(one.holds(branch, depth) for one in self.stretches)


EVERYTHING = SearchScope()


def scope_for(connection: Connection, tenant: str, filters: Filters, upto: int) -> SearchScope:
    """Return the scope of a search up to a message; raise `NotStored` for a session that does not exist."""
    if sum(one is not None for one in (filters.session, filters.path, filters.folders)) > 1:
        raise QueryError("a search takes a session, a path or folders, not both; leave one of them out")
    stretches = _stretches(connection, tenant, filters)
    low, high = 1, upto
    if stretches is not None and len(stretches) <= _MOST_STRETCHES:
        ends = [end for stretch in stretches for end in _ends_of(connection, stretch)]
        low, high = min(ends, default=1), min(upto, max(ends, default=0))
    has_summaries = ask(connection, "SELECT 1 FROM view_item WHERE kind = 'new' LIMIT 1").fetchone()
    limits = (filters.role, filters.since, filters.before)
    return SearchScope(tenant, stretches, *limits, bounds=(low, high), has_summaries=has_summaries is not None)


def _ends_of(connection: Connection, stretch: Segment) -> list[int]:
    """Return the lowest and the highest number in a stretch: a message is stored after the one that it follows."""
    numbers = select(node.c.seq).where(
        node.c.branch == stretch.branch, node.c.depth > stretch.low, node.c.depth <= stretch.high
    )
    first = connection.execute(numbers.order_by(node.c.depth).limit(1)).scalar()
    last = connection.execute(numbers.order_by(node.c.depth.desc()).limit(1)).scalar()
    return [end for end in (first, last) if end is not None]


def _stretches(connection: Connection, tenant: str, filters: Filters) -> tuple[Segment, ...] | None:
    """Return what a conversation, a path or the conversations of some folders show; None for everything."""
    if filters.path is not None:
        return tuple(_stretches_to(connection, tenant, *filters.path))
    if filters.session is not None:
        name = filters.session
        mine = select(session.c.conversation).where(session.c.tenant == tenant)
        found = connection.execute(mine.where(or_(session.c.id == name, session.c.conversation == name))).scalar()
        if found is None:
            raise NotStored(f"there is no conversation {name!r}; `everlong sessions list` shows those that there are")
        names = [found]
    elif filters.folders is not None:
        names = conversations_in(connection, tenant, filters.folders)
    else:
        return None
    paths = shown_paths(connection, tenant, parts_of(connection, tenant, names))
    return tuple(part for shown in paths.values() for part in shown.stretches())


def _stretches_to(connection: Connection, tenant: str, number: int, depth: int) -> Iterator[Segment]:
    """Yield what leads to a place, and the earlier parts of its conversation that its client has thinned out."""
    yield from segments_to(connection, number, depth)
    here = select(session.c.conversation).where(session.c.tenant == tenant, session.c.branch == number)
    thinned = select(session).where(session.c.conversation.in_(here), session.c.end_reason == "cleared")
    for row in connection.execute(thinned).all():
        if row.branch is not None:
            yield from stretch_of(connection, row)
