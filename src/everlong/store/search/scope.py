"""Filters as a person gives them (a session, a lineage, a role, times), turned into stretches of the tree."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from everlong.errors import NotStored, QueryError
from everlong.store.paths import segments_to
from everlong.store.schema import branch, session
from everlong.store.search.index import Scope, Stretch


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents count; what is None does not matter.

    ``session`` takes one session, ``lineage`` all sessions that it continues and that continue it. ``role`` is a
    message's role, or ``summary``. ``tool`` takes calls of a tool and its answers. Times are seconds since 1970.
    """

    session: str | None = None
    lineage: str | None = None
    role: str | None = None
    tool: str | None = None
    since: float | None = None
    before: float | None = None


def scope_for(connection: Connection, tenant: str, filters: Filters, upto: int) -> Scope:
    """The scope of a search; raises `NotStored` for a session that is not there."""
    if filters.session is not None and filters.lineage is not None:
        raise QueryError("a search takes a session or a lineage, not both; leave one of them out")
    stretches: tuple[Stretch, ...] | None = None
    if filters.session is not None:
        stretches = tuple(_stretches(connection, tenant, filters.session))
    elif filters.lineage is not None:
        members = _lineage(connection, tenant, filters.lineage)
        stretches = tuple(dict.fromkeys(part for name in members for part in _stretches(connection, tenant, name)))
    return Scope(tenant, stretches, filters.role, filters.since, filters.before, upto=upto)


def _stretches(connection: Connection, tenant: str, name: str) -> list[Stretch]:
    row = connection.execute(
        select(session.c.branch, session.c.from_depth, session.c.to_depth).where(
            session.c.tenant == tenant, session.c.id == name
        )
    ).first()
    if row is None:
        raise NotStored(f"there is no session {name!r}; `everlong sessions list` shows those that there are")
    if row.branch is None:
        return []
    end = row.to_depth
    if end is None:
        end = connection.execute(select(branch.c.head_depth).where(branch.c.id == row.branch)).scalar_one()
    low = row.from_depth
    return [
        Stretch(part.branch, max(part.low, low), part.high)
        for part in segments_to(connection, row.branch, end)
        if part.high > low
    ]


def _lineage(connection: Connection, tenant: str, name: str) -> list[str]:
    """All sessions of a tree of sessions, from any of them."""
    links = connection.execute(select(session.c.id, session.c.parent).where(session.c.tenant == tenant)).all()
    parent = {row.id: row.parent for row in links}
    if name not in parent:
        raise NotStored(f"there is no session {name!r}; `everlong sessions list` shows those that there are")
    children: dict[str, list[str]] = {}
    for child, above in parent.items():
        if above is not None:
            children.setdefault(above, []).append(child)
    root, seen = name, {name}
    while (above := parent.get(root)) is not None and above in parent and above not in seen:
        root = above
        seen.add(root)
    members: dict[str, None] = {}
    waiting = [root]
    while waiting:
        member = waiting.pop()
        if member not in members:
            members[member] = None
            waiting += children.get(member, [])
    return list(members)
