"""The list of conversations, page by page: which ones, and what there is to choose from.

The database chooses, so that a page costs the same in a store of any size. Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Select, case, func, select

from everlong.store.schema import compaction, receipt, session, turn

_MOST_CHOICES = 50
"""The most clients, folders or models that are offered, the most recently active."""


class ListCursor(NamedTuple):
    """The place in the list after which the next page begins: the last conversation of the page before."""

    active: float
    conversation: str


@dataclass(frozen=True, slots=True)
class ConversationFilters:
    """The conversations that count; a filter of None does not matter. Times are seconds since 1970."""

    client: str | None = None
    source: str | None = None
    folder: str | None = None
    """Only those that have worked in this folder."""
    folders: tuple[str, ...] | None = None
    """Only those that have worked in one of these folders."""
    model: str | None = None
    since: float | None = None
    """Only those in which something was said at or after this moment."""
    before: float | None = None
    """Only those that began before this moment."""
    least_cost: float | None = None
    """Only those that cost at least so many US dollars."""
    is_compacted: bool | None = None
    kinds: tuple[Literal["main", "side", "agent"], ...] = ("main",)

    @property
    def is_empty(self) -> bool:
        """True if every conversation of these kinds counts."""
        return self == ConversationFilters(kinds=self.kinds)


class ConversationChoices(NamedTuple):
    """The values that a filter may take, the most recently active first."""

    clients: tuple[str, ...]
    folders: tuple[str, ...]
    models: tuple[str, ...]


def names_in(
    connection: Connection,
    tenant: str,
    filters: ConversationFilters,
    limit: int | None = None,
    after: ListCursor | None = None,
) -> list[str]:
    """Return the ids of all conversations or of one page, the most recently active first."""
    last = func.max(session.c.active)
    query = (
        select(session.c.conversation)
        .where(session.c.tenant == tenant, session.c.kind.in_(list(filters.kinds)))
        .group_by(session.c.conversation)
        .order_by(last.desc(), session.c.conversation.desc())
        .limit(limit)
    )
    for name in ("client", "source", "folder", "model"):
        wanted = getattr(filters, name)
        if wanted is not None:
            query = query.where(session.c.conversation.in_(_named(tenant, session.c[name] == wanted)))
    if filters.folders is not None:
        query = query.where(session.c.conversation.in_(_named(tenant, session.c.folder.in_(list(filters.folders)))))
    if filters.since is not None:
        query = query.having(last >= filters.since)
    if filters.before is not None:
        query = query.having(func.min(session.c.started) < filters.before)
    if filters.least_cost is not None:
        aside = _paid_aside(tenant)
        query = query.outerjoin(aside, aside.c.conversation == session.c.conversation)
        paid = func.sum(session.c.cost) + func.coalesce(func.max(aside.c.cost), 0.0)
        query = query.having(paid >= filters.least_cost)
    if filters.is_compacted is not None:
        compacted = _named(tenant, session.c.id.in_(select(compaction.c.session).where(compaction.c.tenant == tenant)))
        chosen = session.c.conversation.in_(compacted)
        query = query.where(chosen if filters.is_compacted else ~chosen)
    if after is not None:
        is_older = last < after.active
        query = query.having(is_older | ((last == after.active) & (session.c.conversation < after.conversation)))
    return [str(name) for name in connection.execute(query).scalars()]


def _named(tenant: str, condition: Any) -> Select[tuple[str]]:
    return select(session.c.conversation).where(session.c.tenant == tenant, condition)


def _paid_aside(tenant: str) -> Any:
    """Return the costs of the calls on the side of each conversation."""
    part = session.alias("part")
    return (
        select(part.c.conversation, func.sum(receipt.c.cost).label("cost"))
        .select_from(receipt.join(part, part.c.id == receipt.c.session))
        .where(receipt.c.tenant == tenant)
        .group_by(part.c.conversation)
        .subquery("aside")
    )


def choices_in(connection: Connection, tenant: str) -> ConversationChoices:
    """Return what the conversations of a tenant can be chosen by."""
    found = []
    for column in (session.c.client, session.c.folder, session.c.model):
        query = (
            select(column)
            .where(session.c.tenant == tenant, session.c.kind == "main", column.is_not(None), column != "")
            .group_by(column)
            .order_by(func.max(session.c.active).desc())
            .limit(_MOST_CHOICES)
        )
        found.append(tuple(connection.execute(query).scalars().all()))
    return ConversationChoices(*found)


def conversations_in(connection: Connection, tenant: str, folders: Sequence[str]) -> list[str]:
    """Return the ids of all conversations that work in one of some folders now, of every kind."""
    inside = select(session.c.conversation).where(session.c.tenant == tenant, session.c.folder.in_(list(folders)))
    query = (
        select(session.c.conversation, session.c.folder)
        .where(session.c.tenant == tenant, session.c.conversation.in_(inside))
        .order_by(session.c.started, session.c.id)
    )
    newest = {str(name): folder for name, folder in connection.execute(query)}  # its last part says where it is now
    return [name for name, folder in newest.items() if folder in folders]


def live_among(connection: Connection, tenant: str, parts: Sequence[str]) -> set[str]:
    """Return those of some sessions in which a request waits for its answer."""
    query = select(turn.c.session).where(
        turn.c.tenant == tenant, turn.c.status == "open", turn.c.session.in_(list(parts))
    )
    return {str(name) for name in connection.execute(query).scalars() if name is not None}


def only_failed_among(connection: Connection, tenant: str, parts: Sequence[str]) -> set[str]:
    """Return those of some sessions that have requests, all of which failed without a word of a reply."""
    is_failure = (turn.c.status == "failed") & turn.c.reply.is_(None)
    query = (
        select(turn.c.session)
        .where(turn.c.tenant == tenant, turn.c.session.in_(list(parts)))
        .group_by(turn.c.session)
        .having(func.sum(case((is_failure, 0), else_=1)) == 0)
    )
    return {str(name) for name in connection.execute(query).scalars()}
