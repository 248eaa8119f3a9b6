"""How many tokens each part of a compacted conversation may take, computed from settings and the window.

All arithmetic of thresholds and budgets is here, so that there is one place to hold against the contract. Nothing here
looks at a message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from everlong.config import CompressionValues
from everlong.errors import ConfigError

SUMMARY_SHARE_OF_WINDOW = 0.05
FLOOR_SHARE_OF_WINDOW = 0.75
"""The threshold's floor never lifts it above this share, so that small local models work too."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The computed numbers for one window."""

    context_length: int
    threshold_tokens: int
    tail_tokens: int
    summary_cap: int
    summary_floor: int
    summary_ratio: float

    def summary_tokens(self, content_tokens: int) -> int:
        """What a summary of so much content may take."""
        return max(self.summary_floor, min(self.summary_cap, int(content_tokens * self.summary_ratio)))


def compute_budgets(settings: CompressionValues, context_length: int) -> Budgets:
    """The budgets of a window under the given settings."""
    if type(context_length) is not int or context_length < 1:  # a bool is an int, but no number of tokens
        raise ConfigError(
            f"context_length must be a whole number of tokens, at least 1, got {context_length!r}; "
            "give the size of the model's window, for example 200000",
            key="context_length",
        )
    threshold = threshold_tokens(settings, context_length)
    cap = max(1, min(int(context_length * SUMMARY_SHARE_OF_WINDOW), settings.summary_max_tokens))
    return Budgets(
        context_length=context_length,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * settings.target_ratio),
        summary_cap=cap,
        summary_floor=min(settings.summary_min_tokens, cap),
        summary_ratio=settings.summary_ratio,
    )


def threshold_tokens(settings: CompressionValues, context_length: int) -> int:
    """Where compaction starts: the user's share as it is, the default share with a floor for small windows."""
    share = CompressionValues().threshold if settings.threshold == "auto" else settings.threshold
    tokens = int(context_length * float(share))
    if settings.threshold_is_explicit and settings.threshold != "auto":
        return tokens
    floor = min(settings.minimum_context_length, int(context_length * FLOOR_SHARE_OF_WINDOW))
    return max(tokens, floor)


@dataclass(frozen=True, slots=True)
class Prices:
    """What tokens cost in units of one fresh input token; the defaults are those of common cached models."""

    cache_read: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0
    cold_share: float = 0.0
    """The share of calls that find the cache expired."""


def cheapest_threshold(budgets: Budgets, prefix_tokens: int, growth_per_call: float, prices: Prices) -> int:
    """The threshold at which a cached conversation costs least, as an absolute number of tokens.

    A late compaction pays for reading a long prefix again and again, an early one pays for many summaries; the optimum
    is ``B + sqrt(2·F·g / r)`` with B what stands after a compaction, F what one compaction costs, g the growth per call
    and r the effective price of reading. F depends on the threshold itself, so the equation is iterated.
    """
    after = prefix_tokens + budgets.summary_cap + budgets.tail_tokens
    read = prices.cache_read
    effective_read = read + prices.cold_share * (prices.cache_write - read)
    threshold = float(budgets.threshold_tokens)
    for _ in range(20):
        compaction = (
            read * threshold
            + prices.output * budgets.summary_cap
            + (prices.cache_write - read) * (budgets.summary_cap + budgets.tail_tokens)
        )
        threshold = after + math.sqrt(2 * compaction * max(growth_per_call, 1.0) / effective_read)
    ceiling = int(budgets.context_length * 0.85)
    return max(min(int(threshold), ceiling), min(after + budgets.tail_tokens, ceiling))
