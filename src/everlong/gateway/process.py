"""How the interpreter works in a process whose one job is the gateway; nothing here is for processes of others."""

from __future__ import annotations

import ctypes
import gc
import sys

__all__ = ["tune"]

_SWITCH_SECONDS = 0.0005
"""So long a thread that stores something may keep the interpreter from whoever serves clients."""
_GARBAGE = (20_000, 20, 20)
"""How seldom garbage is looked for: requests leave hardly any, and each look costs all of them time."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""The names by which `mallopt` of the GNU C library knows its options."""
_LARGE_BYTES = 1_000_000
_ARENAS = 2


def tune() -> None:
    """Make this process one that serves; what is loaded by now stays in memory."""
    _give_memory_back()
    sys.setswitchinterval(min(_SWITCH_SECONDS, sys.getswitchinterval()))
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)


def _give_memory_back() -> None:
    """Have the C library return large blocks to the system as soon as they are freed.

    By itself it learns from every large body that such blocks are usual, and keeps them.
    """
    if sys.platform != "linux":
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
        set_option(_ARENA_MAX, _ARENAS)
