"""How the interpreter works in a process whose one job is the gateway; nothing here is for processes of others."""

from __future__ import annotations

import gc
import sys

__all__ = ["tune"]

_SWITCH_SECONDS = 0.0005
"""So long a thread that stores something may keep the interpreter from whoever serves clients."""
_GARBAGE = (20_000, 20, 20)
"""How seldom garbage is looked for: requests leave hardly any, and each look costs all of them time."""


def tune() -> None:
    """Make this process one that serves; what is loaded by now stays in memory."""
    sys.setswitchinterval(min(_SWITCH_SECONDS, sys.getswitchinterval()))
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
