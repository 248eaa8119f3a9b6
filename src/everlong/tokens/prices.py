"""What tokens cost in units of one fresh input token, and the threshold at which compacting is cheapest.

Plain arithmetic that both sides of the planning layer share: the compressor asks it when to compact, prompt caching
asks it what an edit costs. It knows no provider; whoever knows one fills in the prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Prices", "ThresholdSums", "Workload", "cheapest_threshold", "cost_per_call", "threshold_sums"]

_NOT_WORTH_MOVING = 0.05
"""A usual threshold stays unless another is cheaper by more than this share: the figures behind it are estimates."""


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
    are_known: bool = False
    """Whether they are those of the model that is used."""


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


@dataclass(frozen=True, slots=True)
class ThresholdSums:
    """How the cheapest threshold was found: the figures on the way; costs in fresh input tokens per call."""

    threshold: int
    """The outcome: the cheapest one, or the usual one where that is hardly dearer."""
    base: float
    """What stands after a compaction besides a tail that is a share of the threshold."""
    root: float
    """How far above that the conversation grows before it pays to compact."""
    tail_share: float
    read: float
    """What it costs to have a token in the prompt, pauses reckoned in."""
    ceiling: int
    best: int
    """``(base + root) / (1 - tail_share)``, at most the ceiling."""
    best_cost: float
    usual: int | None
    usual_cost: float | None
    """None where the usual threshold cannot be used: above the ceiling, or below what always stands there."""


def cost_per_call(work: Workload, prices: Prices, threshold: float) -> float:
    """What a call costs on average if history is compacted at this threshold, new tokens not counted."""
    after = work.prefix + work.summary + work.tail_at(threshold)
    calls = max(1.0, (threshold - after) / max(work.growth, 1.0))
    return _effective_read(prices) * (after + threshold) / 2 + _compaction(work, prices, threshold) / calls


def _effective_read(prices: Prices) -> float:
    """What it costs to have a token in the prompt: read where it is held, written where it is not."""
    return prices.cache_read + prices.cold_share * (prices.cache_write - prices.cache_read)


def _compaction(work: Workload, prices: Prices, threshold: float) -> float:
    """What one compaction costs: reading all, writing the summary, and writing again what then stands elsewhere."""
    moved = work.summary + work.tail_at(threshold)
    return (
        prices.cache_read * threshold + prices.output * work.summary + (prices.cache_write - prices.cache_read) * moved
    )


def cheapest_threshold(work: Workload, prices: Prices, ceiling: int, usual: int | None = None) -> int:
    """The threshold at which a cached conversation costs least, as an absolute number of tokens.

    A late compaction pays for reading a long prefix again and again, an early one pays for many summaries; the optimum
    is ``B + sqrt(2·F·g / r)`` with B what stands after a compaction, F what one compaction costs, g the growth per call
    and r the effective price of reading. Where the tail is a share of the threshold, B and F grow with it, which moves
    the optimum by a little. ``ceiling`` is what the window can hold beside the reply; a step in the price of long
    prompts lowers it. A ``usual`` threshold stays where the cheapest one is hardly better.
    """
    return threshold_sums(work, prices, ceiling, usual).threshold


def threshold_sums(work: Workload, prices: Prices, ceiling: int, usual: int | None = None) -> ThresholdSums:
    """The cheapest threshold with the figures that lead to it; see `cheapest_threshold`."""
    if prices.dearer_above is not None:
        ceiling = min(ceiling, prices.dearer_above)
    share = work.tail_share
    base = work.prefix + work.summary + work.tail_at(0)
    fixed = _compaction(work, prices, 0)
    rising = _compaction(work, prices, 1) - fixed  # what a compaction costs more for each token of the threshold
    read = _effective_read(prices)
    root = math.sqrt(2 * max(work.growth, 1.0) * (fixed * (1 - share) + rising * base) / (read * (1 + share)))
    best = int(min((base + root) / (1 - share), ceiling))
    best_cost, usual_cost, threshold = cost_per_call(work, prices, best), None, best
    if usual is not None and base < usual <= ceiling:
        usual_cost = cost_per_call(work, prices, usual)
        threshold = usual if usual_cost * (1 - _NOT_WORTH_MOVING) <= best_cost else best
    return ThresholdSums(threshold, base, root, share, read, ceiling, best, best_cost, usual, usual_cost)
