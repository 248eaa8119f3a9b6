"""A database and its transactions: retried where that helps, with the driver's errors turned into ours.

The differences between databases are in a `Backend` (`everlong.store.sqlite`, `everlong.store.postgres`). This module
knows no table.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction, Select
from sqlalchemy.exc import DBAPIError

from everlong.errors import StoreBusy, StoreError, StoreUnavailable

T = TypeVar("T")

VALUES_AT_ONCE = 500
"""The values of one ``IN (…)``: no database takes any number."""

STEP_SECONDS = 0.5
"""The seconds after which a batch commits what it has written so far."""

_SHORT_SECONDS = 0.03
"""About the seconds for which one of many `ShortWrites` keeps others waiting."""

_LEAST_PAUSE = 0.004  # others look for the lock every three milliseconds

OTHERS_FIRST = "another process stored some of it at the same moment"

_SAVEPOINT = "everlong_write"

ATTEMPTS = 40
"""Attempts of a transaction that loses against others, before that counts as an error."""


class Counts(NamedTuple):
    """Numbers of the newest message and of the newest turn."""

    messages: int
    turns: int


class Backend:
    """The parts of a store that differ between databases; where a method has a body, most need no other."""

    name: str
    mark: str
    """The mark for a parameter in a statement."""
    where: str
    """The database as people know it, without a password."""
    address: str
    """The path or url by which another process opens it."""
    lock: str = ""
    """The end of a select in plain SQL that locks its rows until the transaction ends."""
    wait: float
    """The seconds to wait for other writers."""

    def engine(self) -> Engine:
        """Return the engine that makes connections; a file is created if it is not there."""
        raise NotImplementedError

    def is_empty(self, connection: Connection) -> bool:
        """Return whether the database has no table that could be ours or in our way."""
        raise NotImplementedError

    def translated(self, error: DBAPIError) -> StoreError:
        """Return a driver's error as one of ours."""
        raise NotImplementedError

    def run(self, connection: Connection, statement: str, parameters: Any = ()) -> Any:
        """Run a statement in plain SQL inside a writing transaction, once or for each of a list of parameters.

        What comes back has ``fetchone``, ``fetchall`` and ``rowcount``.
        """
        raise NotImplementedError

    def run_later(
        self, connection: Connection, statement: str, parameters: Any = (), *, changes_all: bool = False
    ) -> Any:
        """Run a statement at the latest with the next one; only then has it what `run` returns.

        Raises:
            TryAgain: it ``changes_all``, and has not changed or inserted every row, because others were there first.
        """
        done = self.run(connection, statement, parameters)
        if changes_all and done.rowcount != (len(parameters) if isinstance(parameters, list) else 1):
            raise TryAgain(OTHERS_FIRST)
        return done

    def run_rest(self, connection: Connection) -> None:
        """Run the statements that wait for the next one."""

    def drop_rest(self, connection: Connection) -> None:
        """Forget the statements that wait for the next one, back to the last savepoint among them."""

    def prepare(self, connection: Connection) -> None:
        """Take the lock under which the schema is created or upgraded, if a transaction does not have it already."""

    def counts(self, connection: Connection) -> Counts | None:
        """Return how much was ever written, as a transaction sees it; None if that is not counted."""
        del connection
        return None

    def note_committed(self, counts: Counts | None) -> None:
        """Note that a transaction with these counts is committed."""

    def limit_log(self, engine: Engine) -> None:
        """Keep the log of a file from growing without bound; called after commits, outside a transaction."""

    def announce_views(self) -> None:
        """Tell other processes that a person has changed a view; they see it in `view_mark`."""

    def view_mark(self) -> int:
        """Return a number that changes with every announcement, quick enough to be asked for with each request."""
        return 0

    def check_end(self, engine: Engine) -> str:
        """Return what is missing at the end of a database that is being opened, in words; empty if nothing is."""
        del engine
        return ""

    def problems(self, connection: Connection) -> Iterator[str]:
        """Yield the problems that the database itself finds in its files."""
        del connection
        return iter(())

    def losses(self) -> tuple[list[str], list[str]]:
        """Return what was ever found missing at its end, and what nobody can tell about that, in words."""
        return [], []

    def is_passing(self, error: DBAPIError) -> bool:
        """Return whether the same transaction may succeed if it is run again."""
        del error
        return False

    def locked(self, statement: Select[Any]) -> Select[Any]:
        """Return a select that locks its rows until the transaction ends, if a writing transaction is not alone."""
        return statement

    def begin_writing(self, wait: float | None = None) -> float:
        """Wait until this thread may begin a writing transaction; return the seconds of ``wait`` that are left.

        Raises:
            StoreBusy: other threads of this process write for longer than that.
        """
        return self.wait if wait is None else wait

    def end_writing(self) -> None:
        """Note that the transaction is over, however it ended."""

    def waiting(self, connection: Connection, wait: float | None) -> AbstractContextManager[None]:
        """Limit the seconds to wait for the lock on a file within a ``with`` block; None changes nothing."""
        del connection, wait
        return nullcontext()

    def lock_name(self, connection: Connection, name: bytes) -> None:
        """Lock a name from the next statement until the transaction ends, if a writing transaction is not alone."""

    def give_way(self, connection: Connection) -> None:
        """Have the rest of a transaction, which holds locks by now, wait for others only shortly."""

    def now(self, connection: Connection) -> float:
        """Return the time on the clock that all processes of this database share."""
        del connection
        return time.time()


class TryAgain(Exception):  # noqa: N818 - a signal inside this package, never seen outside
    """A sign from the work of a transaction that others have changed what it saw: roll back, and run it again."""


class _OwnBatch(threading.local):
    """The batch that a thread is inside."""

    batch: Batch | None = None


class Database:
    """A database of one backend: reads, and transactions that are run again where that helps."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._own = _OwnBatch()
        with self.translating():
            self.engine = backend.engine()

    def sql(self, statement: str) -> str:
        """Return a statement that is written with question marks as the driver wants it."""
        return statement.replace("?", self.backend.mark)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except _DRIVER_ERRORS as error:
            raise self.backend.translated(_as_dbapi_error(error)) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection that sees one moment of the database; inside a batch, also what the batch has written."""
        batch = self._own.batch
        if batch is not None and batch.connection is not None:
            with self.translating():
                yield batch.connection
            return
        with self.translating(), self.engine.connect() as connection:
            options = {"isolation_level": "REPEATABLE READ"} if self.backend.name == "postgresql" else {}
            connection.execution_options(everlong_read=True, **options)
            with connection.begin():  # `ask` goes to the driver, past what would begin by itself
                yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run work in one transaction and commit it; run it again if the database asks for that.

        `TryAgain` passes through after the roll-back: the caller must read again before it repeats the work (`retry`).
        """
        if self._own.batch is not None:
            return self._own.batch.write(work, ATTEMPTS, pause)
        attempt = 0
        while True:
            attempt += 1
            self.backend.begin_writing()
            try:
                with self.engine.begin() as connection:
                    result = work(connection)
                    self.backend.run_rest(connection)
                    counts = self.backend.counts(connection)
                self.backend.note_committed(counts)
            except _DRIVER_ERRORS as error:
                told = _as_dbapi_error(error)
                if attempt >= ATTEMPTS or not self.backend.is_passing(told):
                    raise self.backend.translated(told) from error
            else:
                self.backend.limit_log(self.engine)
                return result
            finally:
                self.backend.end_writing()
            pause(attempt)

    def retry(self, attempt_write: Callable[[int], T]) -> T:
        """Call a function that writes, with 0, 1, 2, …, until it no longer raises `TryAgain`.

        Raises:
            StoreBusy: It has given way to other writers too often.
        """
        for attempt in range(ATTEMPTS):
            try:
                return attempt_write(attempt)
            except TryAgain:
                pause(attempt)
        raise StoreBusy(f"{self.backend.where}: gave way to other writers {ATTEMPTS} times; try again")

    @contextmanager
    def batch(self, wait: float | None = None) -> Iterator[None]:
        """Commit what this thread writes in the block together at its end, even if the block ends in an error.

        ``wait`` is how many seconds to wait for others who have locked a file; as long as everyone, if not given.
        """
        if self._own.batch is not None:  # part of the one around it
            yield
            return
        batch, is_stopped = Batch(self, wait), False
        self._own.batch = batch
        try:
            yield
        except (KeyboardInterrupt, SystemExit):  # which say more than the write that they cut off
            is_stopped = True
            raise
        finally:
            self._own.batch = None
            with suppress(StoreError) if is_stopped else nullcontext():
                batch.close()

    @property
    def in_batch(self) -> bool:
        """True if this thread is inside a batch."""
        return self._own.batch is not None


class ShortWrites:
    """Transactions that follow one another, as large as may be without keeping others waiting."""

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._least, self._most = max(1, most // 4), most
        self.count = max(1, most // 2)
        """Number of items for the next transaction."""

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run work in one transaction; let others write for as long as they had to wait."""
        began = worked = 0.0

        def timed(connection: Connection) -> T:
            nonlocal began, worked
            began = time.monotonic()
            try:
                return work(connection)
            finally:
                worked = time.monotonic() - began

        result = self._database.write(timed)
        if worked > _SHORT_SECONDS:  # without the commit, which takes as long for a small one
            self.count = max(self._least, self.count // 2)
        elif worked < _SHORT_SECONDS / 2:
            self.count = min(self._most, self.count * 2)
        if not self._database.in_batch:
            time.sleep(max(_LEAST_PAUSE, time.monotonic() - began))
        return result


class Batch:
    """The writes of one thread between two commits."""

    def __init__(self, database: Database, wait: float | None = None) -> None:
        self._database = database
        self._wait = wait
        self._transaction: RootTransaction | None = None
        self._since = 0.0
        self._works = 0
        self._lost: StoreError | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection that sees what was written; None between two steps."""
        self._check()
        return None if self._transaction is None else self._transaction.connection

    def write(self, work: Callable[[Connection], T], attempts: int, pause: Callable[[int], None]) -> T:
        """Run work behind a savepoint; run it again if the database asks for that."""
        backend = self._database.backend
        attempt = 0
        while True:
            attempt += 1
            connection = self._connect()
            try:
                if self._works == 1:
                    backend.give_way(connection)
                backend.run_later(connection, f"SAVEPOINT {_SAVEPOINT}")
                result = work(connection)
                backend.run_rest(connection)
                backend.run_later(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
            except _DRIVER_ERRORS as error:
                told = _as_dbapi_error(error)
                self._back_to_savepoint(connection, told)
                is_in_rivals_way = self._works > 0 and isinstance(backend.translated(told), StoreBusy)
                if attempt >= attempts or not (is_in_rivals_way or backend.is_passing(told)):
                    raise backend.translated(told) from error
                self.commit()  # lets go of the rows that another process may be waiting for
            except BaseException as error:
                self._back_to_savepoint(connection, error)
                raise
            else:
                self._works += 1
                if time.monotonic() - self._since > STEP_SECONDS:
                    self.commit()
                return result
            pause(attempt)

    def commit(self) -> None:
        """Commit what was written so far."""
        if self._transaction is not None and self._transaction.connection.invalidated:
            self._check()
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        backend = self._database.backend
        try:
            backend.run_rest(transaction.connection)
            counts = backend.counts(transaction.connection)
            transaction.commit()
            backend.note_committed(counts)
        except DBAPIError as error:
            self._lost = self._database.backend.translated(error)
            raise self._lost from error
        else:
            backend.limit_log(self._database.engine)
        finally:
            try:
                transaction.connection.close()
            finally:
                backend.end_writing()

    def close(self) -> None:
        """Commit; raise an error if something that looked written was lost."""
        self.commit()
        if self._lost is not None:
            raise self._lost

    def _check(self) -> None:
        """Raise an error if the connection is lost, and with it the step; a mere read may have noticed it first."""
        if self._transaction is not None and self._transaction.connection.invalidated:
            connection, self._transaction = self._transaction.connection, None
            where = self._database.backend.where
            self._lost = StoreUnavailable(f"{where}: the connection was lost while something was stored; try again")
            self._database.backend.end_writing()
            connection.close()
        if self._lost is not None:
            raise self._lost

    def _connect(self) -> Connection:
        self._check()
        if self._transaction is None:
            backend = self._database.backend
            left = backend.begin_writing(self._wait)
            try:
                self._transaction = self._begin(None if self._wait is None else left)
            except BaseException:
                backend.end_writing()
                raise
            self._since, self._works = time.monotonic(), 0
        return self._transaction.connection

    def _begin(self, wait: float | None) -> RootTransaction:
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
        """Undo one write; if the database has undone more, the whole step is lost."""
        try:
            if _is_alive(connection):
                self._database.backend.drop_rest(connection)
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
    """Return whether the transaction still exists: on a full disk SQLite rolls all of it back by itself."""
    if connection.invalidated:
        return False
    raw = connection.connection.driver_connection
    return raw.in_transaction if isinstance(raw, sqlite3.Connection) else True


def pause(attempt: int) -> None:
    """Wait a moment, longer with each attempt and by chance, so that rivals part."""
    time.sleep(random.uniform(0, min(0.2, 0.002 * 2**attempt)))  # noqa: S311 - no secret


def ask(connection: Connection, statement: str, values: Sequence[Any] = ()) -> Any:
    """Run a statement that is written with question marks; on SQLite in a tenth of SQLAlchemy's time.

    What comes back has ``fetchone`` and ``fetchall``, and plain rows.
    """
    if connection.dialect.name == "sqlite":
        return run_plain(connection, statement, tuple(values))
    return connection.exec_driver_sql(statement.replace("%", "%%").replace("?", "%s"), tuple(values))


def run_plain(connection: Connection, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
    """Run a statement on SQLite's driver, once or for each of a list of parameters."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - this is the driver of that backend
    try:
        many = isinstance(parameters, list)
        return raw.executemany(statement, parameters) if many else raw.execute(statement, parameters)
    except sqlite3.Error as error:
        raise DBAPIError.instance(statement, parameters, error, sqlite3.Error, dialect=connection.dialect) from error


_DRIVER_ERRORS = (DBAPIError, sqlite3.Error)
"""SQLAlchemy's errors, and those of SQLite's driver while rows of a plain statement are fetched."""


def _as_dbapi_error(error: DBAPIError | sqlite3.Error) -> DBAPIError:
    return error if isinstance(error, DBAPIError) else DBAPIError(None, None, error)


def in_batches(values: Sequence[T], size: int = VALUES_AT_ONCE) -> Iterator[Sequence[T]]:
    """Yield values so many at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
