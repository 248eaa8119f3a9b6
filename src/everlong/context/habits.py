"""How a conversation behaves: its first size, its growth per call, its pauses, its mix of tool output and talk.

Numbers and times only, and no word that was said; what follows from them for the threshold is arithmetic elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from everlong.context.literals import is_summary
from everlong.model import Message, is_system, text_of

__all__ = ["Habits"]

_REMEMBERED = 128
"""Calls whose growth is averaged: wide steps are rare and large, so few calls tell little."""
_PRIOR_CALLS = 48
_USUAL_COLD_SHARE = 0.04
_REMEMBERED_SUMMARIES = 4
_DIGESTED = 0.7
"""What a first summary of nothing but tool output is taken to need of its room: calls, outcomes, a few lines of each.
A bolder guess saves more where it is right, and costs a compaction too many where it is not."""
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
    tool_output: int = 0
    """Characters that tools have put out, and that people and the model have said."""
    talk: int = 0
    summaries: list[int] = field(default_factory=list)
    """The tokens that the summaries so far have taken."""
    _last: float | None = None
    _seen: int = 0

    def note(self, prompt: int, before: int, now: float) -> None:
        """Take in a call: its prompt's tokens, those of the call before, and when it was."""
        self.calls += 1
        self.first_prompt = self.first_prompt or prompt
        if before and prompt > before:
            self.growth = [*self.growth[1 - _REMEMBERED :], prompt - before]
        if self._last is not None:
            self.pauses += now - self._last > _KEPT_SECONDS
        self._last = now

    def look_at(self, messages: Sequence[Message]) -> None:
        """Take in what a request says more than the one before: how much of it tools have put out."""
        self.hear(messages[self._seen :])
        self._seen = len(messages)

    def hear(self, messages: Sequence[Message]) -> None:
        """Take in new messages."""
        for message in messages:
            if message.get("role") == "tool":
                self.tool_output += len(text_of(message))
            elif not is_system(message) and not is_summary(message):
                self.talk += len(text_of(message))

    def summarized(self, tokens: int) -> None:
        """Take in what a summary has taken."""
        self.summaries = [*self.summaries[1 - _REMEMBERED_SUMMARIES :], tokens]

    @property
    def tool_share(self) -> float | None:
        """The share of what was said that tools have put out; None where nothing was looked at."""
        said = self.tool_output + self.talk
        return self.tool_output / said if said else None

    def expected_summary(self, cap: int) -> int:
        """Return what the next summary takes, of at most so many tokens.

        By those before it, where there were any. Before the first one, by what it has to tell of: talk takes the room
        that there is, tool output is told in a digest.
        """
        if self.summaries:
            return min(cap, round(sum(self.summaries) / len(self.summaries)))
        return round(cap * (1 - (1 - _DIGESTED) * (self.tool_share or 0.0)))

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
