"""What tokens cost in units of one fresh input token, and the threshold at which compacting is cheapest.

Plain arithmetic that both sides of the planning layer share: the compressor asks it when to compact, prompt caching
asks it what an edit costs. It knows no provider; whoever knows one fills in the prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Prices", "Workload", "cheapest_threshold"]

_ROUNDS = 20
"""Rounds until the threshold, on which the price of a compaction itself depends, stands still."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What tokens cost in units of one fresh input token; the defaults are those of common cached models."""

    cache_read: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0
    cold_share: float = 0.0
    """The share of calls that find the cache expired."""
    dearer_above: int | None = None
    """A prompt of more tokens than this is charged at a higher rate, so that crossing it never pays."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a session looks like to the arithmetic, in tokens."""

    prefix: int
    """What every request carries and no compaction touches: system prompt, tools, first exchange."""
    summary: int
    """What a compaction writes."""
    tail: int
    """What it keeps as it was, unless ``tail_share`` says otherwise."""
    growth: float
    """What one call adds."""
    tail_share: float = 0.0
    """Where the tail is a share of the threshold, that share."""

    def tail_at(self, threshold: float) -> float:
        """The tail that a compaction at this threshold keeps."""
        return self.tail_share * threshold if self.tail_share else self.tail


def cheapest_threshold(work: Workload, prices: Prices, ceiling: int, start: int | None = None) -> int:
    """The threshold at which a cached conversation costs least, as an absolute number of tokens.

    A late compaction pays for reading a long prefix again and again, an early one pays for many summaries; the optimum
    is ``B + sqrt(2·F·g / r)`` with B what stands after a compaction, F what one compaction costs, g the growth per call
    and r the effective price of reading. F depends on the threshold itself, so the equation is iterated. ``ceiling`` is
    what the window can hold beside the reply; a step in the price of long prompts lowers it.
    """
    if prices.dearer_above is not None:
        ceiling = min(ceiling, prices.dearer_above)
    read = prices.cache_read
    effective_read = read + prices.cold_share * (prices.cache_write - read)
    threshold = float(ceiling if start is None else start)
    for _ in range(_ROUNDS):
        tail = work.tail_at(threshold)
        compaction = (
            read * threshold + prices.output * work.summary + (prices.cache_write - read) * (work.summary + tail)
        )
        after = work.prefix + work.summary + tail
        threshold = after + math.sqrt(2 * compaction * max(work.growth, 1.0) / effective_read)
        threshold = min(threshold, float(ceiling))
    least = work.prefix + work.summary + 2 * work.tail_at(threshold)
    return int(min(max(threshold, least), ceiling))
