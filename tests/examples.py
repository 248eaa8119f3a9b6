"""How much tests try: little in `make test`, everything in `make soak`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings

T = TypeVar("T")

# `make soak` sets this to 100 or more.
_HUNDRED = int(os.environ.get("EVERLONG_TEST_EXAMPLES", "12"))
_LEAST = 6
IS_THOROUGH = _HUNDRED >= 100
"""True in `make soak`, which also runs the tests that are marked `soak`."""


def examples(most: int = 100) -> int:
    """Return how many examples a property tries; a thorough run tries `most`."""
    return max(_LEAST, most * _HUNDRED // 100)


def on_a_database(most: int) -> settings:
    """Return the settings of a property whose examples share a database; to shrink one there takes minutes."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(max_examples=examples(most), deadline=None, phases=phases, suppress_health_check=list(HealthCheck))


def length(whole: int, short: int) -> int:
    """Return how long a session or a list of cases is: `whole` in a thorough run, else `short`."""
    return whole if IS_THOROUGH else short


def few(cases: Sequence[T], count: int = 1) -> Sequence[T]:
    """Return the cases of a test: all in a thorough run, else the first ones."""
    return cases if IS_THOROUGH else cases[:count]
