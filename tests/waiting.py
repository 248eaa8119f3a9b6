"""Waiting for what other threads and processes do; the one place where tests sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

T = TypeVar("T")


def until(found: Callable[[], T], seconds: float = 60.0) -> T:
    """Return what a function finds as soon as it finds something; fail after some seconds."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"waited {seconds} seconds in vain"
        time.sleep(0.01)
    return value
