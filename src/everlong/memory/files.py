"""A file of notes on disk: read whole, changed under a lock, replaced whole, never over somebody's edit.

Programs take the folder's lock; people with an editor do not. So the file is read once more right before it is
replaced, and the change is worked out anew if somebody edited it meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from everlong.config.files import try_lock, write_whole
from everlong.errors import NotesError

_PAUSE_SECONDS = 0.01


@contextmanager
def hold_lock(folder: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the folder's lock in a ``with`` block; raises `NotesError` if others keep it for too long."""
    # The file stays: if it were deleted, two processes could lock two different files of that name.
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for(handle, folder, wait_seconds)
        yield
    finally:
        os.close(handle)  # which gives the lock back


def _wait_for(handle: int, folder: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while not try_lock(handle):
        if time.monotonic() >= deadline:
            raise NotesError(
                f"another program has kept the notes in {folder} locked for {wait_seconds:g} seconds; nothing was "
                "changed; try again later"
            )
        time.sleep(_PAUSE_SECONDS)


_ATTEMPTS = 20


class _EditedMeanwhile(Exception):  # noqa: N818 - never leaves this module
    """The file is no longer the one that was read."""


class NotesFile:
    """One file of notes, which need not exist yet."""

    def __init__(self, path: Path, wait_seconds: float) -> None:
        self.path = path
        self._wait_seconds = wait_seconds

    def read(self) -> str:
        """Return the file's text, empty where there is no file; invalid UTF-8 becomes a replacement character."""
        return self._bytes().decode("utf-8-sig", "replace")

    def change(self, edit: Callable[[str], str]) -> str:
        """Replace the text by what ``edit`` makes of it, and return that; if ``edit`` raises, nothing changes.

        ``edit`` is called again with the new text if somebody edited the file meanwhile.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hold_lock(self.path.parent, self._wait_seconds):
                for _ in range(_ATTEMPTS):
                    try:
                        return self._try_change(edit)
                    except _EditedMeanwhile:
                        continue
        except OSError as error:
            raise NotesError(f"cannot write {self.path}: {error.strerror or error}; nothing was changed") from error
        raise NotesError(f"{self.path} is being changed all the time by another program; nothing was changed")

    def _try_change(self, edit: Callable[[str], str]) -> str:
        read = self._bytes()
        try:
            before = read.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = read.count(b"\n", 0, error.start) + 1
            raise NotesError(
                f"{self.path} is not UTF-8 (line {line}), so it is only read and not changed; save it as UTF-8"
            ) from error

        def check() -> None:
            if self._bytes() != read:
                raise _EditedMeanwhile

        after = edit(before)
        if after == before:
            check()
        else:
            write_whole(self.path, after, check=check)
        return after

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise NotesError(f"cannot read {self.path}: {error.strerror or error}") from error
