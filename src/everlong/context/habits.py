"""How a conversation behaves, from what the API reports: its first size, its growth per call, its pauses.

Numbers and times only; what follows from them for the threshold is arithmetic elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Habits"]

_REMEMBERED = 128
"""Calls whose growth is averaged: wide steps are rare and large, so few calls tell little."""
_PRIOR_CALLS = 48
_USUAL_COLD_SHARE = 0.04
_KEPT_SECONDS = 300.0
"""After a pause of this length a provider's cache is usually gone."""


@dataclass
class Habits:
    """What is known of one conversation so far."""

    first_prompt: int = 0
    """The first prompt's size: system prompt, tools and the first request, which compaction does not touch."""
    growth: list[int] = field(default_factory=list)
    calls: int = 0
    pauses: int = 0
    _last: float | None = None

    def note(self, prompt: int, before: int, now: float) -> None:
        """Take in a call: its prompt's tokens, those of the call before, and when it was."""
        self.calls += 1
        self.first_prompt = self.first_prompt or prompt
        if before and prompt > before:
            self.growth = [*self.growth[1 - _REMEMBERED :], prompt - before]
        if self._last is not None:
            self.pauses += now - self._last > _KEPT_SECONDS
        self._last = now

    def is_cold(self, now: float) -> bool:
        """Return whether the last call is so long ago that the provider has let go of the prompt."""
        return self._last is not None and now - self._last > _KEPT_SECONDS

    @property
    def mean_growth(self) -> float:
        """The tokens that a call adds on average."""
        return sum(self.growth) / len(self.growth)

    @property
    def cold_share(self) -> float:
        """The share of calls that come after a pause; few calls tell little, so the usual share is weighed in."""
        return (self.pauses + _USUAL_COLD_SHARE * _PRIOR_CALLS) / (max(0, self.calls - 1) + _PRIOR_CALLS)
