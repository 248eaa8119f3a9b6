"""How much tests try: little in continuous integration, more for people, all of it in long runs."""

from __future__ import annotations

import os

__all__ = ["examples", "length"]

# Continuous integration asks the same questions every time, so more of them tell little; `make soak` asks new ones.
_HUNDRED = int(os.environ.get("EVERLONG_TEST_EXAMPLES", "20" if os.environ.get("CI") else "60"))
_LEAST = 10


def examples(most: int = 100) -> int:
    """Return how many examples a property tries of which a thorough run tries `most` for each hundred asked for."""
    return max(_LEAST, most * _HUNDRED // 100)


def length(whole: int, short: int) -> int:
    """Return how long a session or a list of cases is: short, unless a thorough run is asked for."""
    return whole if _HUNDRED >= 100 else short
