"""The SQLite backend: one file, write-ahead log, one writer at a time.

Every commit is on the disk when it returns (``synchronous=FULL``). A writer takes the lock when its transaction
begins, so it never finds out half-way that it came too late.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from everlong.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreUnavailable
from everlong.store.database import Backend, Counts, run_plain

CACHE_KIB = 32_000
"""Pages kept in memory; the indexes over hashes are hit at random places."""

CHECKPOINT_PAGES = 1_000

LOG_BYTES = 16 << 20
"""The size of the write-ahead log from which on a writer cuts it off, and to which SQLite shortens it by itself."""

_POLL = 0.003
"""The seconds after which a writer looks for the lock of another process again."""
_WAIT = "everlong_wait"
"""The name under which a connection has the seconds that it waits, if they are others than usual."""

_LOG_WAIT = 0.1
"""The seconds for which cutting off the log waits for readers, and others who write wait for it."""
_LOG_PAUSE = 1.0
"""The seconds after which cutting off the log is tried again."""


class WriteQueue:
    """The threads of this process that want to write to one file, in the order in which they came.

    SQLite lets waiting writers poll for the lock, so with many threads one of them may find the file locked each time.
    Only other processes have to wait that way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._is_taken = False
        self._writer: int | None = None
        """The thread whose turn it is; one that was interrupted as its turn came still has it."""

    def enter(self, seconds: float) -> bool:
        """Wait until it is this thread's turn to write; return False if that takes longer."""
        me = threading.get_ident()
        with self._lock:
            if not self._is_taken or self._writer == me:
                self._is_taken, self._writer = True, me
                return True
            called = threading.Event()
            self._waiting.append(called)
        try:
            called.wait(seconds)
        except BaseException:  # Ctrl-C: the turn goes to the next
            self._give_up(called)
            raise
        with self._lock:
            if called.is_set():
                self._writer = me
                return True
            self._waiting.remove(called)
            return False

    def leave(self) -> None:
        """Let the next thread write."""
        with self._lock:
            self._writer = None
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_taken = False

    def _give_up(self, called: threading.Event) -> None:
        with self._lock:
            is_called = called.is_set()
            if not is_called:
                self._waiting.remove(called)
        if is_called:
            self.leave()


_HEAD = re.compile(rb"everlong (\d{20}) (\d{20})\n")
_HEAD_BYTES = 51
_MOST_BYTES = 100_000
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """A store that was found to hold less than had been written to it."""

    at: float
    """The time at which it was noticed, in seconds since 1970."""
    messages: int | None
    """The number of missing messages; None if the count was missing, so that nobody can tell."""
    turns: int

    def describe(self, where: str, path: Path) -> str:
        """Return the loss in words."""
        day = datetime.fromtimestamp(self.at, tz=UTC).isoformat(timespec="seconds")
        if self.messages is None:
            return (
                f"{where} came without {path.name}, which counts what is written to it (noticed {day}); whether its "
                "newest messages were lost before is not known"
            )
        return (
            f"{where} lacks the newest {self.messages:,} messages and {self.turns:,} turns that were written to it "
            f"(noticed {day}): its -wal file was deleted, or an older copy took its place; if you put that there "
            f"yourself, delete {path}"
        )


class WriteCounter:
    """The numbers of one store's file: how much was ever written, kept beside it so that a lost end is noticed.

    Commits of SQLite stay in its write-ahead log for a while. If that file is deleted or not copied along, the database
    is intact but older than it was, and nothing in it says so: whatever is written into the database goes the same way.
    So the numbers stand in a file whose name does not begin like those of SQLite's own files, which people delete
    together. The numbers only grow. They are written after each commit without waiting for the disk, so they never
    exceed what was committed. If that file is missing too, nobody can tell, and `verify` says so.
    """

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(f".{store.name}.tally")
        self._lock = threading.Lock()
        self._known = Counts(0, 0)

    def note(self, counts: Counts) -> None:
        """Note how much is committed; a higher number that is known stays."""
        with self._lock:
            if counts.messages <= self._known.messages and counts.turns <= self._known.turns:
                return
            # Without it nothing is lost but the notice.
            with suppress(OSError), _opened(self.path, os.O_RDWR | os.O_CREAT) as handle:
                before = _counts_in(os.read(handle, _HEAD_BYTES)) or Counts(0, 0)
                self._known = Counts(max(before.messages, counts.messages), max(before.turns, counts.turns))
                os.lseek(handle, 0, os.SEEK_SET)
                os.write(handle, _head(self._known))

    def read(self) -> Counts | None:
        """Return how much was committed; None if that is not known."""
        return _counts_in(self._content())

    def losses(self) -> list[Loss]:
        """Return the losses that were noticed, oldest first."""
        found: list[Loss] = []
        for line in self._content().splitlines()[1:]:
            with suppress(ValueError, TypeError):
                found.append(Loss(**json.loads(line)))
        return found

    def _content(self) -> bytes:
        with suppress(OSError), _opened(self.path, os.O_RDONLY) as handle:
            return os.read(handle, _MOST_BYTES)
        return b""

    def check(self, before: Counts | None, found: Counts) -> Loss | None:
        """Compare what was noted with what a store holds; note and return a loss, once."""
        if before is None:
            if not any(found):
                return None
            loss = Loss(time.time(), None, 0)
        else:
            missing = Counts(max(0, before.messages - found.messages), max(0, before.turns - found.turns))
            if not any(missing):
                return None
            loss = Loss(time.time(), *missing)
        with self._lock, suppress(OSError), _opened(self.path, os.O_RDWR | os.O_CREAT) as handle:
            os.write(handle, _head(found))  # counting starts over from here
            os.lseek(handle, 0, os.SEEK_END)
            os.write(handle, json.dumps(asdict(loss)).encode() + b"\n")
            self._known = found
        return loss

    def reset(self) -> None:
        """Forget everything: there is a new store."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open the file; `OSError` for a link, a pipe or a second name: a store of somebody else may bring them along."""
    handle = os.open(path, flags | _NO_LINKS, 0o600)
    try:
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode) or known.st_nlink > 1:
            raise OSError(errno.EINVAL, "no regular file", str(path))
        yield handle
    finally:
        os.close(handle)


def _head(counts: Counts) -> bytes:
    return f"everlong {counts.messages:020d} {counts.turns:020d}\n".encode()


def _counts_in(data: bytes) -> Counts | None:
    found = _HEAD.match(data)
    return None if found is None else Counts(int(found[1]), int(found[2]))


class SQLite(Backend):
    """A store in one file; ``wait`` is how many seconds to wait for other writers.

    Without ``waits_for_disk`` a commit survives the end of the process, but may be lost with the machine's power.
    """

    name = "sqlite"
    mark = "?"
    run = staticmethod(run_plain)

    def __init__(self, path: Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> None:
        if str(path) in {":memory:", ".", ""}:
            raise StoreError(f"store.url: a store lives in a file, and {str(path)!r} is none; name a file")
        self.path = path.expanduser().absolute()
        self.wait = wait
        self._synchronous = "FULL" if waits_for_disk else "NORMAL"
        self._checkpoint_pages = CHECKPOINT_PAGES if waits_for_disk else 20 * CHECKPOINT_PAGES
        self._cache_kib = CACHE_KIB if waits_for_disk else CACHE_KIB // 4  # who serves many has several connections
        self.where = self.address = str(self.path)
        self.counter = WriteCounter(self.path)
        self.queue = WriteQueue()
        self._log = self.path.with_name(f"{self.path.name}-wal")
        self._views = self.path.with_name(f"{self.path.name}-views")
        self._next_cut = 0.0

    def engine(self) -> Engine:
        """Create the file, readable by its owner only, if it is not there; the log files take over its mode."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.path.exists():
                self.counter.reset()
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            if self.path.is_dir():
                raise StoreUnavailable(f"{self.where} is a folder; a store is a file: name another in store.url")
        except OSError as error:
            raise StoreUnavailable(
                f"{self.where} cannot be created: {error.strerror}; choose another place with store.url"
            ) from error
        made = create_engine(
            URL.create("sqlite+pysqlite", database=str(self.path)),
            connect_args={"timeout": self.wait, "isolation_level": None, "cached_statements": 256},
            pool_size=8,
            max_overflow=-1,
        )
        event.listen(made, "connect", self._on_connect)
        event.listen(made, "begin", self._on_begin)
        return made

    def _on_connect(self, connection: sqlite3.Connection, _record: object) -> None:
        cursor = connection.cursor()
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self._switch_to_wal(cursor)
        cursor.execute(f"PRAGMA synchronous={self._synchronous}")
        cursor.execute(f"PRAGMA cache_size=-{self._cache_kib}")
        cursor.execute(f"PRAGMA wal_autocheckpoint={self._checkpoint_pages}")
        cursor.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
        cursor.close()

    def _on_begin(self, connection: Connection) -> None:
        if connection.get_execution_options().get("everlong_read"):
            run_plain(connection, "BEGIN")
            return
        wait = connection.info.get(_WAIT, self.wait)
        until = time.monotonic() + wait
        # SQLite would look for the lock ever more seldom, and miss the moments that others leave between two writes.
        run_plain(connection, "PRAGMA busy_timeout=0")
        try:
            while True:
                try:
                    run_plain(connection, "BEGIN IMMEDIATE")
                except DBAPIError as error:
                    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
                    if code != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                        raise
                    time.sleep(_POLL)
                else:
                    return
        finally:
            run_plain(connection, f"PRAGMA busy_timeout={int(1000 * wait)}")

    def _switch_to_wal(self, cursor: sqlite3.Cursor) -> None:
        # SQLite does not wait here for others who are opening the same new file.
        deadline = time.monotonic() + self.wait
        while True:
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def counts(self, connection: Connection) -> Counts | None:
        """Return how much was ever written, as a transaction sees it; None before there are tables."""
        try:
            rows = run_plain(
                connection, "SELECT name, seq FROM sqlite_sequence WHERE name IN ('node', 'turn')"
            ).fetchall()
        except DBAPIError:
            return None
        found = dict(rows)
        return Counts(int(found.get("node", 0)), int(found.get("turn", 0)))

    def note_committed(self, counts: Counts | None) -> None:
        """Note how much is committed now."""
        if counts is not None:
            self.counter.note(counts)

    def limit_log(self, engine: Engine) -> None:
        """Cut off a write-ahead log that has grown; readers that follow one another keep SQLite from doing so.

        Only readers that began before are waited for, and only for a moment; the next commit tries again if that fails.
        """
        try:
            if self._log.stat().st_size <= 2 * LOG_BYTES or time.monotonic() < self._next_cut:
                return
        except OSError:  # no log
            return
        self._next_cut = time.monotonic() + _LOG_PAUSE
        with suppress(DBAPIError), engine.connect() as connection, self.waiting(connection, _LOG_WAIT):
            run_plain(connection, "PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def announce_views(self) -> None:
        """Touch an empty file beside the store, whose time other processes look at."""
        with suppress(OSError):  # others see the change with their next look at the store
            self._views.touch(mode=0o600)

    def view_mark(self) -> int:
        """Return the time of the last announcement in nanoseconds; 0 if there was none."""
        try:
            return self._views.stat().st_mtime_ns
        except OSError:
            return 0

    def check_end(self, engine: Engine) -> str:
        """Return what is missing at the end of the file, in words; empty if nothing is."""
        before = self.counter.read()
        with engine.connect() as connection:
            connection.execution_options(everlong_read=True)
            with connection.begin():
                found = self.counts(connection) or Counts(0, 0)
        loss = self.counter.check(before, found)
        return "" if loss is None else loss.describe(self.where, self.counter.path)

    def problems(self, connection: Connection) -> Iterator[str]:
        """Yield the problems that SQLite itself finds in the file."""
        for (said,) in run_plain(connection, "PRAGMA integrity_check(1000)"):
            if said != "ok":
                yield from (f"SQLite's own check: {line}" for line in str(said).splitlines())

    def losses(self) -> tuple[list[str], list[str]]:
        """Return everything ever found missing at the end of the file, and what nobody can tell about it."""
        found: tuple[list[str], list[str]] = ([], [])
        for loss in self.counter.losses():
            found[loss.messages is None].append(loss.describe(self.where, self.counter.path))
        return found

    def is_empty(self, connection: Connection) -> bool:
        """Return whether the file has no table at all."""
        return connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").first() is None

    def translated(self, error: DBAPIError) -> StoreError:
        """Return SQLite's result code as one of our errors."""
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        said = str(error.orig)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return StoreBusy(
                f"{self.where} was locked by another process for more than {self.wait:g} seconds; "
                "try again, or see which program holds it"
            )
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"{self.where}: no room left on the disk; nothing was changed. Free some and try again")
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return StoreDamaged(
                f"{self.where} is damaged or no database ({said}); it was left as it is. Restore a backup, "
                "or name another file in store.url"
            )
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}:
            return StoreUnavailable(
                f"{self.where} cannot be opened for writing ({said}); check the permissions of the file and its folder"
            )
        if code == sqlite3.SQLITE_IOERR:
            if self._disk_is_full():
                return StoreFull(f"{self.where}: no room left on the disk; nothing was changed. Free some, try again")
            return StoreUnavailable(f"{self.where} cannot be read or written ({said}); check the disk")
        return StoreError(f"{self.where}: {said}")

    def _disk_is_full(self) -> bool:
        try:
            room = os.statvfs(self.path.parent)
        except (AttributeError, OSError):  # not on Windows
            return False
        return room.f_bavail * room.f_frsize < 1 << 20

    def begin_writing(self, wait: float | None = None) -> float:
        """Wait until no other thread of this process writes; return the seconds that are left for other processes."""
        seconds = self.wait if wait is None else wait
        until = time.monotonic() + seconds
        if not self.queue.enter(seconds):
            raise StoreBusy(f"{self.where} was being written by other threads for more than {seconds:g} seconds")
        return max(0.0, until - time.monotonic())

    def end_writing(self) -> None:
        """Let the next thread of this process write."""
        self.queue.leave()

    @contextmanager
    def waiting(self, connection: Connection, wait: float | None) -> Iterator[None]:
        """Limit the seconds to wait for other writers."""
        if wait is None:
            yield
            return
        run_plain(connection, f"PRAGMA busy_timeout={int(1000 * wait)}")
        connection.info[_WAIT] = wait
        try:
            yield
        finally:
            del connection.info[_WAIT]
            run_plain(connection, f"PRAGMA busy_timeout={int(1000 * self.wait)}")


def copy_file(engine: Engine, path: Path) -> None:
    """Copy a database into a new file, readable by its owner only, while others go on; a whole copy or none."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        Path(f"{partial}-journal").unlink(missing_ok=True)  # of a copy that was interrupted
        os.close(os.open(partial, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600))
        with closing(sqlite3.connect(partial)) as copy, engine.connect() as connection:
            source: Any = connection.connection.driver_connection
            source.backup(copy, pages=-1)  # in one read transaction: others' writes do not make it begin again
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
