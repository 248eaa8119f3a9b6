"""The gateway's journal: what came of a request is in a file before the client has its last byte.

From there it goes into the database, many requests in one transaction. A process that is killed in between, or a
database that is away for a while, loses nothing: what is in a file and not in the database is stored by whoever runs
next. Each entry is one line. Entries that cannot be stored for another reason than the database being away are put
aside, not thrown away.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from everlong.errors import EverlongError, StoreBusy, StoreFull, StoreUnavailable
from everlong.gateway.raw import dumped
from everlong.model import Message
from everlong.store.stateless import Sender

__all__ = ["AWAY", "Spool", "Spooled"]

AWAY = (StoreUnavailable, StoreBusy, StoreFull, OSError)
"""What a database says, or does not say, that is away."""

_FULL = 4_000_000
"""A file of this size begins anew as soon as all that is in it is stored."""


class Spooled(NamedTuple):
    """One request with what came of it."""

    tenant: str
    api: str
    body: str | None
    """The whole body, where the conversation was not known; else it says where it belongs and what it adds."""
    at: tuple[int, str, int] | None
    messages: list[Message]
    model: str | None
    hint: str | None
    reply: Message | None
    usage: dict[str, Any] | None
    status: str
    error: str | None
    began: float
    cost: float = 0.0
    """US dollars."""
    names: Sequence[str] = ()
    """What later requests may call the reply."""
    sender: Sender | Sequence[Any] | None = None
    """The sender; a list of its field values when read from the file."""

    @property
    def sent_by(self) -> Sender:
        """Return the sender."""
        told = self.sender
        if isinstance(told, Sender):
            return told
        return Sender("gateway", self.hint) if told is None else Sender(*told)


class Spool:
    """The journal of one gateway, in a folder with those of others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{int(time.time())}-{os.getpid()}-{uuid.uuid4().hex[:6]}.jsonl"
        self._file = -1
        self._size = 0
        self._waiting: dict[int, Spooled | None] = {}
        self._number = 0

    @property
    def waiting(self) -> int:
        """Entries that are not in the database yet."""
        return len(self._waiting)

    def put(self, entry: Spooled) -> int:
        """Write an entry; its number. Raises `OSError` where there is no room for it."""
        if self._file < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        told = entry._replace(sender=astuple(entry.sender)) if isinstance(entry.sender, Sender) else entry
        line = dumped(list(told)) + b"\n"
        if os.write(self._file, line) != len(line):  # the disk is full; half a line would spoil the next one
            os.ftruncate(self._file, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._size += len(line)
        self._number += 1
        self._waiting[self._number] = None
        return self._number

    def done(self, number: int) -> None:
        """Say that an entry is in the database."""
        self._waiting.pop(number, None)
        if self._size > _FULL and not self._waiting:
            os.ftruncate(self._file, 0)
            self._size = 0

    def keep(self, number: int, entry: Spooled) -> None:
        """Say that an entry could not be stored, to be tried again."""
        self._waiting[number] = entry

    def put_aside(self, number: int, entry: Spooled, error: Exception) -> None:
        """Say that an entry cannot be stored; it is kept apart, and not tried again."""
        _put_aside(self._path, entry, error)
        self.done(number)

    def settle(self, number: int, entry: Spooled, stored: asyncio.Future[Any]) -> None:
        """Do with an entry what has to be done now that it is stored, or is not."""
        error = None if stored.cancelled() else stored.exception()
        if stored.cancelled() or isinstance(error, AWAY):
            self.keep(number, entry)
        elif isinstance(error, Exception):
            self.put_aside(number, entry, error)
        else:
            self.done(number)

    def close(self) -> None:
        """Let go of the file; one of which everything is stored goes away."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            if not self._waiting:
                self._path.unlink(missing_ok=True)

    # -- storing -------------------------------------------------------------------------------------------------------

    def retry(self, store: Callable[[Spooled], None]) -> int:
        """Store what could not be stored; how much that was. Stops where the database is still away."""
        done = 0
        for number, entry in list(self._waiting.items()):
            if entry is not None:
                self._put_aside_or(store, entry, self._path)
                self.done(number)
                done += 1
        return done

    def take_over(self, store: Callable[[Spooled], None]) -> int:
        """Store what processes that are gone left behind; how much that was."""
        done = 0
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            if path == self._path or _is_alive(path):
                continue
            taken = self._path.with_suffix(f".{path.stem}.taken")
            try:
                path.rename(taken)
            except OSError:
                continue  # another process was quicker
            try:
                for line in taken.read_bytes().splitlines():
                    done += self._stored_line(line, taken, store)
            except AWAY:
                taken.rename(path)
                raise
            taken.unlink()
        return done

    def _stored_line(self, line: bytes, path: Path, store: Callable[[Spooled], None]) -> int:
        try:
            entry = Spooled(*orjson.loads(line))
        except (ValueError, TypeError):  # the process was killed while it wrote the last one
            return 0
        self._put_aside_or(store, entry, path)
        return 1

    def _put_aside_or(self, store: Callable[[Spooled], None], entry: Spooled, path: Path) -> None:
        try:
            store(entry)
        except AWAY:
            raise
        except (EverlongError, ValueError, TypeError, KeyError) as error:
            _put_aside(path, entry, error)


def _put_aside(path: Path, entry: Spooled, error: Exception) -> None:
    with path.with_suffix(".broken").open("ab") as aside:
        told = entry._replace(sender=astuple(entry.sender)) if isinstance(entry.sender, Sender) else entry
        aside.write(dumped([str(error), *told]) + b"\n")


def _is_alive(path: Path) -> bool:
    """Whether the process that wrote a file still runs; it takes care of its own."""
    parts = path.stem.split("-")
    if len(parts) != 3 or not parts[1].isdigit():
        return False
    try:
        os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
