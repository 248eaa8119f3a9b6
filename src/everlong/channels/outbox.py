"""The outbox: answers from their beginning to the last message that carries them.

An answer is stored before it is worked on, again when its text is ready, and with each message that delivers a part of
it. A restart goes on from there: no text is written twice, and no part is sent twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from everlong.agent.text import sendable
from everlong.channels.places import bind_in, is_at, place_columns
from everlong.channels.platform import Place
from everlong.store.schema import channel_answer, channel_update

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["AnswerKind", "Outbox", "OutboxAnswer", "insert_answer"]

AnswerKind = Literal["turn", "command", "notice"]


@dataclass(frozen=True, slots=True)
class OutboxAnswer:
    """Something that goes out, as far as it has come."""

    id: int
    place: Place
    kind: str
    state: str
    """``working``, ``ready``, ``delivered`` or ``failed``."""
    conversation: str | None
    depth: int
    """Where the conversation stood before the turn."""
    replies_to: str
    text: str
    messages: tuple[str, ...]
    """The platform's messages that carry it, in order; empty for a file whose sending was begun."""
    done: int
    """The number of messages that have their final text."""


class Outbox:
    """The stored answers of one platform, from the first message to the delivery."""

    def __init__(self, store: Store, platform: str, clock: Callable[[], float] = time.time) -> None:
        self._database, self._tenant, self._platform = store.database, store.tenant, platform
        self._clock = clock

    def get(self, number: int) -> OutboxAnswer:
        """Return an answer by its number."""
        with self._database.read() as connection:
            return _answer(connection.execute(select(channel_answer).where(channel_answer.c.id == number)).one())

    def open(self, place: Place) -> list[OutboxAnswer]:
        """Return the answers of a place that are not delivered, the oldest first."""
        table = channel_answer
        unfinished = and_(is_at(table, self._tenant, place), table.c.state.in_(["working", "ready"]))
        with self._database.read() as connection:
            rows = connection.execute(select(table).where(unfinished).order_by(table.c.id)).all()
        return [_answer(row) for row in rows]

    def places(self) -> list[Place]:
        """Return the places with answers that are not delivered."""
        table = channel_answer
        unfinished = and_(table.c.tenant == self._tenant, table.c.platform == self._platform)
        query = select(table.c.chat, table.c.topic).where(unfinished, table.c.state.in_(["working", "ready"]))
        with self._database.read() as connection:
            return [Place(self._platform, row.chat, row.topic) for row in connection.execute(query.distinct())]

    def add(self, place: Place, kind: AnswerKind, text: str) -> int:
        """Store a text that is ready to go out."""

        def work(connection: Connection) -> int:
            return insert_answer(connection, self._tenant, place, kind, self._clock(), text=text)

        return self._database.write(work)

    def begin(self, answer: OutboxAnswer, conversation: str, depth: int) -> None:
        """Note where the conversation stands before a turn, and bind the place to it."""

        def work(connection: Connection) -> None:
            bind_in(connection, self._tenant, answer.place, conversation, self._clock())
            _set(connection, answer.id, conversation=conversation, depth=depth)

        self._database.write(work)

    def finish(self, number: int, text: str, *, starts_anew: bool = False) -> OutboxAnswer:
        """Store the text of an answer; its messages are answered, and their words stand in the conversation.

        Args:
            number: the answer.
            text: its text.
            starts_anew: True if the place begins another conversation with its next message.
        """

        def work(connection: Connection) -> None:
            if starts_anew:
                row = connection.execute(select(channel_answer).where(channel_answer.c.id == number)).one()
                bind_in(connection, self._tenant, Place(row.platform, row.chat, row.topic), None, self._clock())
            _set(connection, number, state="ready", text=sendable(text))
            mine = channel_update.c.answer == number
            connection.execute(update(channel_update).where(mine).values(state="answered", data=None))

        self._database.write(work)
        return self.get(number)

    def note_messages(self, number: int, messages: tuple[str, ...], done: int) -> OutboxAnswer:
        """Store how far the delivery has come."""
        values = {"messages": json.dumps(messages), "done": done}
        self._database.write(lambda connection: _set(connection, number, **values))
        return self.get(number)

    def close(self, number: int, *, is_delivered: bool) -> None:
        """Note that an answer is delivered, or can never be; its text is not kept here."""
        state = "delivered" if is_delivered else "failed"
        self._database.write(lambda connection: _set(connection, number, state=state, text=None))

    def prune(self, before: float) -> None:
        """Remove answers of the time before that are delivered or never will be."""
        c = channel_answer.c
        mine = and_(c.tenant == self._tenant, c.platform == self._platform)
        old = and_(mine, c.state.in_(["delivered", "failed"]), c.ts < before)
        self._database.write(lambda connection: connection.execute(delete(channel_answer).where(old)))


def insert_answer(
    connection: Connection,
    tenant: str,
    place: Place,
    kind: str,
    now: float,
    *,
    text: str | None = None,
    replies_to: str = "",
) -> int:
    """Insert an answer, ready if it has a text, in a transaction that is under way; return its number."""
    values = {
        **place_columns(tenant, place),
        "kind": kind,
        "state": "working" if text is None else "ready",
        "replies_to": replies_to,
        "text": None if text is None else sendable(text),
        "messages": "[]",
        "done": 0,
        "ts": now,
    }
    made = connection.execute(insert(channel_answer).values(**values).returning(channel_answer.c.id))
    return int(made.scalar_one())


def _set(connection: Connection, number: int, **values: Any) -> None:
    connection.execute(update(channel_answer).where(channel_answer.c.id == number).values(**values))


def _answer(row: Row[Any]) -> OutboxAnswer:
    return OutboxAnswer(
        row.id,
        Place(row.platform, row.chat, row.topic),
        row.kind,
        row.state,
        row.conversation,
        row.depth or 0,
        row.replies_to,
        row.text or "",
        tuple(json.loads(row.messages)),
        row.done,
    )
