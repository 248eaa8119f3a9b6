"""Faults at random that can be repeated, and a clock that a test controls."""

from __future__ import annotations

import random
from collections.abc import Sequence

from everlong.testing import Fault
from everlong.testing.server.exchange import KINDS, FaultKind, FaultPlan


def random_faults(seed: int, share: float, kinds: Sequence[FaultKind] = KINDS, seconds: float = 0.01) -> FaultPlan:
    """Return a plan in which ``share`` of the requests fail at random; equal seeds give equal plans."""

    def plan(number: int) -> Fault | None:
        dice = random.Random(f"{seed}/{number}")
        if dice.random() >= share:
            return None
        kind = dice.choice(list(kinds))
        return Fault(kind, retry_after=0.01 if kind in {"rate_limit", "overloaded"} else None, seconds=seconds)

    return plan


class ManualClock:
    """A clock that a test controls: call it for the time, `advance` it, or pass its `sleep` to code that waits."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self.slept: list[float] = []
        """The length of each sleep."""

    def __call__(self) -> float:
        """Return the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once, and record it."""
        self.slept.append(seconds)
        self._now += seconds
