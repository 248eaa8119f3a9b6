"""How much tests try: little in `make test`, everything in `make soak`."""

from __future__ import annotations

import os

__all__ = ["examples", "length"]

# `make soak` sets this to 100 or more.
_HUNDRED = int(os.environ.get("EVERLONG_TEST_EXAMPLES", "12"))
_LEAST = 6


def examples(most: int = 100) -> int:
    """Return how many examples a property tries; a thorough run tries `most`."""
    return max(_LEAST, most * _HUNDRED // 100)


def length(whole: int, short: int) -> int:
    """Return how long a session or a list of cases is: `whole` in a thorough run, else `short`."""
    return whole if _HUNDRED >= 100 else short
