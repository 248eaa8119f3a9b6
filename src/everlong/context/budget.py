"""How many tokens each part of a compacted conversation may take, computed from settings and the window.

All arithmetic of thresholds and budgets is here, so that there is one place to hold against the contract. Nothing here
looks at a message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from everlong.config import CompressionValues
from everlong.context.grounds import AutomaticThreshold, ThresholdGrounds
from everlong.context.habits import Habits
from everlong.errors import ConfigError
from everlong.tokens import Prices, Workload, threshold_sums

SUMMARY_SHARE_OF_WINDOW = 0.05
FLOOR_SHARE_OF_WINDOW = 0.75
"""The threshold's floor never lifts it above this share, so that small local models work too."""
REPLY_RESERVE = 10_000
RESERVED_SHARE = 0.15
"""What an automatic threshold leaves for the reply: so many tokens, or of a small window this share."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The computed numbers for one window."""

    context_length: int
    threshold_tokens: int
    tail_tokens: int
    summary_cap: int
    summary_floor: int
    summary_ratio: float
    grounds: ThresholdGrounds
    """Where the threshold comes from."""

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
    grounds = _grounds(settings, context_length)
    threshold = grounds.threshold_tokens
    cap = max(1, min(int(context_length * SUMMARY_SHARE_OF_WINDOW), settings.summary_max_tokens))
    return Budgets(
        context_length=context_length,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * settings.target_ratio),
        summary_cap=cap,
        summary_floor=min(settings.summary_min_tokens, cap),
        summary_ratio=settings.summary_ratio,
        grounds=grounds,
    )


def threshold_tokens(settings: CompressionValues, context_length: int) -> int:
    """Where compaction starts: the user's share as it is, the default share with a floor for small windows."""
    return _grounds(settings, context_length).threshold_tokens


def _grounds(settings: CompressionValues, context_length: int) -> ThresholdGrounds:
    share = float(CompressionValues().threshold if settings.threshold == "auto" else settings.threshold)
    tokens, is_auto = int(context_length * share), settings.threshold == "auto"
    if settings.threshold_is_explicit and not is_auto:
        return ThresholdGrounds(tokens, context_length, share, tokens, is_set=True)
    floor = min(settings.minimum_context_length, int(context_length * FLOOR_SHARE_OF_WINDOW))
    return ThresholdGrounds(max(tokens, floor), context_length, share, tokens, floor_tokens=floor, is_auto=is_auto)


def adapted_budgets(
    settings: CompressionValues, context_length: int, prefix_tokens: int, habits: Habits, prices: Prices
) -> Budgets:
    """The budgets of a conversation with these habits; those of its window where it has not grown yet."""
    if not habits.growth:
        return compute_budgets(settings, context_length)
    prices = replace(prices, cold_share=max(prices.cold_share, habits.cold_share))
    prefix = max(prefix_tokens, habits.first_prompt)
    return automatic_budgets(settings, context_length, prefix, habits.mean_growth, prices, habits.calls, habits)


def automatic_budgets(
    settings: CompressionValues,
    context_length: int,
    prefix_tokens: int,
    growth_per_call: float,
    prices: Prices,
    calls: int = 0,
    habits: Habits | None = None,
) -> Budgets:
    """The budgets with the threshold at which a conversation that grows like this costs least.

    With ``habits``, a summary is reckoned with as large as it is expected to be, else as large as it may be.
    """
    usual = compute_budgets(settings, context_length)
    summary = usual.summary_cap if habits is None else habits.expected_summary(usual.summary_cap)
    work = Workload(prefix_tokens, summary, 0, growth_per_call, tail_share=settings.target_ratio)
    ceiling = context_length - int(min(REPLY_RESERVE, context_length * RESERVED_SHARE))
    sums = threshold_sums(work, prices, ceiling, usual=usual.threshold_tokens)
    threshold = sums.threshold
    share, told = (None, 0) if habits is None else (habits.tool_share, len(habits.summaries))
    automatic = AutomaticThreshold(work, prices, sums, calls, share, told, usual.summary_cap)
    return replace(
        usual,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * settings.target_ratio),
        grounds=replace(usual.grounds, threshold_tokens=threshold, automatic=automatic),
    )
