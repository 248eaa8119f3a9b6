"""How a session moves: its pauses, and how long a summary lasts until the next one; from that, what an hour is worth.

Counts requests and times, and knows nothing of what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from everlong.caching.rules import SECONDS

__all__ = ["Pace"]

_BREAK_EVEN = (2.0 - 1.25) / (1.25 - 0.1)
"""Pauses per write from which on an hour's higher price is earned back."""


@dataclass
class Pace:
    """The pauses and edits of one session so far."""

    requests: int = 0
    pauses: int = 0
    """Gaps that five minutes do not bridge and an hour does."""
    lost: int = 0
    """Gaps that even an hour does not bridge."""
    edits: int = 0
    _last: float | None = None
    _frontier: bytes | None = None

    def note(self, now: float, frontier: bytes | None) -> None:
        """Take in a request: its time, and the prefix up to where history was last edited."""
        gap = 0.0 if self._last is None else now - self._last
        self.requests += 1
        self.pauses += SECONDS["5m"] <= gap < SECONDS["1h"]
        self.lost += gap >= SECONDS["1h"]
        if frontier is not None and frontier != self._frontier:
            self.edits += 1
            self._frontier = frontier
        self._last = now

    @property
    def cold_share(self) -> float:
        """The share of requests that find a five-minute cache gone."""
        return (self.pauses + self.lost) / (self.requests - 1) if self.requests > 1 else 0.0

    def is_hour_worth_it(self) -> bool:
        """Whether a summary, by the pauses between earlier edits, will be read after a pause often enough."""
        return self.pauses / max(1, self.edits) > _BREAK_EVEN
