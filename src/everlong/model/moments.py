"""Moments in the files of others."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

_LATEST = 1e11
"""The year 5138. Later moments have no date in every time zone, and numbers above are milliseconds."""


def seconds_of(value: object) -> float | None:
    """Return a moment in seconds since 1970, from a text or from seconds or milliseconds; None for anything else."""
    seconds = 0.0
    if isinstance(value, str):
        with suppress(ValueError, OverflowError, OSError):
            seconds = datetime.fromisoformat(value).timestamp()
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1_000 * _LATEST:
        seconds = value / 1_000 if value > _LATEST else float(value)
    return seconds if 0 < seconds <= _LATEST else None
