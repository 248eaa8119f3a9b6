"""Vectors in the database: blocks of rows of one byte per number, and the list of messages that wait for theirs.

A block holds up to `BLOCK` rows of one tenant and one model, in the order of the messages' numbers, one row for each
message. Blocks never change: whoever adds, joins or removes rows writes another block, with another id. So a process
may keep the blocks that it has read. Small blocks are joined when there are many. This module needs no numpy, so that
words can be forgotten without it.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, select

from everlong.errors import StoreDamaged
from everlong.store.database import Database, in_batches
from everlong.store.schema import node, vector_block, vector_pending, vector_state

__all__ = ["BLOCK", "VectorRow", "VectorTable", "seqs_of_block"]

BLOCK = 1_024
"""The rows of a full block."""

MOST_SMALL = 32
"""The number of small blocks of a tenant that are joined."""

STALE_AT_ONCE = 64
"""Blocks of an earlier model that are removed in one transaction."""

_LOCK = b"vectors"


class VectorRow(NamedTuple):
    """One row: the number of the message, the scale of the vector, and its numbers, one byte each."""

    seq: int
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
        self._database.write(lambda connection: self._write_state(connection, model, is_listed=False))
        # Only now: whoever indexes a message from here on sees the model and lists the message.
        self._database.write(lambda connection: self._list_all(connection, model))
        return True

    def _write_state(self, connection: Connection, model: str, *, is_listed: bool) -> None:
        self._database.backend.lock_name(connection, _LOCK)
        connection.execute(delete(vector_state))
        connection.execute(vector_state.insert().values(model=model, is_listed=is_listed, ts=time.time()))

    def _list_all(self, connection: Connection, model: str) -> None:
        self._write_state(connection, model, is_listed=True)
        connection.exec_driver_sql(
            "INSERT INTO vector_pending (seq) SELECT seq FROM node WHERE true ON CONFLICT DO NOTHING"
        )

    # -- the list ------------------------------------------------------------------------------------------------------

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

    def _claim(self, connection: Connection, seqs: Sequence[int]) -> set[int]:
        """Take messages off the list; of several processes one gets each."""
        taken: set[int] = set()
        for part in in_batches(seqs):
            gone = delete(vector_pending).where(vector_pending.c.seq.in_(part)).returning(vector_pending.c.seq)
            taken.update(connection.execute(gone).scalars())
        return taken

    # -- rows ----------------------------------------------------------------------------------------------------------

    def add(self, connection: Connection, model: str, seqs: Sequence[int], rows: Mapping[int, VectorRow]) -> int:
        """Take messages off the list and keep their rows; return how many were still on it.

        A message that was forgotten meanwhile is off the list, so nothing is kept of it.
        """
        self._database.backend.lock_name(connection, _LOCK)
        if self.model(connection) != model:  # another process has changed the model
            return 0
        taken = self._claim(connection, seqs)
        by_tenant: defaultdict[str, list[VectorRow]] = defaultdict(list)
        for part in in_batches(sorted(seq for seq in taken if seq in rows)):
            for seq, tenant in connection.execute(select(node.c.seq, node.c.tenant).where(node.c.seq.in_(part))):
                by_tenant[tenant].append(rows[seq])
        for tenant, own in sorted(by_tenant.items()):
            self._write(connection, tenant, model, own)
            self._join_small(connection, tenant, model)
        return len(taken)

    def holding(self, connection: Connection, model: str, seqs: Sequence[int]) -> set[int]:
        """Return the messages that have rows of a model."""
        wanted = set(seqs)
        found: set[int] = set()
        for block in self._blocks_with(connection, wanted):
            if block.model == model:
                found |= wanted.intersection(seqs_of_block(block))
        return found

    def remove(self, connection: Connection, seqs: Iterable[int]) -> None:
        """Remove all rows of messages and take the messages off the list, in the transaction that forgets them."""
        gone = {seq for seq in seqs if seq > 0}
        if not gone or self.model(connection) is None:
            return
        self._database.backend.lock_name(connection, _LOCK)
        self._claim(connection, sorted(gone))
        for block in list(self._blocks_with(connection, gone)):
            rows = list(_rows_of(block))
            left = [row for row in rows if row.seq not in gone]
            if len(left) < len(rows):
                connection.execute(delete(vector_block).where(vector_block.c.id == block.id))
                self._write(connection, block.tenant, block.model, left)

    def remove_stale(self, connection: Connection) -> int:
        """Remove some blocks of earlier models; return how many were removed."""
        old = select(vector_block.c.id).where(vector_block.c.model.not_in(select(vector_state.c.model)))
        ids = list(connection.execute(old.limit(STALE_AT_ONCE)).scalars())
        if ids:
            connection.execute(delete(vector_block).where(vector_block.c.id.in_(ids)))
        return len(ids)

    def has_stale(self, connection: Connection) -> bool:
        """Return whether there are blocks of earlier models."""
        old = select(vector_block.c.id).where(vector_block.c.model.not_in(select(vector_state.c.model)))
        return connection.execute(old.limit(1)).first() is not None

    def _blocks_with(self, connection: Connection, seqs: set[int]) -> Iterator[Any]:
        """Yield the blocks that may hold rows of messages."""
        if not seqs:
            return
        ranges = select(vector_block.c.id, vector_block.c.low, vector_block.c.high).where(
            vector_block.c.low <= max(seqs), vector_block.c.high >= min(seqs)
        )
        ordered = sorted(seqs)
        for ident, low, high in connection.execute(ranges).all():
            if any(low <= seq <= high for seq in ordered):
                row = connection.execute(select(vector_block).where(vector_block.c.id == ident)).first()
                if row is not None and not seqs.isdisjoint(seqs_of_block(row)):
                    yield row

    def _write(self, connection: Connection, tenant: str, model: str, rows: Sequence[VectorRow]) -> None:
        """Write rows as new blocks."""
        ordered = sorted(rows, key=lambda row: row.seq)
        for part in in_batches(ordered, BLOCK):
            connection.execute(
                vector_block.insert().values(
                    tenant=tenant,
                    model=model,
                    rows=len(part),
                    low=part[0].seq,
                    high=part[-1].seq,
                    seqs=struct.pack(f"<{len(part)}q", *(row.seq for row in part)),
                    scales=struct.pack(f"<{len(part)}f", *(row.scale for row in part)),
                    vectors=b"".join(row.numbers for row in part),
                )
            )

    def _join_small(self, connection: Connection, tenant: str, model: str) -> None:
        """Join the small blocks of a tenant if there are many, or enough for a full one."""
        small = select(vector_block.c.id, vector_block.c.rows).where(
            vector_block.c.tenant == tenant, vector_block.c.model == model, vector_block.c.rows < BLOCK
        )
        found = connection.execute(small.order_by(vector_block.c.low)).all()
        if len(found) < 2 or (len(found) < MOST_SMALL and sum(row.rows for row in found) < BLOCK):
            return
        ids = [row.id for row in found]
        rows = [
            row
            for part in in_batches(ids)
            for block in connection.execute(select(vector_block).where(vector_block.c.id.in_(part))).all()
            for row in _rows_of(block)
        ]
        for part in in_batches(ids):
            connection.execute(delete(vector_block).where(vector_block.c.id.in_(part)))
        self._write(connection, tenant, model, rows)


def seqs_of_block(block: Any) -> tuple[int, ...]:
    """Return the number of each row's message; raise `StoreDamaged` if the block is not whole."""
    sizes = (len(block.seqs) // 8, len(block.scales) // 4)
    if block.rows < 1 or sizes != (block.rows, block.rows) or not block.vectors or len(block.vectors) % block.rows:
        raise StoreDamaged(f"block of vectors {block.id} is not whole")
    return struct.unpack(f"<{block.rows}q", bytes(block.seqs))


def _rows_of(block: Any) -> Iterator[VectorRow]:
    numbers = bytes(block.vectors)
    size = len(numbers) // block.rows
    scales = struct.unpack(f"<{block.rows}f", bytes(block.scales))
    for place, (seq, scale) in enumerate(zip(seqs_of_block(block), scales, strict=True)):
        yield VectorRow(seq, scale, numbers[place * size : (place + 1) * size])
