"""A lock on an open file that all processes and threads of this machine respect; the system ends it with its holder.

A process id tells nothing about who is alive: the first process of every container is number 1.
"""

from __future__ import annotations

import os
import sys

__all__ = ["try_lock"]

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """Windows keeps others from reading the bytes that are locked, so none is locked that a file has."""

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
    """Lock an open file until it is closed; False where somebody else holds it, be it in this process."""
    try:
        _take(handle)
    except (BlockingIOError, PermissionError):  # the latter is how Windows says it
        return False
    return True
