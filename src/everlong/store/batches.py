"""Group commit: many small writes of one thread share a transaction, and with it the wait for the disk.

Each write stands by itself, behind a savepoint: one that fails takes nothing else with it. A batch is committed at its
end, however it ends, and in steps on the way, so that other writers never wait long. What a batch has written is seen
by its own thread at once and by all others after the commit. Knows no table.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError

from everlong.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from everlong.store.database import Database

T = TypeVar("T")

STEP_SECONDS = 0.5
"""After this long, what a batch has written so far is committed."""

_SAVEPOINT = "everlong_write"


class Batch:
    """The writes of one thread between two commits."""

    def __init__(self, database: Database, wait: float | None = None) -> None:
        self._database = database
        self._wait = wait
        self._transaction: RootTransaction | None = None
        self._since = 0.0
        self._lost: StoreError | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection that sees what was written; None between two steps."""
        self._check()
        return None if self._transaction is None else self._transaction.connection

    def write(self, work: Callable[[Connection], T], attempts: int, pause: Callable[[int], None]) -> T:
        """Run work behind a savepoint; run it again where the database asks for that."""
        backend = self._database.backend
        attempt = 0
        while True:
            attempt += 1
            connection = self._opened()
            try:
                backend.run(connection, f"SAVEPOINT {_SAVEPOINT}")  # in plain SQL: one for each small conversation
                result = work(connection)
                backend.run(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
            except DBAPIError as error:
                self._back_to_savepoint(connection, error)
                if attempt >= attempts or not backend.is_passing(error):
                    raise backend.translated(error) from error
                self.commit()  # lets go of the rows that another process may be waiting for
            except BaseException as error:
                self._back_to_savepoint(connection, error)
                raise
            else:
                if time.monotonic() - self._since > STEP_SECONDS:
                    self.commit()
                return result
            pause(attempt)

    def commit(self) -> None:
        """Make durable what was written so far."""
        if self._transaction is not None and self._transaction.connection.invalidated:
            self._check()
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        backend = self._database.backend
        try:
            counts = backend.counts(transaction.connection)
            transaction.commit()
            backend.committed(counts)
        except DBAPIError as error:
            self._lost = self._database.backend.translated(error)
            raise self._lost from error
        finally:
            try:
                transaction.connection.close()
            finally:
                backend.end_writing()

    def close(self) -> None:
        """Commit, and say so where something that looked written is not."""
        self.commit()
        if self._lost is not None:
            raise self._lost

    def _check(self) -> None:
        """Say that the step is lost where its connection is, be it that somebody who only read noticed it."""
        if self._transaction is not None and self._transaction.connection.invalidated:
            connection, self._transaction = self._transaction.connection, None
            where = self._database.backend.where
            self._lost = StoreUnavailable(f"{where}: the connection was lost while something was stored; try again")
            self._database.backend.end_writing()
            connection.close()
        if self._lost is not None:
            raise self._lost

    def _opened(self) -> Connection:
        self._check()
        if self._transaction is None:
            backend = self._database.backend
            left = backend.begin_writing(self._wait)
            try:
                self._transaction = self._begun(None if self._wait is None else left)
            except BaseException:
                backend.end_writing()
                raise
            self._since = time.monotonic()
        return self._transaction.connection

    def _begun(self, wait: float | None) -> RootTransaction:
        with self._database.translating():
            connection = self._database.engine.connect()
        try:
            with self._database.backend.waiting(connection, wait):
                return connection.begin()
        except BaseException as error:
            connection.close()
            if isinstance(error, DBAPIError):
                raise self._database.backend.translated(error) from error
            raise

    def _back_to_savepoint(self, connection: Connection, error: BaseException) -> None:
        """Undo one write; where the database has undone more than that, what was in the step is lost."""
        try:
            if _is_alive(connection):
                connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
                return
        except DBAPIError as worse:
            error = worse
        backend = self._database.backend
        self._lost = backend.translated(error) if isinstance(error, DBAPIError) else StoreError(str(error))
        self._transaction = None
        connection.invalidate()
        backend.end_writing()
        connection.close()


def _is_alive(connection: Connection) -> bool:
    """Whether the transaction is still there: on a full disk SQLite rolls all of it back by itself."""
    if connection.invalidated:
        return False
    raw = connection.connection.driver_connection
    return raw.in_transaction if isinstance(raw, sqlite3.Connection) else True
