"""A lock on a folder that all processes and threads of this machine respect, given up by the system if one dies.

Knows nothing of what is done while it is held.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everlong.config.file_lock import try_lock
from everlong.errors import NotesError

_PAUSE_SECONDS = 0.01


@contextmanager
def held(folder: Path, wait_seconds: float) -> Iterator[None]:
    """Nobody else holds the folder's lock meanwhile; raises `NotesError` where others keep it for too long."""
    # The file stays: who deleted it would let two processes lock two different files of that name.
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
