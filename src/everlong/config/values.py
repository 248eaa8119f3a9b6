"""Settings of the compressor and of prompt caching as plain values, and their defaults.

This is what the planning layers work with and where the defaults are written down. It is the standard library only, so
that using Everlong as a library costs little; `everlong.config.settings` wraps the same values in models that check
what users write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from everlong.config.settings import CompressionSettings, PromptCachingSettings


@dataclass(frozen=True, slots=True)
class CompressionValues:
    """Settings of the ``compression`` section; what each means is said in `CompressionSettings`."""

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
    """Whether a user chose the threshold; a chosen one is obeyed without the floor for small windows."""


@dataclass(frozen=True, slots=True)
class CachingValues:
    """Settings of the ``prompt_caching`` section; what each means is said in `PromptCachingSettings`."""

    cache_ttl: Literal["5m", "1h"] = "5m"
    strategy: Literal["auto", "ledger", "system_and_3", "off"] = "auto"
    prefix_ttl: Literal["5m", "1h", "auto"] | None = None
    keep_alive: bool = False
    edit_min_gain: int = 40_000


DEFAULTS = CompressionValues()
CACHING_DEFAULTS = CachingValues()


def compression_values(given: CompressionSettings | Mapping[str, Any] | None) -> CompressionValues:
    """The values of settings in any form; a mapping is checked, and a bad entry raises `ConfigError`."""
    if given is None:
        return DEFAULTS
    if isinstance(given, Mapping):
        from everlong.config.check import problems_in, raise_problems  # noqa: PLC0415 - costly, and seldom needed
        from everlong.config.settings import CompressionSettings  # noqa: PLC0415 - as above

        raise_problems(problems_in({"compression": dict(given)}, lambda _: "settings", "give another value"))
        given = CompressionSettings(**given)
    return given.values()


def caching_values(given: CachingValues | PromptCachingSettings | Mapping[str, Any] | None) -> CachingValues:
    """The values of caching settings in any form; a mapping is checked, and a bad entry raises `ConfigError`."""
    if given is None:
        return CACHING_DEFAULTS
    if isinstance(given, CachingValues):
        return given
    if isinstance(given, Mapping):
        from everlong.config.check import problems_in, raise_problems  # noqa: PLC0415 - costly, and seldom needed
        from everlong.config.settings import PromptCachingSettings  # noqa: PLC0415 - as above

        raise_problems(problems_in({"prompt_caching": dict(given)}, lambda _: "settings", "give another value"))
        given = PromptCachingSettings(**given)
    return given.values()
