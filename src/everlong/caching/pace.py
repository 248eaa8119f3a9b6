"""How a session moves: its pauses, and how long a summary lasts until the next one; from that, what an hour is worth.

Counts requests and times, and knows nothing of what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from everlong.caching.rules import SECONDS, ModelRules

__all__ = ["Pace", "Pauses"]

_BREAK_EVEN = (2.0 - 1.25) / (1.25 - 0.1)
"""Pauses per write from which on an hour's higher price is earned back."""


_LEAST_SPELLS = 3
"""Spells of other sessions from which on something is concluded from them."""


@dataclass
class Pauses:
    """The pauses of many sessions together, by which a new one is judged before it has had any.

    A spell is the time for which an hour's cache, written once, would last: it begins with a session, and again after
    a gap that even an hour does not bridge.
    """

    pauses: int = 0
    spells: int = 0

    @property
    def per_spell(self) -> float:
        """Pauses that an hour's cache would have bridged, for each time that it had to be written."""
        return self.pauses / self.spells if self.spells >= _LEAST_SPELLS else 0.0


@dataclass
class Pace:
    """The pauses and edits of one session so far."""

    requests: int = 0
    pauses: int = 0
    """Gaps that five minutes do not bridge and an hour does."""
    lost: int = 0
    """Gaps that even an hour does not bridge."""
    edits: int = 0
    shared: Pauses | None = None
    """Where the pauses of further sessions are counted with those of this one."""
    _last: float | None = None
    _frontier: bytes | None = None

    def note(self, now: float, frontier: bytes | None) -> None:
        """Take in a request: its time, and the prefix up to where history was last edited."""
        gap = 0.0 if self._last is None else now - self._last
        self.requests += 1
        is_pause, is_lost = SECONDS["5m"] <= gap < SECONDS["1h"], gap >= SECONDS["1h"]
        self.pauses += is_pause
        self.lost += is_lost
        if self.shared is not None:
            self.shared.pauses += is_pause
            self.shared.spells += is_lost or self._last is None
        if frontier is not None and frontier != self._frontier:
            self.edits += 1
            self._frontier = frontier
        self._last = now

    @property
    def cold_share(self) -> float:
        """The share of requests that find a five-minute cache gone."""
        return (self.pauses + self.lost) / (self.requests - 1) if self.requests > 1 else 0.0

    def pays_for_hour(self, rules: ModelRules) -> bool:
        """Return whether a prefix that is written now should be held for an hour.

        Holding it costs ``write[1h] - write[5m]`` more for each write, and saves ``write[5m] - read`` with each pause
        that it bridges. So it pays where pauses per write exceed the quotient. They are those of this session, once it
        has had a long gap; before, those of the others.
        """
        is_known = bool(self.pauses or self.lost)
        per_write = self.pauses / (1 + self.lost) if is_known or self.shared is None else self.shared.per_spell
        return per_write * (rules.write["5m"] - rules.read) > rules.write["1h"] - rules.write["5m"]

    def is_hour_worth_it(self) -> bool:
        """Whether a summary, by the pauses between earlier edits, will be read after a pause often enough."""
        return self.pauses / max(1, self.edits) > _BREAK_EVEN
