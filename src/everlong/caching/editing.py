"""Is it worth changing history now? One decision, with its arithmetic.

An edit of history (clearing old results, compacting) makes every later request shorter, but a provider that holds the
prompt has to write again what stands behind the edit. So edits wait until the prompt is not held anyway, until they
free enough, or until a threshold is due. Nothing here edits; it knows sizes and prices.
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
    """Whether to change history before the next request, why, and the figures; costs in fresh input tokens."""

    is_worth_it: bool
    grounds: Grounds
    gain_tokens: int
    """What every later request is shorter by."""
    rewrite_tokens: int
    """What stands behind the edit and must be written again."""
    rewrite_cost: float
    """What that costs more than reading it; nothing if the provider does not hold it."""
    saving_per_call: float
    """What a later request costs less."""
    break_even_calls: float
    """After so many requests the edit has paid for itself."""

    def explain(self) -> str:
        """The decision and its arithmetic in one sentence."""
        sums = (
            f"frees {self.gain_tokens:,} tokens, rewrites {self.rewrite_tokens:,} for {self.rewrite_cost:,.0f}, "
            f"then saves {self.saving_per_call:,.0f} per request (pays after {self.break_even_calls:.1f})"
        )
        reasons: dict[Grounds, str] = {
            "due": "edit now: a threshold is due",
            "cold": "edit now: the provider no longer holds the prompt",
            "gain": "edit now: it frees enough",
            "held back": "wait: the provider still holds the prompt and the gain is too small",
            "nothing to gain": "wait: there is nothing to gain",
        }
        return f"{reasons[self.grounds]}; {sums}"

    def to_dict(self) -> dict[str, Any]:
        """The decision as JSON-ready data, for a compaction's history."""
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
    """Whether to change history now.

    Args:
        gain_tokens: what the edit frees.
        rewrite_tokens: what stands behind the edit's first change and stays.
        is_cold: whether the provider has forgotten the prompt (`PromptCache.is_cold`).
        is_due: whether a threshold asks for the edit whatever it costs.
        prices: what tokens cost; by default those of the model.
        model: its name, for its prices.
        settings: those of ``prompt_caching``; ``edit_min_gain`` is what an edit must free while the prompt is held.
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
