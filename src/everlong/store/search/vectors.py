"""Vectors: the models that make them, and their rows in the database.

An embedder turns texts into vectors, so that texts about the same thing lie close together. The store neither chooses
nor loads one: whoever opens the store hands it in. A message has one row of two bytes per number, or waits for it; one
that says nothing has a row without numbers.

A row never changes and later rows have higher ids, so a process reads each once. What is removed raises a number in the
state, after which a process reads all rows again. This module needs no numpy, so that words can be forgotten without
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import Connection, delete, exists, func, select, update

from everlong.store.database import Database, in_batches
from everlong.store.schema import content, node, vector, vector_state

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
_LACKS_ROW = exists().where(content.c.digest == node.c.digest, content.c.state == "live") & ~exists().where(
    vector.c.seq == node.c.seq
)


class VectorTable:
    """The vectors of a database, of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def model(self, connection: Connection) -> str | None:
        """Return the model whose vectors are kept; None if there never was one."""
        return connection.execute(select(vector_state.c.model)).scalar()

    def use_model(self, connection: Connection, model: str) -> bool:
        """Keep the vectors of a model from now on; return False if it is the model already."""
        self._database.backend.lock_name(connection, _LOCK)
        if self.model(connection) == model:
            return False
        connection.execute(delete(vector).where(vector.c.model != model))
        connection.execute(delete(vector_state))
        connection.execute(vector_state.insert().values(model=model, removed=0))
        return True

    def missing(self, connection: Connection, after: int, limit: int) -> list[int]:
        """Return the numbers of messages without a row, from a number on, oldest first."""
        query = select(node.c.seq).where(_LACKS_ROW, node.c.seq > after).order_by(node.c.seq).limit(limit)
        return list(connection.execute(query).scalars())

    def count_missing(self, connection: Connection) -> int:
        """Return how many messages have no row yet."""
        return connection.execute(select(func.count()).select_from(node).where(_LACKS_ROW)).scalar_one()

    def add(self, connection: Connection, model: str, rows: Mapping[int, bytes]) -> bool:
        """Keep the rows of messages, without those that were forgotten meanwhile; return False for another model."""
        self._database.backend.lock_name(connection, _LOCK)
        if self.model(connection) != model:  # another process has changed the model
            return False
        kept = select(node.c.seq, node.c.tenant).where(_LACKS_ROW, node.c.seq.in_(rows))
        values = [(seq, tenant, model, rows[seq]) for seq, tenant in connection.execute(kept)]
        if values:
            insert = "INSERT INTO vector (seq, tenant, model, numbers) VALUES (?,?,?,?)"
            connection.exec_driver_sql(self._database.sql(insert), values)
        return True

    def remove(self, connection: Connection, seqs: Iterable[int]) -> None:
        """Remove the rows of messages, in the transaction that forgets them."""
        gone = sorted({seq for seq in seqs if seq > 0})
        if not gone or self.model(connection) is None:
            return
        self._database.backend.lock_name(connection, _LOCK)
        for part in in_batches(gone):
            connection.execute(delete(vector).where(vector.c.seq.in_(part)))
        connection.execute(update(vector_state).values(removed=vector_state.c.removed + 1))
