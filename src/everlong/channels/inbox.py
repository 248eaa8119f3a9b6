"""The inbox: everything that came in, stored before the platform is told that it arrived.

Each event counts once by its id. A message waits, is worked on, and is answered; its words are then part of a
conversation, and only its ids stay here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, and_, delete, func, select, update

from everlong.agent.text import sendable
from everlong.channels.outbox import insert_answer
from everlong.channels.places import is_at, place_columns
from everlong.channels.platform import Attachment, Inbound, Person, Place
from everlong.store.schema import channel_update

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["KEPT_SECONDS", "Claim", "Inbox", "KeptAs", "StoredEvent"]

KeptAs = Literal["new", "known", "dropped", "full"]
"""The outcome of storing an event: new, already known, dealt with, or no room."""

KEPT_SECONDS = 30 * 86_400.0
"""Seconds for which the ids of messages and answers are kept once they are dealt with."""


class StoredEvent(NamedTuple):
    """An event with its number in the store."""

    number: int
    event: Inbound


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages that are answered together, and the answer that was begun for them."""

    answer: int
    events: tuple[StoredEvent, ...]


class Inbox:
    """The stored events of one bot.

    Args:
        store: keeps it.
        platform: the platform's name.
        bot: the bot's id; another bot counts its events anew.
        clock: the time.
    """

    def __init__(self, store: Store, platform: str, bot: str = "", clock: Callable[[], float] = time.time) -> None:
        self._database, self._tenant = store.database, store.tenant
        self._platform, self.bot, self._clock = platform, bot, clock

    def keep(self, event: Inbound, most: int, *, is_done: bool = False) -> KeptAs:
        """Store an event, on disk when this returns.

        Args:
            event: the event.
            most: how many messages of one place may wait.
            is_done: True to note only that it came, because it was dealt with.
        """

        def work(connection: Connection) -> KeptAs:
            number = self._insert(connection, event)
            if number is None:
                return "known"
            is_full = self._count(connection, event.place) > most
            kept: KeptAs = "dropped" if is_done else "full" if is_full else "new"
            if kept != "new":
                self._set(connection, [number], state="dropped", data=None)
            return kept

        return self._database.write(work)

    def places(self) -> list[Place]:
        """Return the places with messages that wait or are worked on."""
        table = channel_update
        mine = and_(table.c.tenant == self._tenant, table.c.platform == self._platform)
        query = select(table.c.chat, table.c.topic).where(mine, table.c.state.in_(["waiting", "working"])).distinct()
        with self._database.read() as connection:
            return [Place(self._platform, row.chat, row.topic) for row in connection.execute(query)]

    def claim(
        self, place: Place, choose: Callable[[Sequence[Inbound]], int], kind: Callable[[Inbound], str]
    ) -> Claim | None:
        """Begin the answer to the oldest messages that wait in a place; None if none does.

        Args:
            place: the place.
            choose: returns how many of the waiting messages are answered together.
            kind: returns the kind of answer that an event gets.
        """

        def work(connection: Connection) -> Claim | None:
            waiting = self._rows(connection, place, "waiting")
            if not waiting:
                return None
            taken = waiting[: choose([one.event for one in waiting])]
            last = taken[-1].event
            is_plain = last.is_private and not last.callback  # a command waits for its reply also in a private chat
            replies_to = "" if is_plain else last.message
            answer = insert_answer(connection, self._tenant, place, kind(last), self._clock(), replies_to=replies_to)
            self._set(connection, [one.number for one in taken], state="working", answer=answer)
            return Claim(answer, tuple(taken))

        return self._database.write(work)

    def claim_of(self, answer: int) -> Claim:
        """Return the messages of an answer that was begun earlier."""
        query = select(channel_update).where(channel_update.c.answer == answer, channel_update.c.state == "working")
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(channel_update.c.id)).all()
        return Claim(answer, tuple(_read_row(row) for row in rows if row.data is not None))

    def prune(self, before: float) -> None:
        """Remove messages of the time before that were dealt with; no platform repeats an event after so long."""
        c = channel_update.c
        mine = and_(c.tenant == self._tenant, c.platform == self._platform)
        old = and_(mine, c.state.in_(["answered", "dropped"]), c.ts < before)
        self._database.write(lambda connection: connection.execute(delete(channel_update).where(old)))

    # -- inside a transaction ------------------------------------------------------------------------------------------

    def _insert(self, connection: Connection, event: Inbound) -> int | None:
        statement = self._database.sql(
            "INSERT INTO channel_update (tenant, platform, ident, kind, chat, topic, person, message, state, data, ts)"
            " VALUES (?,?,?,?,?,?,?,?,'waiting',?,?) ON CONFLICT (tenant, platform, ident) DO NOTHING RETURNING id"
        )
        at = place_columns(self._tenant, event.place)
        ident = f"{self.bot}/{event.update}"
        values = (at["tenant"], at["platform"], ident, event.kind, at["chat"], at["topic"], event.person.id)
        more = (event.message, _pack(event), self._clock())
        row = connection.exec_driver_sql(statement, (*values, *more)).first()
        return None if row is None else int(row[0])

    def _count(self, connection: Connection, place: Place) -> int:
        table = channel_update
        query = select(func.count()).where(is_at(table, self._tenant, place), table.c.state == "waiting")
        return int(connection.execute(query).scalar_one())

    def _rows(self, connection: Connection, place: Place, state: str) -> list[StoredEvent]:
        table = channel_update
        query = select(table).where(is_at(table, self._tenant, place), table.c.state == state).order_by(table.c.id)
        return [_read_row(row) for row in connection.execute(query) if row.data is not None]

    def _set(self, connection: Connection, numbers: Sequence[int], **values: Any) -> None:
        connection.execute(update(channel_update).where(channel_update.c.id.in_(numbers)).values(**values))


def _pack(event: Inbound) -> str:
    """Return an event as the text of a row; `_read_row` reads it."""
    return sendable(json.dumps(asdict(event), ensure_ascii=False))


def _read_row(row: Any) -> StoredEvent:
    values = json.loads(row.data)
    values["place"] = Place(**values["place"])
    values["person"] = Person(**values["person"])
    values["attachments"] = tuple(Attachment(**one) for one in values["attachments"])
    return StoredEvent(row.id, Inbound(**values))
