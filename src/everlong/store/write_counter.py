"""The write counter: how much was ever written to a store's file, kept beside it so that a lost end is noticed.

Commits of SQLite stay in its write-ahead log for a while. If that file is deleted or not copied along, the database is
intact but older than it was, and nothing in it says so: whatever is written into the database goes the same way. So the
numbers stand in a file whose name does not begin like those of SQLite's own files, which people delete together. The
numbers only grow. They are written after each commit without waiting for the disk, so they never exceed what was
committed. If that file is missing too, nobody can tell, and `verify` says so.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_HEAD = re.compile(rb"everlong (\d{20}) (\d{20})\n")
_HEAD_BYTES = 51
_MOST_BYTES = 100_000
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Counts(NamedTuple):
    """Numbers of the newest message and of the newest turn."""

    messages: int
    turns: int


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
    """The numbers of one file."""

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
