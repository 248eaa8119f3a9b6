"""Group commit: many small writes of one thread share a transaction, and with it the wait for the disk.

Each write stands by itself, behind a savepoint: one that fails takes nothing else with it. A batch is committed at its
end, however it ends, and in steps on the way, so that other writers never wait long. What a batch has written is seen
by its own thread at once and by all others after the commit.

A batch may also put rows off that nobody needs at once, and write many of them with one statement before anybody reads.
Should one of them turn out not to fit, nothing of the batch is stored, and all of it has to be done again without that.
Knows no table.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError

from everlong.errors import StoreBusy, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from everlong.store.database import Database

T = TypeVar("T")

STEP_SECONDS = 0.5
"""After this long, what a batch has written so far is committed."""

_SAVEPOINT = "everlong_write"


class DoAgain(StoreError):  # noqa: N818 - what to do
    """Rows that were put off did not fit: nothing of the batch is stored, and without putting off all of it can be."""


class NotLater(Exception):  # noqa: N818 - a signal
    """What is to be written has to be there at once."""


class _Rows(NamedTuple):
    rows: list[tuple[Any, ...]]
    is_counted: bool
    sort_by: int | None


class Batch:
    """The writes of one thread between two commits; one that ``puts_off`` is committed at its end only."""

    def __init__(self, database: Database, *, puts_off: bool = False) -> None:
        self._database = database
        self._transaction: RootTransaction | None = None
        self._since = 0.0
        self._lost: StoreError | None = None
        self.puts_off = puts_off
        self._later: dict[str, _Rows] = {}
        self._touched: set[int] = set()
        self.asked: dict[str, Any] = {}
        """What was asked once for the whole batch."""
        self._putting: list[tuple[str, _Rows]] | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection that sees what was written; None between two steps."""
        self._check()
        if self._transaction is None:
            return None
        if self._putting is None:
            self._write_rows(self._transaction.connection)
        return self._transaction.connection

    # -- rows that are put off -----------------------------------------------------------------------------------------

    @property
    def is_putting_off(self) -> bool:
        """Whether the work that runs may put rows off."""
        return self._putting is not None

    def put(self, statement: str, rows: list[tuple[Any, ...]], *, is_counted: bool, sort_by: int | None) -> None:
        """Put rows off until somebody reads, or the batch ends."""
        assert self._putting is not None  # noqa: S101 - asked before
        self._putting.append((statement, _Rows(rows, is_counted, sort_by)))

    def write_later(self, work: Callable[[Connection], T], touched: int) -> T:
        """Run work that reads of one thing, and puts off what it writes of it; `NotLater` where it cannot."""
        connection = self._opened()
        if touched in self._touched:
            self._write_rows(connection)
        self._putting = []
        try:
            result = work(connection)
            for statement, put in self._putting:
                self._later.setdefault(statement, put._replace(rows=[])).rows.extend(put.rows)
            if self._putting:
                self._touched.add(touched)
        except DBAPIError as error:
            self._give_up(self._database.backend.translated(error))
            raise self._database.backend.translated(error) from error
        finally:
            self._putting = None
        return result

    def _write_rows(self, connection: Connection) -> None:
        later, self._later = self._later, {}
        self._touched.clear()
        try:
            for statement, (rows, is_counted, sort_by) in later.items():
                if sort_by is not None:  # two writers of the same rows meet in one order, so neither deadlocks
                    rows.sort(key=itemgetter(sort_by))
                done = self._database.backend.run(connection, statement, rows)
                if is_counted and done.rowcount != len(rows):
                    self._give_up(DoAgain(f"{self._database.backend.where}: others have stored something just now"))
                    break
        except DBAPIError as error:
            self._give_up(self._database.backend.translated(error))
        self._check()

    def _give_up(self, error: StoreError) -> None:
        """Undo all of the batch."""
        self._lost, transaction = error, self._transaction
        self._transaction, self._later = None, {}
        if transaction is not None:
            connection = transaction.connection
            try:
                transaction.rollback()
            except DBAPIError:
                connection.invalidate()
            connection.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, work: Callable[[Connection], T], attempts: int, pause: Callable[[int], None]) -> T:
        """Run work behind a savepoint; run it again where the database asks for that."""
        backend = self._database.backend
        attempt = 0
        while True:
            attempt += 1
            connection = self._opened()
            self._write_rows(connection)
            try:
                backend.run(connection, f"SAVEPOINT {_SAVEPOINT}")  # in plain SQL: one for each small conversation
                result = work(connection)
                backend.run(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
            except DBAPIError as error:
                self._back_to_savepoint(connection, error)
                if attempt >= attempts or not backend.is_passing(error):
                    raise backend.translated(error) from error
                if self.puts_off:
                    self._give_up(StoreBusy(f"{backend.where}: another process writes the same; try again"))
                    self._check()
                self.commit()  # lets go of the rows that another process may be waiting for
            except BaseException as error:
                self._back_to_savepoint(connection, error)
                raise
            else:
                if not self.puts_off and time.monotonic() - self._since > STEP_SECONDS:
                    self.commit()
                return result
            pause(attempt)

    def commit(self) -> None:
        """Make durable what was written so far."""
        if self._transaction is not None and self._transaction.connection.invalidated:
            self._check()
        if self._transaction is not None:
            self._write_rows(self._transaction.connection)
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        try:
            transaction.commit()
        except DBAPIError as error:
            self._lost = self._database.backend.translated(error)
            raise self._lost from error
        finally:
            transaction.connection.close()

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
            connection.close()
        if self._lost is not None:
            raise self._lost

    def _opened(self) -> Connection:
        self._check()
        if self._transaction is None:
            with self._database.translating():
                connection = self._database.engine.connect()
            try:
                self._transaction = connection.begin()
            except BaseException as error:
                connection.close()
                if isinstance(error, DBAPIError):
                    raise self._database.backend.translated(error) from error
                raise
            self._since = time.monotonic()
        return self._transaction.connection

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
        connection.close()


def _is_alive(connection: Connection) -> bool:
    """Whether the transaction is still there: on a full disk SQLite rolls all of it back by itself."""
    if connection.invalidated:
        return False
    raw = connection.connection.driver_connection
    return raw.in_transaction if isinstance(raw, sqlite3.Connection) else True
