"""Prompt caching: where cache markers go, what that costs, and why a provider missed.

Synchronous, without network. It knows requests and providers' published rules, but neither compaction nor transport.
"""

from __future__ import annotations

from everlong.caching.markers import CacheMark, apply_anthropic_cache_control, estimate_messages_tokens_rough
from everlong.caching.prompt_cache import Choice, Ledger, Placement, PromptCache, choose_strategy

__all__ = [
    "CacheMark",
    "Choice",
    "Ledger",
    "Placement",
    "PromptCache",
    "apply_anthropic_cache_control",
    "choose_strategy",
    "estimate_messages_tokens_rough",
]
