"""Opening a database and running transactions in it: retried where that helps, errors in our own words.

Which database it is decides a `Backend` (`everlong.store.sqlite`, `everlong.store.postgres`). This module knows no
table but the one that holds the schema's version.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Select
from sqlalchemy.exc import DBAPIError, InterfaceError

from everlong.errors import StoreError
from everlong.store.batches import Batch
from everlong.store.tally import Counts

T = TypeVar("T")

_log = logging.getLogger("everlong.store")

ATTEMPTS = 40
"""How often a transaction that lost against another is tried again before that counts as an error."""


class Backend(Protocol):
    """What differs between databases."""

    name: str
    mark: str
    """How a statement marks the place of a parameter."""
    where: str
    """The database as people know it, without a password."""
    lock: str
    """What a select in plain SQL ends with, to keep its rows from others until the transaction ends."""

    def engine(self) -> Engine:
        """Make connections; the file is created if need be."""
        ...

    def prepare(self, connection: Connection) -> None:
        """Take the lock under which the schema is made or brought up to date."""
        ...

    def keep_copy(self, engine: Engine, label: str) -> str | None:
        """Copy the database before its schema changes; where the copy is, None where none can be made from here."""
        ...

    def is_empty(self, connection: Connection) -> bool:
        """Whether nothing that could be ours or in our way is there yet."""
        ...

    def counts(self, connection: Connection) -> Counts | None:
        """Return how much was ever written, as a transaction sees it, where that is counted."""
        ...

    def committed(self, counts: Counts | None) -> None:
        """Hear that a transaction is committed that had counted so much."""
        ...

    def check_end(self, engine: Engine) -> str:
        """Return what is missing at the end of a database that is opened, in words; nothing where nothing is."""
        ...

    def problems(self, connection: Connection) -> Iterator[str]:
        """Yield what the database itself finds wrong with its files."""
        ...

    def translated(self, error: DBAPIError) -> StoreError:
        """A driver's error in our words."""
        ...

    def is_passing(self, error: DBAPIError) -> bool:
        """Whether the same transaction may succeed if it is simply run again."""
        ...

    def locked(self, statement: Select[Any]) -> Select[Any]:
        """The same select, keeping the rows from others until the transaction ends."""
        ...

    def run(self, connection: Connection, statement: str, parameters: Any = ()) -> Any:
        """Run a statement in plain SQL inside a writing transaction, once or for each of a list of parameters.

        What comes back has ``fetchone``, ``fetchall`` and ``rowcount``.
        """
        ...

    def begin_writing(self, wait: float | None = None) -> float:
        """Wait until this thread may begin a writing transaction; how many of the seconds to wait are left then.

        Raises:
            StoreBusy: other threads of this process write for longer than that.
        """
        ...

    def end_writing(self) -> None:
        """Say that the transaction is over, however it ended."""
        ...

    def waiting(self, connection: Connection, wait: float | None) -> AbstractContextManager[None]:
        """Wait only so many seconds for the lock on a file in a ``with`` block; as long as ever with None."""
        ...

    def lock_name(self, connection: Connection, name: bytes) -> None:
        """Keep others who lock the same name waiting until the transaction ends."""
        ...

    def now(self, connection: Connection) -> float:
        """The time on the clock that all processes of this database share."""
        ...


class TryAgain(Exception):  # noqa: N818 - a signal inside this package, never seen outside
    """Raised by the work of a transaction that found the world changed: roll back, and run it anew."""


class Database:
    """A database of one backend: reads, and transactions that are run again where that helps."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._own = threading.local()
        with self.translating():
            self.engine = backend.engine()

    @property
    def mark(self) -> str:
        """How a statement in plain SQL marks the place of a parameter."""
        return self.backend.mark

    def sql(self, statement: str) -> str:
        """A statement in plain SQL, written with question marks, as the driver wants it."""
        return statement.replace("?", self.backend.mark)

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except DBAPIError as error:
            raise self.backend.translated(error) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one moment of the database; inside a batch, what the batch has written too."""
        batch = self._batch
        if batch is not None and batch.connection is not None:
            with self.translating():
                yield batch.connection
            return
        with self.translating(), self.engine.connect() as connection:
            options = {"isolation_level": "REPEATABLE READ"} if self.backend.name == "postgresql" else {}
            connection.execution_options(everlong_read=True, **options)
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run work in one transaction and commit it; run it again where the database asks for that.

        `TryAgain` passes through after the roll-back: whoever raised it must look at the world anew first.
        """
        if self._batch is not None:
            return self._batch.write(work, ATTEMPTS, pause)
        attempt = 0
        while True:
            attempt += 1
            self.backend.begin_writing()
            try:
                with self.engine.begin() as connection:
                    result = work(connection)
                    counts = self.backend.counts(connection)
                self.backend.committed(counts)
            except (DBAPIError, InterfaceError) as error:
                if attempt >= ATTEMPTS or not self.backend.is_passing(error):
                    raise self.backend.translated(error) from error
            else:
                return result
            finally:
                self.backend.end_writing()
            pause(attempt)

    @contextmanager
    def batch(self, wait: float | None = None) -> Iterator[None]:
        """Commit what this thread writes in the block together, at its end; also where the block ends in an error.

        ``wait`` is how many seconds to wait for others who have locked a file; as long as everyone, if not given.
        """
        if self._batch is not None:  # part of the one around it
            yield
            return
        batch = self._own.batch = Batch(self, wait)
        try:
            yield
        finally:
            self._own.batch = None
            batch.close()

    @property
    def in_batch(self) -> bool:
        """Whether this thread is inside a batch."""
        return self._batch is not None

    @property
    def _batch(self) -> Batch | None:
        return getattr(self._own, "batch", None)


def pause(attempt: int) -> None:
    """Wait a moment, longer with each attempt and by chance, so that rivals part."""
    time.sleep(random.uniform(0, min(0.2, 0.002 * 2**attempt)))  # noqa: S311 - no secret
