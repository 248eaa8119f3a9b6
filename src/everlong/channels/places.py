"""Places in the store: which conversation each chat and topic is about, and what it was about before.

A place is bound to a conversation, not to a session: compactions change sessions and never the binding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Table, and_, select, text, update

from everlong.channels.platform import Place
from everlong.store.schema import channel_conversation, channel_place

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = [
    "ChatPlaces",
    "PlaceRecord",
    "insert_new",
    "is_at",
    "place_columns",
]


@dataclass(frozen=True, slots=True)
class PlaceRecord:
    """The stored state of a place: its conversation, model and last activity."""

    place: Place
    conversation: str | None = None
    model: str | None = None
    active: float = 0.0
    """When the last turn ended; 0 before the first."""


def is_at(table: Table, tenant: str, place: Place) -> ColumnElement[bool]:
    """Return the condition for the rows of a table that belong to a place."""
    c = table.c
    return and_(c.tenant == tenant, c.platform == place.platform, c.chat == place.chat, c.topic == place.topic)


def place_columns(tenant: str, place: Place) -> dict[str, str]:
    """Return the columns that say where a row belongs."""
    return {"tenant": tenant, "platform": place.platform, "chat": place.chat, "topic": place.topic}


class ChatPlaces:
    """The places of one tenant."""

    def __init__(self, store: Store) -> None:
        self._database, self._tenant = store.database, store.tenant

    def get(self, place: Place) -> PlaceRecord:
        """Return what is known of a place; nothing but itself where it is new."""
        with self._database.read() as connection:
            row = connection.execute(select(channel_place).where(is_at(channel_place, self._tenant, place))).first()
        if row is None:
            return PlaceRecord(place)
        return PlaceRecord(place, row.conversation, row.model, row.active)

    def all(self, platform: str | None = None) -> list[PlaceRecord]:
        """Return all places, those that were used last first."""
        query = select(channel_place).where(channel_place.c.tenant == self._tenant)
        if platform is not None:
            query = query.where(channel_place.c.platform == platform)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(channel_place.c.active.desc())).all()
        return [
            PlaceRecord(Place(row.platform, row.chat, row.topic), row.conversation, row.model, row.active)
            for row in rows
        ]

    def bind(self, place: Place, conversation: str | None, now: float) -> None:
        """Bind a place to a conversation, or to none yet."""
        self._database.write(lambda connection: bind_in(connection, self._tenant, place, conversation, now))

    def touch(self, place: Place, now: float) -> None:
        """Note that a turn ended."""
        self._change(place, active=now)

    def use_model(self, place: Place, model: str | None) -> None:
        """Note the model that was chosen in a place."""
        self._change(place, model=model)

    def conversations(self, place: Place) -> list[str]:
        """Return every conversation that a place was ever about, the newest first."""
        table = channel_conversation
        query = select(table.c.conversation).where(is_at(table, self._tenant, place)).order_by(table.c.ts.desc())
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def _change(self, place: Place, **values: Any) -> None:
        self._database.write(lambda connection: _update_place(connection, self._tenant, place, **values))


def bind_in(connection: Connection, tenant: str, place: Place, conversation: str | None, now: float) -> None:
    """Bind a place to a conversation, in a transaction that is under way."""
    _ensure(connection, tenant, place)
    _update_place(connection, tenant, place, conversation=conversation)
    if conversation is not None:
        _remember(connection, tenant, place, conversation, now)


def _update_place(connection: Connection, tenant: str, place: Place, **values: Any) -> None:
    connection.execute(update(channel_place).where(is_at(channel_place, tenant, place)).values(**values))


def _ensure(connection: Connection, tenant: str, place: Place) -> None:
    values = {"chat": place.chat, "topic": place.topic, "active": 0.0}
    insert_new(connection, channel_place, values, tenant, place.platform)


def _remember(connection: Connection, tenant: str, place: Place, conversation: str, now: float) -> None:
    values = {"chat": place.chat, "topic": place.topic, "conversation": conversation, "ts": now}
    insert_new(connection, channel_conversation, values, tenant, place.platform)


def insert_new(connection: Connection, table: Table, values: dict[str, Any], tenant: str, platform: str) -> None:
    """Insert a row unless there is one with the same key."""
    row = {"tenant": tenant, "platform": platform, **values}
    names = ", ".join(row)
    marks = ", ".join(f":{name}" for name in row)
    statement = f"INSERT INTO {table.name} ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - constants
    connection.execute(text(statement), row)
