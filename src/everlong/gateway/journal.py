"""The gateway's journal: a request is in a file before it goes upstream, its answer before the client has all of it.

From there turns go into the database, many in one transaction. While the database is away, or if the process is killed
in between, the journal keeps them: `upkeep` stores them once the database is back, and the next gateway takes over what
a killed one left behind. Entries that wait so are in the files only, and are read from there a batch at a time. Entries
that the database refuses for another reason are put aside in a file, not thrown away. Stored entries leave the journal
within seconds.

Tenants take turns: one that has much waiting holds up nobody else. A gateway holds a lock on each of its files as long
as it lives; a file that can be locked was left behind. Only regular files of this user are touched, never what a link
leads to. The journal shares no memory with the relay: entries are plain values that can be pickled (see `turn_queue`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from everlong.config.files import try_lock
from everlong.errors import StoreBusy, StoreFull, StoreUnavailable
from everlong.gateway.body import dump_json
from everlong.model import Message
from everlong.store.identity import Sender
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn

__all__ = ["AWAY", "Journal", "JournalEntry"]

_log = logging.getLogger("everlong.gateway")

AWAY = (StoreUnavailable, StoreBusy, StoreFull, OSError)
"""The errors of a database that is away, full or locked."""

_OPEN = "open"
"""The status, in the file, of a request that has not been answered."""
_FULL = 4_000_000
"""Bytes after which a new file is begun."""
_RESERVE = 1_000_000
"""Bytes of the disk that are reserved for the answers to requests that have gone out."""
_ROOM = 65_536
"""Bytes that must fit into the journal for it to count as writable."""
_MOST_HELD = 1_000
"""Entries that may wait in memory while neither journal nor database has room."""
_BATCH, _BATCH_BYTES = 64, 1_000_000
"""Kept entries that are stored together, and about how many bytes of them."""
_TAKEN_OVER = 8
"""Files that are taken over at once; each stays open until its entries are stored."""
_SENDER_FIELDS = tuple(field.name for field in fields(Sender))
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_TENANT = re.compile(rb'\["((?:[^"\\]|\\.)*)"')
"""The beginning of a line, with the tenant of its entry."""


class JournalEntry(NamedTuple):
    """One request with the record of its turn, which the store takes as it is."""

    tenant: str
    api: str
    turn: FinishedTurn
    """The finished turn; of an open one, only its model and when it began are known."""
    body: str | None = None
    """The whole request, if its conversation was not known. Otherwise ``at`` and ``messages`` tell what it adds."""
    at: Branch | None = None
    messages: Sequence[Message] = ()
    sender: Sender = Sender("gateway")
    is_open: bool = False
    """True if the upstream has not answered yet."""

    def to_line(self) -> bytes:
        """Return the entry as a line of a journal file."""
        turn, at = self.turn, self.at
        values = [
            *(self.tenant, self.api, self.body, None if at is None else (at.id, at.head.hex(), at.depth)),
            *(self.messages, turn.model, turn.reply, turn.usage),
            *(_OPEN if self.is_open else turn.status, turn.error, turn.began, turn.cost, turn.names),
            [getattr(self.sender, name) for name in _SENDER_FIELDS],
        ]
        return dump_json(values) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> JournalEntry:
        """Read a line of a journal file; `ValueError`, `TypeError` or `LookupError` if it is broken."""
        values = orjson.loads(line)
        tenant, api, body, at, messages, model, reply, usage, status, error, began, cost, names, sender = values
        if not (isinstance(tenant, str) and isinstance(api, str) and isinstance(began, int | float | None)):
            raise TypeError("nobody knows whose it is, or which turn")
        is_open = status == _OPEN
        # A finished turn has no status for "open"; `is_open` tells.
        turn = FinishedTurn(reply, model, None, usage, cost, "done" if is_open else status, error, began, names)
        place = None if at is None else Branch(at[0], bytes.fromhex(at[1]), at[2])
        return cls(tenant, api, turn, body, place, messages, Sender(*sender), is_open)


@dataclass(slots=True)
class _JournalFile:
    """A file of the journal that this process writes, or has written and not stored completely."""

    path: Path
    handle: int
    size: int = 0
    waiting: int = 0
    """Entries in it that are not in the database yet."""
    has_stored: bool = False
    """True if it holds entries that are in the database already."""
    has_reserve: bool = False
    """True if disk space is reserved with it."""

    @property
    def reserve(self) -> Path:
        """The file that reserves disk space."""
        return self.path.with_suffix(".reserve")

    def make_reserve(self) -> None:
        """Reserve disk space, if none is reserved; `OSError` if there is none."""
        if not self.has_reserve:
            _allocate(self.reserve, _RESERVE)
            self.has_reserve = True

    def pass_reserve(self, other: _JournalFile) -> None:
        """Give the reserved space to another file."""
        if self.has_reserve:
            with suppress(OSError):
                self.reserve.rename(other.reserve)
                other.has_reserve = True
        self.drop_reserve()

    def drop_reserve(self) -> None:
        """Release the reserved space."""
        self.reserve.unlink(missing_ok=True)
        self.has_reserve = False

    def close(self, *, is_stored: bool) -> None:
        """Close the file; delete it if all its entries are stored."""
        self.drop_reserve()
        if is_stored:
            _remove(self.path, self.handle)
        else:
            os.close(self.handle)


class _Place(NamedTuple):
    """The place of an entry: its line in a file."""

    file: _JournalFile
    start: int
    size: int
    tenant: str


class Journal:
    """The journal of one gateway, in a folder with those of others; those for another ``store`` are left alone."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self._folder = folder
        self._ending = f"-{sha256(store.encode()).hexdigest()[:12]}.jsonl" if store else ".jsonl"
        self._file: _JournalFile | None = None
        """The file that is written to."""
        self._places: dict[int, _Place] = {}
        """The place of each waiting entry that is in a file."""
        self._waiting: set[int] = set()
        self._kept: dict[int, JournalEntry | None] = {}
        """The waiting entries that are to be stored by `upkeep`; None for those that can be read from a file."""
        self._due: dict[int, float] = {}
        """The moment from which each waiting entry could be stored, oldest first; a request under way has none."""
        self._progress = time.monotonic()
        """The moment at which an entry last went into the database."""
        self._foreign: set[str] = set()
        """The names in the folder that are no files of ours, and of which the log tells."""
        self._number = 0
        self._stamp = 0
        """The time in the name of the newest file, in nanoseconds."""
        self._lock = threading.RLock()
        """A lock, because the loop writes entries while a thread stores older ones."""

    @property
    def waiting(self) -> int:
        """Entries that are not in the database yet."""
        return len(self._waiting)

    @property
    def kept(self) -> int:
        """Entries that could not be stored at first, or were left behind by another gateway."""
        return len(self._kept)

    @property
    def oldest(self) -> float:
        """Seconds for which the oldest entry that could be stored has waited."""
        with self._lock:
            now = time.monotonic()
            return now - next(iter(self._due.values()), now)

    @property
    def stalled(self) -> float:
        """Seconds for which nothing went into the database although something could."""
        return min(self.oldest, time.monotonic() - self._progress)

    def put_request(self, entry: JournalEntry) -> int:
        """Write a request before it goes upstream; return its number.

        Raises `OSError` if there is no room for it, or would be none for its answer.
        """
        line = entry.to_line()
        with self._lock:
            file = self._open_file()
            file.make_reserve()
        return self._add(line, entry.tenant)

    def put(self, entry: JournalEntry) -> int:
        """Write an ended turn; return its number. Raises `OSError` if there is no room for it."""
        line = entry.to_line()
        try:
            number = self._add(line, entry.tenant)
        except OSError:
            with self._lock:
                if self._file is None or not self._file.has_reserve:
                    raise
                self._file.drop_reserve()  # it was kept for this
            number = self._add(line, entry.tenant)
        with self._lock:
            self._due[number] = time.monotonic()
        return number

    def hold(self, entry: JournalEntry, number: int | None = None) -> bool:
        """Keep an entry in memory because no file has room for it, to be tried again; False if too many are kept."""
        with self._lock:
            if number is None:
                if len(self._waiting) >= _MOST_HELD:
                    return False
                self._number += 1
                number = self._number
            self._waiting.add(number)
            self._kept[number] = entry
            self._due.setdefault(number, time.monotonic())
            return True

    def can_write(self) -> bool:
        """Return whether the journal takes entries, by a trial."""
        with self._lock:
            try:
                file = self._open_file()
                file.make_reserve()
                _append(file, b" " * _ROOM + b"\n")
                os.ftruncate(file.handle, file.size)
            except OSError:
                return False
            return True

    def done(self, number: int) -> None:
        """Release an entry that is in the database."""
        with self._lock:
            if number not in self._waiting:
                return
            self._waiting.discard(number)
            self._kept.pop(number, None)
            self._due.pop(number, None)
            self._progress = time.monotonic()
            place = self._places.pop(number, None)
            if place is None:
                return
            file = place.file
            file.waiting -= 1
            file.has_stored = True
            if file.waiting:
                return
            if file is not self._file:
                file.close(is_stored=True)
            elif file.size > _FULL:
                self._empty(file)

    def tidy(self) -> None:
        """Remove stored entries from the files; forgetting relies on it."""
        with self._lock:
            file = self._file
            if file is None or not file.has_stored:
                return
            if not file.waiting:
                self._empty(file)
                return
            with suppress(OSError):  # there is no room for another one
                self._begin_file()  # it goes away with the last entry that waits

    def keep(self, number: int) -> None:
        """Keep an entry that could not be stored, to be tried again."""
        with self._lock:
            if number in self._places:
                self._kept[number] = None
                self._due.setdefault(number, time.monotonic())

    def put_aside(self, number: int, entry: JournalEntry, reason: str) -> None:
        """Move an entry that cannot be stored to a file of its own, with the reason; it is not tried again.

        Where there is no room for it, it stays and is tried again.
        """
        try:
            self._write_aside(entry.tenant, dump_json(reason) + b"\n" + entry.to_line())
        except OSError:
            self.keep(number)
        else:
            self.done(number)

    def _write_aside(self, tenant: str, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{_aside_name(tenant)}-{uuid.uuid4().hex[:12]}.broken"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)

    def settle(self, number: int, entry: JournalEntry, stored: asyncio.Future[Any]) -> None:
        """Release, keep or put aside an entry, now that storing it has succeeded or failed."""
        error = None if stored.cancelled() else stored.exception()
        if stored.cancelled() or isinstance(error, AWAY):
            self.keep(number)
        elif isinstance(error, Exception):
            self.put_aside(number, entry, str(error))
        else:
            self.done(number)

    def close(self) -> None:
        """Close the files; delete those whose entries are all stored."""
        with self._lock:
            files = {id(place.file): place.file for place in self._places.values()}
            if self._file is not None:
                files[id(self._file)] = self._file
            self._file = None
            self._places.clear()
            self._kept.clear()
            for file in files.values():
                file.close(is_stored=not file.waiting)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _open_file(self) -> _JournalFile:
        """Return the file to write to: a new one, locked, if there is none or it is full."""
        if self._file is not None and self._file.size <= _FULL:
            return self._file
        return self._begin_file()

    def _begin_file(self) -> _JournalFile:
        """Begin a new file, which gets the disk space that was reserved with the one before."""
        before, self._file = self._file, self._new_file()
        if before is not None:
            before.pass_reserve(self._file)
            if not before.waiting:
                before.close(is_stored=True)
        return self._file

    def _new_file(self) -> _JournalFile:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            self._stamp = max(time.time_ns(), self._stamp + 1)  # names in order, also if the clock is set back
            path = self._folder / f"{self._stamp}-{os.getpid()}-{uuid.uuid4().hex[:6]}{self._ending}"
            # Another gateway may take it for one that was left behind, before it is locked; then it is made anew.
            if (handle := _open_locked(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)) is not None:
                return _JournalFile(path, handle)

    def _add(self, line: bytes, tenant: str) -> int:
        if len(line) <= _FULL:
            with self._lock:
                file = self._open_file()
                _append(file, line)
                return self._note(file, len(line), tenant)
        with self._lock:
            file = self._new_file()
        try:
            with self._lock:
                self._begin_file()  # later entries stand in later files
            _append(file, line)  # without the lock, because it takes long, and the loop would wait
        except OSError:
            file.close(is_stored=True)
            raise
        with self._lock:
            return self._note(file, len(line), tenant)

    def _note(self, file: _JournalFile, size: int, tenant: str) -> int:
        """Note that an entry of so many bytes stands at the end of a file; return its number."""
        self._number += 1
        self._waiting.add(self._number)
        self._places[self._number] = _Place(file, file.size, size, tenant)
        file.size += size
        file.waiting += 1
        return self._number

    @staticmethod
    def _empty(file: _JournalFile) -> None:
        os.ftruncate(file.handle, 0)
        file.size, file.has_stored = 0, False

    # -- storing what was kept -----------------------------------------------------------------------------------------

    def batches(self) -> Iterator[list[tuple[int, JournalEntry]]]:
        """Yield the entries that are kept by now, some of one tenant at a time, each with its number.

        Tenants take turns, and the entries of each come oldest first. Whoever stores a batch says `done` for each of
        its entries, or puts it aside; the others stay.
        """
        with self._lock:
            numbers = sorted(self._kept, key=self._age)
            waiting: dict[str, list[int]] = {}
            for number in numbers:
                place, held = self._places.get(number), self._kept[number]
                tenant = place.tenant if place is not None else "" if held is None else held.tenant
                waiting.setdefault(tenant, []).append(number)
        for turns in zip_longest(*map(self._cut, waiting.values())):
            for some in turns:
                if some is not None:
                    yield self._read(some)

    def _cut(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Yield entries some at a time, by their number and their bytes."""
        batch: list[int] = []
        size = 0
        for number in numbers:
            place = self._places.get(number)
            added = 0 if place is None else place.size
            if batch and (len(batch) >= _BATCH or size + added > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(number)
            size += added
        yield batch

    def _age(self, number: int) -> tuple[str, int]:
        """Return a key that sorts entries by age: files are named by when they were begun."""
        place = self._places.get(number)
        return ("~" if place is None else place.file.path.name, number)

    def _read(self, numbers: Iterable[int]) -> list[tuple[int, JournalEntry]]:
        """Read entries back. Half an entry, whose process was killed, is dropped; a damaged one is put aside."""
        found: list[tuple[int, JournalEntry]] = []
        for number in numbers:
            with self._lock:
                if number not in self._kept:
                    continue
                entry, place = self._kept[number], self._places.get(number)
                line = b"" if place is None else _read_bytes(place.file.handle, place.start, place.size)
            if entry is None and place is not None:
                with suppress(ValueError, TypeError, LookupError):
                    entry = JournalEntry.from_line(line)
                if entry is None and line.endswith(b"\n") and line.strip():
                    _log.error("an entry of the journal cannot be read; it is put aside")
                    self._write_aside(place.tenant, line)
            if entry is None:
                self.done(number)
            else:
                found.append((number, entry))
        return found

    def take_over(self) -> int:
        """Take over the entries of processes that are gone; return how many.

        Some files at a time: more may be there once these are stored.
        """
        taken = 0
        for path, handle in islice(self._left_behind(), _TAKEN_OVER):
            lines = _read_bytes(handle, 0, os.fstat(handle).st_size).splitlines(keepends=True)
            file = _JournalFile(path, handle, has_reserve=True)
            with self._lock:
                for line in lines:
                    tenant = _TENANT.match(line)
                    number = self._note(file, len(line), "" if tenant is None else tenant[1].decode("utf-8", "replace"))
                    self._kept[number] = None
                    self._due[number] = time.monotonic()
            taken += len(lines)
            if not lines:
                file.close(is_stored=True)
        return taken

    def _left_behind(self) -> Iterator[tuple[Path, int]]:
        """Yield the files that nobody holds, locked."""
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            try:
                handle = _open_locked(path, os.O_RDWR)
            except _ForeignFileError as error:
                self._leave_alone(path, str(error))
                continue
            except OSError:
                continue  # another process was quicker, or files cannot be locked here: then nobody's are touched
            if handle is not None and path.name.count("-") > 2 and not path.name.endswith(self._ending):
                os.close(handle)
                drain = f"everlong serve --drain {self._folder}"
                self._leave_alone(path, f"{path.name} is for another store; {drain} stores it in this one")
            elif handle is not None:
                yield path, handle

    def _leave_alone(self, path: Path, why: str) -> None:
        if path.name not in self._foreign:
            self._foreign.add(path.name)
            _log.warning("a name in the journal is left alone: %s", why)

    # -- forgetting ----------------------------------------------------------------------------------------------------

    @property
    def has_aside(self) -> bool:
        """True if entries were put aside, by this gateway or another one."""
        return any(self._folder.glob("*.broken"))

    def drop_aside(self, tenant: str) -> None:
        """Remove the entries of a tenant that were put aside, and those of which nobody knows whose they are."""
        for name in (_aside_name(tenant), _aside_name("")):
            for path in self._folder.glob(f"{name}-*.broken"):
                path.unlink(missing_ok=True)


def _aside_name(tenant: str) -> str:
    """Return the beginning of the names of the files with a tenant's entries that were put aside."""
    return sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read_bytes(handle: int, start: int, size: int) -> bytes:
    """Read some bytes of an open file, which nobody else may read at the same time."""
    os.lseek(handle, start, os.SEEK_SET)
    found = b""
    while len(found) < size and (more := os.read(handle, size - len(found))):
        found += more
    return found


def _write_all(handle: int, data: bytes) -> None:
    if os.write(handle, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _append(file: _JournalFile, data: bytes) -> None:
    """Append all of the data or nothing: half a line would spoil the next one."""
    try:
        _write_all(file.handle, data)
    except OSError:
        os.ftruncate(file.handle, file.size)
        raise


def _allocate(path: Path, size: int) -> None:
    """Make a file that occupies its space on the disk; none if there is no room."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if sys.platform == "linux":
            os.posix_fallocate(handle, 0, size)
        else:
            _write_all(handle, bytes(size))
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


class _ForeignFileError(OSError):
    """An error about a name in the folder that is no regular file of this user."""


def _open_locked(path: Path, flags: int) -> int | None:
    """Open and lock a file of ours; None if another process has it, or has just removed it.

    Raises:
        _ForeignFileError: it is a link, a pipe or a folder, has a second name, or belongs to somebody else.
    """
    try:
        handle = os.open(path, flags | _NO_LINKS, 0o600)
    except OSError as error:
        if path.is_symlink() or error.errno in {errno.EISDIR, errno.ENXIO}:
            raise _ForeignFileError(f"{path.name} is no regular file") from error
        raise
    is_ours = False
    try:
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode) or known.st_nlink > 1:
            raise _ForeignFileError(f"{path.name} is no regular file, or has a second name")
        if hasattr(os, "geteuid") and known.st_uid != os.geteuid():
            raise _ForeignFileError(f"{path.name} belongs to another user")
        is_ours = try_lock(handle) and _is_at(known, path)
    finally:
        if not is_ours:
            os.close(handle)
    return handle if is_ours else None


def _is_at(known: os.stat_result, path: Path) -> bool:
    """Return whether an open file is still the one of that name."""
    try:
        return os.path.samestat(known, path.lstat())
    except FileNotFoundError:
        return False


def _remove(path: Path, handle: int) -> None:
    """Delete an open, locked file; it is emptied first."""
    os.ftruncate(handle, 0)
    if sys.platform != "win32":
        path.unlink(missing_ok=True)
    os.close(handle)
    if sys.platform == "win32":
        with suppress(OSError):  # somebody looks at it right now, and removes it then
            path.unlink(missing_ok=True)
