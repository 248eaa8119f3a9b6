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
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Select, text
from sqlalchemy.exc import DBAPIError, InterfaceError

from everlong.errors import SchemaMismatch, StoreBusy, StoreError
from everlong.store.batches import Batch
from everlong.store.schema import metadata
from everlong.store.tally import Counts
from everlong.store.versions import CONVERSATIONS, HEAD, VERSION_TABLE, is_known, upgrade

T = TypeVar("T")

_log = logging.getLogger("everlong.store")

ATTEMPTS = 40
"""How often a transaction that lost against another is tried again before that counts as an error."""
_OPENINGS = 12
"""How often an opening waits for the lock: a process that upgrades a large store has it for minutes."""


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
    """A database of one backend, with its schema brought up to date."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._own = threading.local()
        with self.translating():
            self.engine = backend.engine()
        try:
            self._bring_up_to_date()
            with self.translating():
                missing = backend.check_end(self.engine)
            if missing:
                _log.warning("%s", missing)
        except BaseException:  # whatever it was goes on its way, without an open file left behind
            self.engine.dispose()
            raise

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

    def _bring_up_to_date(self) -> None:
        """Create or upgrade the schema; while another process does that, wait longer than for any other write."""
        for attempt in range(1, _OPENINGS + 1):
            with self.read() as connection:
                if version_of(connection) == HEAD:
                    return
            try:
                self.write(self._make_or_upgrade)
            except StoreBusy:
                if attempt == _OPENINGS:
                    raise
            else:
                return

    def _make_or_upgrade(self, connection: Connection) -> None:
        self.backend.prepare(connection)
        version = version_of(connection)  # again: another process may have been quicker
        if version == HEAD:
            return
        if version is None:
            if not self.backend.is_empty(connection):
                raise SchemaMismatch(
                    f"{self.backend.where} holds tables that are not Everlong's; "
                    "name another file or database in store.path or store.url"
                )
            create_all(connection)
        elif is_known(version):
            self._upgrade(connection, version)
        else:
            raise SchemaMismatch(
                f"{self.backend.where} was written by a newer version of Everlong (its schema is {version!r}, "
                f"this version knows up to {HEAD!r}); update Everlong to open it"
            )

    def _upgrade(self, connection: Connection, version: str) -> None:
        """Bring an older database up to date, all in the transaction that is under way: as a whole or not at all."""
        from everlong.store.separation import has_words, separate  # noqa: PLC0415 - seldom, and it needs the store

        is_joined = version < CONVERSATIONS and has_words(connection)
        if is_joined:
            copy = self.backend.keep_copy(self.engine, f"before-{CONVERSATIONS}")
            kept = f"a copy from before is {copy}" if copy else "its own tools make a copy, such as pg_dump"
            _log.warning("%s is brought up to date; %s", self.backend.where, kept)
        upgrade(connection)
        if is_joined:
            separate(self, connection)


def pause(attempt: int) -> None:
    """Wait a moment, longer with each attempt and by chance, so that rivals part."""
    time.sleep(random.uniform(0, min(0.2, 0.002 * 2**attempt)))  # noqa: S311 - no secret


def create_all(connection: Connection) -> None:
    """Make the newest schema in an empty database; the same as all migrations in order, but quicker."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(
        text(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:head)"), {"head": HEAD})  # noqa: S608


def version_of(connection: Connection) -> str | None:
    """The schema's version; None where the tables are not there or not ours."""
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant


def open_database(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Database:
    """Open a SQLite file by its path, or a database by its url (``sqlite:///…``, ``postgresql://…``).

    A file is written to without waiting for the disk where whoever writes can say everything again.
    """
    return Database(backend_for(url_or_path, wait, waits_for_disk=waits_for_disk))


def backend_for(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Backend:
    """The backend that a path or a url means; nothing is opened yet."""
    text_form = str(url_or_path)
    scheme, found, rest = text_form.partition("://")
    if not found:
        from everlong.store.sqlite import SQLite  # noqa: PLC0415 - only the one that is used

        return SQLite(Path(url_or_path), wait, waits_for_disk=waits_for_disk)
    kind = scheme.partition("+")[0]
    if kind == "sqlite":
        from everlong.store.sqlite import SQLite  # noqa: PLC0415 - as above

        return SQLite(Path(rest.removeprefix("/")), wait, waits_for_disk=waits_for_disk)
    if kind in {"postgresql", "postgres"}:
        from everlong.store.postgres import PostgreSQL  # noqa: PLC0415 - as above

        return PostgreSQL(f"postgresql+psycopg://{rest}", wait)
    raise StoreError(
        f"store.url: a database of the kind {kind!r} is not known; "
        "allowed are sqlite:///path/to/file and postgresql://user@host/database"
    )
