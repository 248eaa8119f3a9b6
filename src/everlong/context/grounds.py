"""Why compaction starts where it does, and why one that was due was not made: figures, and sentences about them.

Values that are made where the decision is made, so that what is told is what was decided. Decides nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from everlong.tokens import Prices, ThresholdSums, Workload

__all__ = ["AutomaticThreshold", "HeldBack", "LeftAlone", "ThresholdGrounds"]


@dataclass(frozen=True, slots=True)
class AutomaticThreshold:
    """What was measured for an automatic threshold, and the sum that it led to."""

    work: Workload
    prices: Prices
    sums: ThresholdSums
    calls: int
    """So many calls were measured."""

    def explain(self) -> list[str]:
        """The arithmetic, a step per line."""
        work, prices, sums = self.work, self.prices, self.sums
        lines = [
            f"measured over {self.calls} calls: {work.prefix:,} tokens that always stand there, "
            f"{work.growth:,.0f} more per call, {100 * prices.cold_share:.1f} % of calls after a pause",
            f"a token costs {prices.cache_read:g} to read, {prices.cache_write:g} to write and {prices.output:g} as "
            f"output (a fresh one is 1), so {sums.read:.3f} in each prompt; a summary takes {work.summary:,}",
            f"cheapest at ({sums.base:,.0f} + {sums.root:,.0f}) / (1 − {sums.tail_share:g}), at most {sums.ceiling:,}: "
            f"{sums.best:,}, where a call costs {sums.best_cost:,.0f}",
        ]
        if sums.usual is not None and sums.usual_cost is not None:
            kept = "hardly more, so it stays" if sums.threshold == sums.usual else "more"
            lines.append(f"at the usual {sums.usual:,} it costs {sums.usual_cost:,.0f}: {kept}")
        return lines


@dataclass(frozen=True, slots=True)
class ThresholdGrounds:
    """Where a threshold comes from."""

    threshold_tokens: int
    context_length: int
    share: float
    """The share of the window that is set, or that is usual."""
    share_tokens: int
    is_set: bool = False
    """Whether the user set the share; then it is obeyed as it is."""
    floor_tokens: int | None = None
    """What the usual share is lifted to; None where there is no floor."""
    is_auto: bool = False
    automatic: AutomaticThreshold | None = None
    """None where the threshold is not automatic, or nothing was measured yet."""

    def explain(self) -> list[str]:
        """The threshold with its arithmetic, a step per line."""
        share = f"{100 * self.share:g} % of {self.context_length:,}"
        if self.automatic is not None:
            return [
                f"threshold {self.threshold_tokens:,} tokens (compression.threshold: auto)",
                *self.automatic.explain(),
            ]
        told = f"threshold {self.threshold_tokens:,} tokens: "
        if self.is_set:
            return [f"{told}{share} (compression.threshold)"]
        wait = "auto has measured nothing yet; until then " if self.is_auto else ""
        if self.floor_tokens is not None and self.floor_tokens > self.share_tokens:
            floor = "compression.minimum_context_length, at most 75 % of the window"
            return [f"{told}{wait}{share} is {self.share_tokens:,}, lifted to the floor ({floor})"]
        return [f"{told}{wait}{share} (the usual share)"]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A compaction that was due and was not made."""

    tokens: int
    """What the request had."""
    threshold_tokens: int
    saved: tuple[float, ...] = ()
    """The shares that the compactions before had saved, each too little to go on like that."""
    tokens_then: int = 0
    """What was left after the last of them."""
    tail_tokens: int = 0
    """By so much the conversation must have grown for the next one."""
    step: int = 0
    """The same where the last compaction is only too recent."""
    cost: float = 0.0
    """What it would cost, in fresh input tokens, where waiting is cheaper; and what waiting has cost so far."""
    paid: float = 0.0
    room: int = 0
    """The tokens at which it is made whatever it costs."""

    @property
    def next_at(self) -> int:
        """The tokens at which it is made after all."""
        return self.tokens_then + (self.step or self.tail_tokens)

    def explain(self) -> str:
        """Why it was held back, with the arithmetic."""
        due = f"held back at {self.tokens:,} tokens (threshold {self.threshold_tokens:,}): "
        if self.step:
            return f"{due}the last compaction left {self.tokens_then:,}; the next is at {self.next_at:,} or later"
        if self.cost:
            return (
                f"{due}it would cost as much as {self.cost:,.0f} fresh tokens, and waiting has cost {self.paid:,.0f}; "
                f"it is made when that is clearly more, or at {self.room:,}"
            )
        if not self.saved:
            return f"{due}there was nothing to compact, all of it is recent or protected"
        saved = " and ".join(f"{100 * share:.1f} %" for share in self.saved)
        return (
            f"{due}the last {len(self.saved)} compactions saved {saved}, less than 10 %; "
            f"the next is at {self.tokens_then:,} + {self.tail_tokens:,} = {self.next_at:,}"
        )


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A summarizer that failed and is not asked for a while."""

    name: str
    reason: str
    seconds_left: float
    cooldown_seconds: float

    def explain(self) -> str:
        """Who is not asked, why, and for how long."""
        return (
            f"held back: {self.name} is asked for no summary for another {self.seconds_left:.0f} of "
            f"{self.cooldown_seconds:g} seconds, because it failed: {self.reason}"
        )
