"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Seconds as a test wants them: call it for the time, `advance` it, or hand its `sleep` to what would wait."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self.slept: list[float] = []
        """How long each sleep was."""

    def __call__(self) -> float:
        """The time now."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Pass the time at once, and remember how much it was."""
        self.slept.append(seconds)
        self._now += seconds
