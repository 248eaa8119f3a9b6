"""Waiting for what other threads and processes do; the one place where tests sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 300.0
"""Seconds after which a test gives up waiting: so many that only a hang takes them, however busy the machine is."""


def until(found: Callable[[], T]) -> T:
    """Return what a function finds as soon as it finds something; fail after `PATIENCE`."""
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < end, f"waited {PATIENCE} seconds in vain"
        time.sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    """Whether a process is there and is not only waiting to be buried."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
