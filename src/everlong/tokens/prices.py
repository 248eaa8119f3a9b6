"""Prices in units of one fresh input token, and the threshold at which compacting is cheapest.

The compressor uses it to decide when to compact, prompt caching to price an edit. Dollars and providers are the
business of `everlong.providers.catalogue`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Prices", "ThresholdSums", "Workload", "cost_per_call", "threshold_sums"]

_LEAST_SAVING = 0.05
"""The saving from which on the usual threshold is left for a cheaper one: the figures behind it are estimates."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in units of one fresh input token; the defaults are those of common cached models."""

    cache_read: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0
    cold_share: float = 0.0
    """The share of calls that find the cache expired."""
    dearer_above: int | None = None
    """The prompt tokens above which a higher rate applies, so that crossing it never pays."""
    are_known: bool = False
    """True if these are the prices of the model in use."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The sizes of a session, in tokens."""

    prefix: int
    """Tokens of every request that no compaction touches: system prompt, tools, first exchange."""
    summary: int
    """Tokens of the summary that a compaction writes."""
    growth: float
    """Tokens that one call adds."""
    tail_share: float = 0.0
    """The share of the threshold that a compaction keeps unmodified."""


@dataclass(frozen=True, slots=True)
class ThresholdSums:
    """The cheapest threshold and the figures that lead to it; costs in fresh input tokens per call."""

    threshold: int
    """The outcome: the cheapest threshold, or the usual one if that is hardly dearer."""
    base: float
    """Tokens after a compaction, without a tail that is a share of the threshold."""
    root: float
    """Tokens by which the conversation grows above ``base`` before it pays to compact."""
    tail_share: float
    read: float
    """The cost of a token in the prompt, expired caches included."""
    ceiling: int
    best: int
    """``(base + root) / (1 - tail_share)``, at most the ceiling."""
    best_cost: float
    usual: int | None
    usual_cost: float | None
    """None if the usual threshold cannot be used: it is above the ceiling or below ``base``."""


def cost_per_call(work: Workload, prices: Prices, threshold: float) -> float:
    """Return the average cost of a call, without its new tokens, if history is compacted at this threshold."""
    after = work.prefix + work.summary + work.tail_share * threshold
    calls = max(1.0, (threshold - after) / max(work.growth, 1.0))
    return _effective_read(prices) * (after + threshold) / 2 + _compaction_cost(work, prices, threshold) / calls


def _effective_read(prices: Prices) -> float:
    """Return the cost of a token in the prompt: read from a warm cache, written to a cold one."""
    return prices.cache_read + prices.cold_share * (prices.cache_write - prices.cache_read)


def _compaction_cost(work: Workload, prices: Prices, threshold: float) -> float:
    """Return the cost of one compaction: reading all, writing the summary, and caching the moved tokens again."""
    moved = work.summary + work.tail_share * threshold
    return (
        prices.cache_read * threshold + prices.output * work.summary + (prices.cache_write - prices.cache_read) * moved
    )


def threshold_sums(work: Workload, prices: Prices, ceiling: int, usual: int | None = None) -> ThresholdSums:
    """Return the threshold at which a cached conversation costs least, with the figures that lead to it.

    A late compaction pays for reading a long prefix again and again, an early one pays for many summaries; the optimum
    is ``B + sqrt(2·F·g / r)`` with B the tokens after a compaction, F the cost of one compaction, g the growth per call
    and r the effective price of reading. The tail is a share of the threshold, so B and F grow with it, which moves
    the optimum a little. ``ceiling`` is the room of the window beside the reply; a step in the price of long prompts
    lowers it. A ``usual`` threshold stays if the cheapest one is hardly better.
    """
    if prices.dearer_above is not None:
        ceiling = min(ceiling, prices.dearer_above)
    share = work.tail_share
    base = work.prefix + work.summary
    fixed = _compaction_cost(work, prices, 0)
    rising = _compaction_cost(work, prices, 1) - fixed  # additional cost of a compaction per token of the threshold
    read = _effective_read(prices)
    root = math.sqrt(2 * max(work.growth, 1.0) * (fixed * (1 - share) + rising * base) / (read * (1 + share)))
    best = int(min((base + root) / (1 - share), ceiling))
    best_cost, usual_cost, threshold = cost_per_call(work, prices, best), None, best
    if usual is not None and base < usual <= ceiling:
        usual_cost = cost_per_call(work, prices, usual)
        threshold = usual if usual_cost * (1 - _LEAST_SAVING) <= best_cost else best
    return ThresholdSums(threshold, base, root, share, read, ceiling, best, best_cost, usual, usual_cost)
