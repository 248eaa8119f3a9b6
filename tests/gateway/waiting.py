"""Waiting for what a gateway does when nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

T = TypeVar("T")


def until(found: Callable[[], T], seconds: float = 20.0) -> T:
    """Return what is looked for as soon as there is something."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.01)
    return value
