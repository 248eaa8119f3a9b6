"""Filters as a person gives them (a conversation, a role, times), turned into stretches of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, or_, select

from everlong.errors import NotStored, QueryError
from everlong.store.paths import segments_to
from everlong.store.schema import branch, session
from everlong.store.search.index import Scope, Stretch
from everlong.store.shown_path import parts_of, shown_paths


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents count; what is None does not matter.

    ``session`` takes what a conversation shows, by the id of any of its parts. ``role`` is a message's role, or
    ``summary``. ``tool`` takes calls of a tool and its answers. Times are seconds since 1970.
    ``path`` takes what leads to a depth of a branch, with what its client has left out of it since.
    """

    session: str | None = None
    path: tuple[int, int] | None = None
    role: str | None = None
    tool: str | None = None
    since: float | None = None
    before: float | None = None


def scope_for(connection: Connection, tenant: str, filters: Filters, upto: int) -> Scope:
    """The scope of a search; raises `NotStored` for a session that is not there."""
    if filters.session is not None and filters.path is not None:
        raise QueryError("a search takes a session or a path, not both; leave one of them out")
    stretches: tuple[Stretch, ...] | None = None
    if filters.session is not None:
        stretches = tuple(dict.fromkeys(_shown(connection, tenant, filters.session)))
    elif filters.path is not None:
        stretches = tuple(dict.fromkeys(_leading(connection, tenant, *filters.path)))
    return Scope(tenant, stretches, filters.role, filters.since, filters.before, upto=upto)


def _shown(connection: Connection, tenant: str, name: str) -> Iterator[Stretch]:
    """Yield what a conversation shows, by the id of any of its parts."""
    mine = select(session.c.conversation).where(session.c.tenant == tenant)
    conversation = connection.execute(mine.where(or_(session.c.id == name, session.c.conversation == name))).scalar()
    if conversation is None:
        raise NotStored(f"there is no conversation {name!r}; `everlong sessions list` shows those that there are")
    parts = parts_of(connection, tenant, [conversation])
    for part in shown_paths(connection, tenant, parts)[conversation].stretches():
        yield Stretch(part.branch, part.low, part.high)


def _leading(connection: Connection, tenant: str, number: int, depth: int) -> Iterator[Stretch]:
    """Yield what leads to a place, and the earlier parts of its conversation that its client has thinned out."""
    yield from (Stretch(part.branch, part.low, part.high) for part in segments_to(connection, number, depth))
    here = select(session.c.conversation).where(session.c.tenant == tenant, session.c.branch == number)
    thinned = select(session.c.id).where(session.c.conversation.in_(here), session.c.end_reason == "cleared")
    for name in connection.execute(thinned).scalars().all():
        yield from _stretches(connection, tenant, name)


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
