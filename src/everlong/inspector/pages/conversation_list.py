"""The list of conversations: one page of rows, and the filters that there are."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select

from everlong.errors import NotStored
from everlong.redaction import redact
from everlong.store.conversations import ConversationChoices, ConversationFilters, ListCursor
from everlong.store.schema import session

if TYPE_CHECKING:
    from everlong.store import Conversation, Store

__all__ = ["PAGE", "agents_cost", "read_list", "read_tree", "row_of"]

PAGE = 50
"""Conversations on one page of the list."""
LIVE_SECONDS = 900.0
"""Seconds after the last word in which a request may wait for its answer; a longer one was broken off."""
_DAY = 86_400.0
_DAYS = 84
"""Days of which the activity is shown."""
_EPOCH = date(1970, 1, 1).toordinal()
_AGES = {"1d": 1, "7d": 7, "30d": 30, "365d": 365}


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One conversation of the list."""

    of: Conversation
    is_live: bool = False

    @property
    def tokens(self) -> int:
        """All tokens of its requests and answers."""
        one = self.of
        return one.input_tokens + one.cache_read_tokens + one.cache_write_tokens + one.output_tokens


class ActiveDay(NamedTuple):
    """The conversations that were last active on a day."""

    day: str
    conversations: int
    cost: float


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of the list."""

    rows: tuple[ConversationRow, ...]
    days: tuple[ActiveDay, ...]
    """The conversations of each day, oldest first; empty if only one day has any."""
    filters: ConversationFilters
    age: str
    choices: ConversationChoices
    next_cursor: str | None
    is_first: bool
    is_store_empty: bool


def read_filters(query: Mapping[str, str]) -> tuple[ConversationFilters, str]:
    """Return the filters that an address names, and the age among them; a value that cannot be read is no filter."""

    def text(name: str) -> str | None:
        return query.get(name, "").strip()[:1_000] or None

    age = query.get("age", "")
    days = _AGES.get(age)
    try:
        cost = float(query.get("cost", ""))
    except ValueError:
        cost = math.nan
    filters = ConversationFilters(
        client=text("client"),
        folder=text("folder"),
        model=text("model"),
        since=None if days is None else time.time() - days * _DAY,
        least_cost=cost if math.isfinite(cost) and cost > 0 else None,
        is_compacted={"yes": True, "no": False}.get(query.get("compacted", "")),
    )
    return filters, age if days is not None else ""


def read_list(store: Store, query: Mapping[str, str]) -> ListPage:
    """Return the page of the list that an address names."""
    filters, age = read_filters(query)
    after = _read_cursor(query.get("after", ""))
    found = store.conversations.page(filters, limit=PAGE + 1, after=after)
    shown = found[:PAGE]
    waiting = store.conversations.waiting(shown)
    cursor = f"{shown[-1].active!r}~{shown[-1].id}" if len(found) > PAGE else None
    return ListPage(
        rows=tuple(row_of(one, is_waiting=one.id in waiting) for one in shown),
        days=read_days(store) if after is None and filters.is_empty else (),
        filters=filters,
        age=age,
        choices=ConversationChoices(*map(_without_secrets, store.conversations.choices())),
        next_cursor=cursor,
        is_first=after is None,
        is_store_empty=not found and after is None and filters.is_empty and not store.conversations.count(),
    )


def read_days(store: Store) -> tuple[ActiveDay, ...]:
    """Return the conversations of each of the last days."""
    now = datetime.now().astimezone()
    offset = now.utcoffset() or timedelta()
    today = int(now.timestamp() + offset.total_seconds()) // int(_DAY)
    statement = store.database.sql(
        f"SELECT (CAST(active AS BIGINT) + {int(offset.total_seconds())}) / 86400, count(DISTINCT conversation),"  # noqa: S608 - numbers
        " sum(cost) FROM session WHERE tenant = ? AND active >= ? GROUP BY 1"
    )
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(statement, (store.tenant, now.timestamp() - _DAYS * _DAY)).all()
    found = {int(day): (int(count), float(cost or 0.0)) for day, count, cost in rows}
    if len(found) < 2:  # one bar says nothing
        return ()
    days = range(today - _DAYS + 1, today + 1)
    return tuple(ActiveDay(str(date.fromordinal(_EPOCH + day)), *found.get(day, (0, 0.0))) for day in days)


def row_of(one: Conversation, *, is_waiting: bool = False) -> ConversationRow:
    """Return a conversation as a row of a list."""
    return ConversationRow(one, is_waiting and time.time() - one.active < LIVE_SECONDS)


def _without_secrets(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values that can be offered: one with a secret in it cannot stand in a form."""
    return tuple(value for value in values if redact(value) == value)


def _read_cursor(text: str) -> ListCursor | None:
    active, mark, name = text.partition("~")
    try:
        return ListCursor(float(active), name) if mark and math.isfinite(float(active)) else None
    except ValueError:
        return None


# -- the family of a conversation: its sub-agents and forks ------------------------------------------------------------


_MOST = 200
"""Conversations that a tree shows."""
_DEEPEST = 5


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A conversation of the tree and those that were begun from it."""

    row: ConversationRow
    children: tuple[FamilyMember, ...]


@dataclass(frozen=True, slots=True)
class TreePage:
    """The tree around a conversation, from its topmost ancestor on."""

    root: FamilyMember
    current: str
    is_cut: bool


def read_tree(store: Store, ident: str) -> TreePage:
    """Return the tree that a conversation is part of."""
    current = store.conversations.get(ident)
    top, seen = current, {current.id}
    while top.works_for and top.works_for not in seen:
        try:
            top = store.conversations.get(top.works_for)
        except NotStored:  # it was deleted
            break
        seen.add(top.id)
    reader = _Reader(store)
    root = reader.member(top.id, 0)
    return TreePage(root, current.id, reader.is_cut)


def agents_cost(store: Store, ident: str) -> float:
    """Return what the sub-agents that a conversation began have cost, without those that they began themselves."""
    query = select(func.coalesce(func.sum(session.c.cost), 0.0)).where(
        session.c.tenant == store.tenant, session.c.works_for == ident, session.c.kind == "agent"
    )
    with store.database.read() as connection:
        return float(connection.execute(query).scalar_one())


class _Reader:
    """Reads the members of one family, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: set[str] = set()
        self.is_cut = False

    def member(self, ident: str, depth: int) -> FamilyMember:
        self._seen.add(ident)
        found = self._store.conversations.get(ident)
        names = [name for name in self._children_of(found.id) if name not in self._seen]
        room = max(0, _MOST - len(self._seen)) if depth < _DEEPEST else 0
        self.is_cut |= len(names) > room
        children = tuple(self.member(name, depth + 1) for name in names[:room] if name not in self._seen)
        return FamilyMember(ConversationRow(found), children)

    def _children_of(self, ident: str) -> list[str]:
        query = (
            select(session.c.conversation)
            .where(session.c.tenant == self._store.tenant, session.c.works_for == ident)
            .group_by(session.c.conversation)
            .order_by(func.min(session.c.started))
            .limit(_MOST + 1)
        )
        with self._store.database.read() as connection:
            return [str(name) for name in connection.execute(query).scalars()]
