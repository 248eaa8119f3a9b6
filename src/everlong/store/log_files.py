"""Log files of other clients: which are imported as they are, so that a later run reads only what has changed.

A row has no words of a conversation. It is written after the messages that it speaks for, which can be imported twice
without harm; so whoever dies in between reads a little more the next time, and two who import at once do not disturb
each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select

from everlong.store.database import in_batches
from everlong.store.schema import log_file

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What shows without reading it that a file has changed."""

    size: int
    mtime: int
    inode: str


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A log file, as far as it is imported."""

    file: str
    client: str
    stamp: FileStamp
    """The file when it was last read to its end."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The place up to which a database was read, as values of JSON."""


class LogFiles:
    """The log files that one tenant has imported."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._database = core.database
        self._put = self._database.sql(
            "INSERT INTO log_file (tenant, file, client, size, mtime, inode, state, ts)"
            " VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (tenant, file) DO UPDATE SET client = excluded.client,"
            " size = excluded.size, mtime = excluded.mtime, inode = excluded.inode,"
            " state = excluded.state, ts = excluded.ts"
        )

    def all_stamps(self) -> dict[str, FileStamp]:
        """Return all files with their stamps."""
        query = select(log_file.c.file, log_file.c.size, log_file.c.mtime, log_file.c.inode)
        with self._database.read() as connection:
            rows = connection.execute(query.where(log_file.c.tenant == self._core.tenant)).all()
        return {row.file: FileStamp(row.size, row.mtime, row.inode) for row in rows}

    def get(self, file: str) -> KnownLog | None:
        """Return a file; None if nothing of it is imported."""
        query = select(log_file).where(log_file.c.tenant == self._core.tenant, log_file.c.file == file)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        stamp = FileStamp(row.size, row.mtime, row.inode)
        return KnownLog(row.file, row.client, stamp, json.loads(row.state))

    def put(self, known: KnownLog) -> None:
        """Note that a file is imported."""
        stamp = known.stamp
        values = (
            *(self._core.tenant, known.file, known.client, stamp.size, stamp.mtime, stamp.inode),
            *(json.dumps(dict(known.state)), time.time()),
        )
        self._database.write(lambda connection: self._database.backend.run(connection, self._put, values))

    def drop(self, files: list[str]) -> None:
        """Forget that some files were imported."""
        for some in in_batches(files):
            gone = delete(log_file).where(log_file.c.tenant == self._core.tenant, log_file.c.file.in_(some))
            self._database.write(lambda connection, gone=gone: connection.execute(gone).rowcount)  # type: ignore[misc]
