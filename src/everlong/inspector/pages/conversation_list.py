"""The list of conversations: one page of rows, and the filters that there are."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from everlong.redaction import redact
from everlong.store.conversations import ConversationChoices, ConversationFilters, ListCursor

if TYPE_CHECKING:
    from everlong.store import Conversation, Store

__all__ = ["PAGE", "ActiveDay", "ConversationRow", "ListPage", "read_filters", "read_list", "row_of"]

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

    id: str
    title: str
    client: str
    folder: str
    model: str
    started: float
    active: float
    messages: int
    compactions: int
    agents: int
    tokens: int
    cost: float
    is_live: bool


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
    return ConversationRow(
        id=one.id,
        title=one.title or str((one.origin or {}).get("file") or ""),
        client=one.client or one.source,
        folder=one.folder or "",
        model=one.model or "",
        started=one.started,
        active=one.active,
        messages=one.messages,
        compactions=one.compactions,
        agents=one.agents,
        tokens=one.input_tokens + one.cache_read_tokens + one.cache_write_tokens + one.output_tokens,
        cost=one.cost,
        is_live=is_waiting and time.time() - one.active < LIVE_SECONDS,
    )


def _without_secrets(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values that can be offered: one with a secret in it cannot stand in a form."""
    return tuple(value for value in values if redact(value) == value)


def _read_cursor(text: str) -> ListCursor | None:
    active, mark, name = text.partition("~")
    try:
        return ListCursor(float(active), name) if mark and math.isfinite(float(active)) else None
    except ValueError:
        return None
