"""The price of an edit of history, and whether it is worth it now.

An edit (clearing old results, compacting) makes every later request shorter, but a provider that holds the prompt must
write again what stands behind the edit. So edits wait until the prompt is not held anyway, or until they free enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from everlong.caching.rules import model_rules

__all__ = ["EditDecision", "worth_editing"]

LEAST_GAIN = 40_000
"""Tokens that an edit must free while the provider holds the prompt; ``bench.caching clearing`` measures it."""


@dataclass(frozen=True, slots=True)
class EditDecision:
    """The decision on an edit of history, and its figures; costs in fresh input tokens."""

    is_worth_it: bool
    gain_tokens: int
    """Tokens that every later request saves."""
    rewrite_tokens: int
    """Tokens behind the edit that must be written again."""
    rewrite_cost: float
    """The extra cost of writing them instead of reading; 0 if the provider does not hold them."""
    saving_per_call: float
    """The saving of each later request."""

    @property
    def break_even_calls(self) -> float:
        """The number of requests after which the edit has paid for itself."""
        return self.rewrite_cost / self.saving_per_call if self.saving_per_call > 0 else 0.0


def worth_editing(gain_tokens: int, rewrite_tokens: int, *, is_cold: bool, model: str = "") -> EditDecision:
    """Return whether to change history now, and what it costs.

    Args:
        gain_tokens: tokens that the edit frees.
        rewrite_tokens: tokens behind the edit's first change that stay.
        is_cold: whether the provider has forgotten the prompt (`PromptCache.is_cold`).
        model: the model's name, for its prices.
    """
    rules = model_rules(model)
    cost = 0.0 if is_cold else (rules.write["5m"] - rules.read) * rewrite_tokens
    is_worth_it = gain_tokens > 0 and (is_cold or gain_tokens >= LEAST_GAIN)
    return EditDecision(is_worth_it, gain_tokens, rewrite_tokens, cost, rules.read * gain_tokens)
