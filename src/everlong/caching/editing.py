"""The decision whether an edit of history is worth its price now, with its arithmetic.

An edit (clearing old results, compacting) makes every later request shorter, but a provider that holds the prompt must
write again what stands behind the edit. So edits wait until the prompt is not held anyway, until they free enough, or
until a threshold is due.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from everlong.caching.rules import model_rules
from everlong.config import CachingValues
from everlong.tokens import Prices

__all__ = ["EditDecision", "worth_editing"]

Grounds: TypeAlias = Literal["due", "cold", "gain", "held back", "nothing to gain"]


@dataclass(frozen=True, slots=True)
class EditDecision:
    """The decision on an edit of history, its grounds, and the figures; costs in fresh input tokens."""

    is_worth_it: bool
    grounds: Grounds
    gain_tokens: int
    """Tokens that every later request saves."""
    rewrite_tokens: int
    """Tokens behind the edit that must be written again."""
    rewrite_cost: float
    """The extra cost of writing them instead of reading; 0 if the provider does not hold them."""
    saving_per_call: float
    """The saving of each later request."""
    break_even_calls: float
    """The number of requests after which the edit has paid for itself."""

    def explain(self) -> str:
        """Return the decision and its arithmetic in one sentence."""
        sums = f"frees {self.gain_tokens:,} tokens, "
        if self.rewrite_cost:
            sums += (
                f"rewrites {self.rewrite_tokens:,} for {self.rewrite_cost:,.0f}, then saves "
                f"{self.saving_per_call:,.0f} per request (pays after {self.break_even_calls:.1f})"
            )
        else:
            sums += f"saves {self.saving_per_call:,.0f} per request, and no cached token is lost"
        reasons: dict[Grounds, str] = {
            "due": "edit now: a threshold is due",
            "cold": "edit now: the provider no longer holds the prompt",
            "gain": "edit now: it frees enough",
            "held back": "wait: the provider still holds the prompt and the gain is too small",
            "nothing to gain": "wait: there is nothing to gain",
        }
        return f"{reasons[self.grounds]}; {sums}"

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as JSON-ready data, for a compaction's history."""
        return {**asdict(self), "explanation": self.explain()}


def worth_editing(
    gain_tokens: int,
    rewrite_tokens: int,
    *,
    is_cold: bool,
    is_due: bool = False,
    prices: Prices | None = None,
    model: str = "",
    settings: CachingValues | None = None,
) -> EditDecision:
    """Return whether to change history now, and why.

    Args:
        gain_tokens: tokens that the edit frees.
        rewrite_tokens: tokens behind the edit's first change that stay.
        is_cold: whether the provider has forgotten the prompt (`PromptCache.is_cold`).
        is_due: whether a threshold requires the edit, whatever it costs.
        prices: the prices of tokens; by default those of the model.
        model: the model's name, for its prices.
        settings: the ``prompt_caching`` settings; an edit must free ``edit_min_gain`` while the prompt is held.
    """
    if prices is None:
        rules = model_rules(model)
        prices = Prices(cache_read=rules.read, cache_write=rules.write["5m"])
    least = (settings or CachingValues()).edit_min_gain
    cost = 0.0 if is_cold else (prices.cache_write - prices.cache_read) * rewrite_tokens
    saving = prices.cache_read * gain_tokens
    grounds: Grounds = "held back"
    if is_due:
        grounds = "due"
    elif gain_tokens <= 0:
        grounds = "nothing to gain"
    elif is_cold:
        grounds = "cold"
    elif gain_tokens >= least:
        grounds = "gain"
    calls = cost / saving if saving > 0 else 0.0
    return EditDecision(grounds in ("due", "cold", "gain"), grounds, gain_tokens, rewrite_tokens, cost, saving, calls)
