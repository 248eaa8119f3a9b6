"""Vectors: the models that make them, and their rows in the database.

An embedder turns texts into vectors, so that texts about the same thing lie close together. The store neither chooses
nor loads one: whoever opens the store hands it in. A message has one row of one byte per number, or waits for it.

A row never changes and later rows have higher ids, so a process reads each once. What is removed raises a number in the
state, after which a process reads all rows again. This module needs no numpy, so that words can be forgotten without
it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sqlalchemy import Connection, delete, func, select, update

from everlong.store.database import Database, in_batches
from everlong.store.schema import node, vector, vector_pending, vector_state

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PASSAGE_VERSION = 1
"""The version of the passages; vectors of another version are made anew."""

PASSAGE_CHARS = 900
"""The most characters of a passage: about 200 tokens. On long chats, more of each message found less."""

_LEAST_LINES = 0.6


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def model_id(self) -> str:
        """The name of the model; vectors of models with different names cannot be compared."""
        ...

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return a row of numbers for each text; some models read a query differently from a passage."""
        ...


def passage_of(text: str) -> str:
    """Return the passage that stands for a text: its beginning, up to the end of a line if one is near."""
    text = text.strip()
    if len(text) <= PASSAGE_CHARS:
        return text
    end = text.rfind("\n", int(_LEAST_LINES * PASSAGE_CHARS), PASSAGE_CHARS)
    return text[: end if end > 0 else PASSAGE_CHARS].strip()


def question_text(text: str, speakers: Iterable[str]) -> str:
    """Return a question as it would be put to a speaker: people say "I" where others ask for them by name."""
    names = sorted({name for speaker in speakers for name in (speaker, speaker.split(" ")[0]) if name}, key=len)
    if not names:
        return text
    pattern = "|".join(map(re.escape, reversed(names)))
    return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", "I", text, flags=re.IGNORECASE)


_LOCK = b"vectors"


class VectorRow(NamedTuple):
    """One vector: its scale, and its numbers, one byte each."""

    scale: float
    numbers: bytes


class VectorTable:
    """The vectors of a database, of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def model(self, connection: Connection) -> str | None:
        """Return the model whose vectors are kept; None if there never was one."""
        return connection.execute(select(vector_state.c.model)).scalar()

    def use_model(self, model: str) -> bool:
        """Keep the vectors of a model from now on, and list every message; return False if it is the model already."""
        with self._database.read() as connection:
            row = connection.execute(select(vector_state)).first()
        if row is not None and row.model == model and row.is_listed:
            return False
        self._database.write(lambda connection: self._begin(connection, model))
        # Only now: whoever indexes a message from here on sees the model and lists the message.
        self._database.write(self._list_all)
        return True

    def _begin(self, connection: Connection, model: str) -> None:
        self._database.backend.lock_name(connection, _LOCK)
        connection.execute(delete(vector).where(vector.c.model != model))
        connection.execute(delete(vector_state))
        values = {"model": model, "is_listed": False, "removed": 0, "ts": time.time()}
        connection.execute(vector_state.insert().values(values))

    def _list_all(self, connection: Connection) -> None:
        connection.execute(update(vector_state).values(is_listed=True))
        connection.exec_driver_sql(
            "INSERT INTO vector_pending (seq) SELECT seq FROM node WHERE true ON CONFLICT DO NOTHING"
        )

    def list_messages(self, connection: Connection, seqs: Iterable[int]) -> None:
        """Put messages on the list, in the transaction that indexes them, if vectors are kept at all."""
        rows = [(seq,) for seq in seqs if seq > 0]
        if rows and self.model(connection) is not None:
            statement = self._database.sql("INSERT INTO vector_pending (seq) VALUES (?) ON CONFLICT DO NOTHING")
            connection.exec_driver_sql(statement, rows)

    def listed(self, connection: Connection, limit: int) -> list[int]:
        """Return the numbers of messages that have no vectors yet, newest first."""
        query = select(vector_pending.c.seq).order_by(vector_pending.c.seq.desc()).limit(limit)
        return list(connection.execute(query).scalars())

    def count_listed(self, connection: Connection) -> int:
        """Return how many messages have no vectors yet."""
        return connection.execute(select(func.count()).select_from(vector_pending)).scalar_one()

    def add(self, connection: Connection, model: str, seqs: Sequence[int], rows: Mapping[int, VectorRow]) -> int:
        """Take messages off the list and keep their rows; return how many were still on it.

        A message that was forgotten meanwhile is off the list, so nothing is kept of it.
        """
        self._database.backend.lock_name(connection, _LOCK)
        if self.model(connection) != model:  # another process has changed the model
            return 0
        taken = self._claim(connection, seqs)
        statement = self._database.sql(
            "INSERT INTO vector (seq, tenant, model, scale, numbers) VALUES (?,?,?,?,?) ON CONFLICT DO NOTHING"
        )
        values = [
            (seq, tenant, model, *rows[seq])
            for part in in_batches(sorted(seq for seq in taken if seq in rows))
            for seq, tenant in connection.execute(select(node.c.seq, node.c.tenant).where(node.c.seq.in_(part)))
        ]
        if values:
            connection.exec_driver_sql(statement, values)
        return len(taken)

    def remove(self, connection: Connection, seqs: Iterable[int]) -> None:
        """Remove the rows of messages and take the messages off the list, in the transaction that forgets them."""
        gone = sorted({seq for seq in seqs if seq > 0})
        if not gone or self.model(connection) is None:
            return
        self._database.backend.lock_name(connection, _LOCK)
        self._claim(connection, gone)
        for part in in_batches(gone):
            connection.execute(delete(vector).where(vector.c.seq.in_(part)))
        connection.execute(update(vector_state).values(removed=vector_state.c.removed + 1))

    def _claim(self, connection: Connection, seqs: Sequence[int]) -> set[int]:
        """Take messages off the list; of several processes one gets each."""
        taken: set[int] = set()
        for part in in_batches(seqs):
            gone = delete(vector_pending).where(vector_pending.c.seq.in_(part)).returning(vector_pending.c.seq)
            taken.update(connection.execute(gone).scalars())
        return taken
