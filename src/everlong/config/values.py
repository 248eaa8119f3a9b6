"""The settings of the compressor and of prompt caching as plain values, with their defaults.

Needs the standard library only, so that importing Everlong as a library costs little. `everlong.config.settings` wraps
the same values in models that check what users write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CompressionValues:
    """Settings of the ``compression`` section, described in `CompressionSettings`."""

    enabled: bool = True
    threshold: float | Literal["auto"] = 0.50
    target_ratio: float = 0.20
    protect_last_n: int = 20
    protect_first_n: int = 3
    summary_ratio: float = 0.20
    summary_min_tokens: int = 2_000
    summary_max_tokens: int = 12_000
    prune_min_chars: int = 200
    minimum_context_length: int = 64_000
    failure_cooldown_seconds: int = 600
    threshold_is_explicit: bool = False
    """True if a user chose the threshold; then the floor for small windows does not apply."""


@dataclass(frozen=True, slots=True)
class CachingValues:
    """Settings of the ``prompt_caching`` section, described in `PromptCachingSettings`."""

    cache_ttl: Literal["5m", "1h"] = "5m"
    strategy: Literal["auto", "ledger", "system_and_3", "off"] = "auto"


DEFAULTS = CompressionValues()
CACHING_DEFAULTS = CachingValues()
