"""Careful reads, atomic writes and file locks."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["is_regular", "open_regular", "try_lock", "write_whole"]


def open_regular(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a file that somebody else may have put there: a pipe would keep its reader waiting, a link leads elsewhere.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb", buffering)


def is_regular(path: Path) -> bool:
    """Return whether a path names a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def write_whole(path: Path, text: str, new_mode: int = 0o600, check: Callable[[], None] | None = None) -> None:
    """Replace a file's text in one step: readers see the old text or the new one, never half of it.

    An existing file keeps its mode, and a symbolic link stays a link.

    Args:
        path: the file.
        text: the new text.
        new_mode: the mode of a file that did not exist.
        check: called last before the replacement; an exception from it keeps the old file.
    """
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:  # it names a file that the caller has never heard of
        raise OSError(error.errno, error.strerror, str(path)) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else new_mode)
        if check is not None:
            check()
        temporary.replace(target)
    except BaseException:  # an interrupt, too, must not leave the temporary file behind
        temporary.unlink(missing_ok=True)
        raise


if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """An offset beyond the end of any file: on Windows nobody else can read locked bytes."""

    def _take(handle: int) -> None:
        before = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(handle, before, os.SEEK_SET)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; return False if somebody else, even in this process, holds the lock."""
    try:
        _take(handle)
    except (BlockingIOError, PermissionError):  # the latter is how Windows says it
        return False
    return True
