"""Decide calmly when a conversation is compacted and how far, so that the prompt cache is seldom thrown away.

Agent, gateway and adapters share this policy. All tokens are those of whole requests: system prompt, tools, messages.

    room        what a prompt may have at most
    need        what stands after a compaction: the fixed part, the head, a summary and the tail
    threshold   where a compaction is considered
    step        by how much the conversation grows before the next one

A compaction that is considered may wait: see `Waiting`. Pure arithmetic; looks at no message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from everlong.context.budget import Budgets
    from everlong.tokens import Prices

__all__ = ["Pace", "Reason", "Waiting", "pace_of", "room_in"]

ROOM_SHARE = 0.85
"""At this share of the window a conversation is compacted whatever it costs."""
MARGIN = 0.02
LEAST_ROOM = 0.125
"""An answer may ask for the whole window; the prompt keeps this share of it all the same."""
NEED_SHARE = 0.6
"""What a compaction leaves takes no more than this share of the threshold, and of the room."""
NEAR = 0.7
"""From this share of the threshold on, a compaction makes room for a while; a shorter conversation keeps more."""
USUAL_SUMMARY = 3_000
"""What a summary takes as a rule; its cap is a limit that few reach."""
PATIENCE = 1.4
"""A compaction costs words besides money, so waiting may cost this much more than it; near the best that is little."""
APART = 0.5
"""For the same reason a conversation whose prices are known grows by this share of the window between two of them."""
STEP_OF_WINDOW = 0.15
STEP_OF_THRESHOLD = 0.3

Reason = Literal["recent", "cheaper"]
"""Why a compaction waits: the last one is too recent, or so far it would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The figures for one conversation in one window."""

    room: int
    need: int
    threshold: int
    step: int
    apart: int
    """By how much it grows where waiting is known to cost little."""
    tail: int
    """The tail's budget, which shrinks where a compaction would otherwise leave too much."""
    summary: int
    """The most that a summary takes."""
    is_set: bool = False
    """Whether the user set the threshold, which is then obeyed as it stands."""
    is_priced: bool = False
    """Whether prices were reckoned with when the threshold was chosen."""

    def explain(self, usual: int) -> list[str]:
        """Say why the threshold is another one than usual; nothing where it is the usual one."""
        if self.threshold == usual:
            return []
        why = f"after a compaction {self.need:,} tokens stand there, and the room is {self.room:,}"
        return [f"for this conversation {self.threshold:,} instead of {usual:,}: {why}"]

    @property
    def usual_summary(self) -> int:
        """The tokens that a summary takes as a rule."""
        return min(self.summary, USUAL_SUMMARY)

    @property
    def usual_need(self) -> int:
        """The tokens that a compaction leaves as a rule."""
        return self.need - self.summary + self.usual_summary

    def compaction_cost(self, tokens: int, prices: Prices, *, asks_model: bool) -> float:
        """Return what compacting so many tokens costs, in fresh input tokens."""
        rewritten = (prices.cache_write - prices.cache_read) * (self.usual_summary + self.tail)
        asked = prices.cache_read * tokens + prices.output * self.usual_summary if asks_model else 0.0
        return rewritten + asked


def room_in(window: int, answer_tokens: int = 0) -> int:
    """Return what a prompt may have at most, beside an answer of so many tokens."""
    room = min(int(ROOM_SHARE * window), int((1 - MARGIN) * window) - answer_tokens)
    return max(room, int(LEAST_ROOM * window), 1)


def pace_of(
    budgets: Budgets, *, fixed: int = 0, head: int = 0, answer_tokens: int = 0, dearer_above: int | None = None
) -> Pace:
    """Return the figures for a window.

    Args:
        budgets: what the settings make of the window.
        fixed: tokens that every request carries and no compaction touches.
        head: tokens of the first exchange.
        answer_tokens: the most that an answer may take.
        dearer_above: a prompt of more tokens than this is charged at a higher rate.
    """
    window, threshold = budgets.context_length, budgets.threshold_tokens
    room = room_in(window, answer_tokens)
    base = fixed + head + budgets.summary_cap
    tail = max(0, min(budgets.tail_tokens, int(NEED_SHARE * room) - base))
    need = base + tail
    if dearer_above is not None and need < NEED_SHARE * dearer_above:
        room = min(room, dearer_above)
    is_set = budgets.grounds.is_set
    if not is_set:
        threshold = min(room, max(threshold, int(need / NEED_SHARE)))
    step = min(int(STEP_OF_WINDOW * window), int(STEP_OF_THRESHOLD * threshold))
    is_priced = budgets.grounds.automatic is not None
    return Pace(room, need, threshold, step, int(APART * window), tail, budgets.summary_cap, is_set, is_priced)


@dataclass(slots=True)
class Waiting:
    """What has happened in one conversation since its last compaction.

    Every request pays for tokens that a compaction would have taken away. Once they have cost somewhat more than the
    compaction itself, it is made: so, however the conversation goes on, waiting never costs much more than twice what
    would have been best, and in one that grows evenly it is nearly the best.
    """

    left: int | None = None
    """What the last compaction left; None where there was none."""
    paid: float = 0.0
    """What the tokens above `Pace.usual_need` have cost since the last compaction, in fresh input tokens."""

    def sent(self, tokens: int, pace: Pace, prices: Prices) -> None:
        """Note a request that was sent with so many tokens."""
        self.paid += prices.cache_read * max(0, tokens - pace.usual_need)

    def compacted(self, tokens: int) -> None:
        """Note a compaction that left so many tokens."""
        self.left, self.paid = tokens, 0.0

    def reason(
        self,
        tokens: int,
        pace: Pace,
        prices: Prices,
        *,
        asks_model: bool = False,
        is_cold: bool = False,
        ahead: int = 0,
    ) -> Reason | None:
        """Return why a compaction that is considered waits; None where it is to be made now.

        Args:
            tokens: what the next request has.
            pace: the figures of the conversation.
            prices: what tokens cost; only known ones can make it wait.
            asks_model: whether a model writes the summary.
            is_cold: whether the provider has let go of the prompt, so that it is written anew in any case.
            ahead: so many tokens before the room it does not wait, because it takes a while itself.
        """
        if tokens >= pace.room - ahead:
            return None
        if pace.is_set:  # obeyed, unless the last compaction could not get below it
            is_stuck = self.left is not None and self.left >= pace.threshold
            return "recent" if is_stuck and tokens < (self.left or 0) + pace.step else None
        if self.left is not None and tokens < self.left + pace.step:
            return "recent"
        if pace.is_priced or is_cold or not prices.are_known:
            return None
        is_soon = self.left is not None and tokens < self.left + pace.apart
        cost = pace.compaction_cost(tokens, prices, asks_model=asks_model)
        return "cheaper" if is_soon or self.paid < PATIENCE * cost else None
