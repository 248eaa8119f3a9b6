"""The settings of the compressor and of prompt caching as plain values, with their defaults.

Needs the standard library only, so that importing Everlong as a library costs little. `everlong.config.settings` wraps
the same values in models that check what users write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from everlong.arguments import refuse

if TYPE_CHECKING:
    from everlong.config.settings import CompressionSettings, PromptCachingSettings


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


# -- settings passed as an argument: a mapping, a model or None ------------------------------------------------------

_Values_co = TypeVar("_Values_co", covariant=True)


def compression_values(given: CompressionSettings | Mapping[str, Any] | None) -> CompressionValues:
    """Return the values of compression settings; raise `ConfigError` for a bad entry of a mapping."""
    if given is None:
        return DEFAULTS
    if isinstance(given, Mapping):
        from everlong.config.settings import CompressionSettings  # noqa: PLC0415 - costly, and seldom needed

        _check("compression", given)
        given = CompressionSettings(**given)
    return _values_of(given, "settings", "CompressionSettings")


def caching_values(given: CachingValues | PromptCachingSettings | Mapping[str, Any] | None) -> CachingValues:
    """Return the values of caching settings; raise `ConfigError` for a bad entry of a mapping."""
    if given is None:
        return CACHING_DEFAULTS
    if isinstance(given, CachingValues):
        return given
    if isinstance(given, Mapping):
        from everlong.config.settings import PromptCachingSettings  # noqa: PLC0415 - costly, and seldom needed

        _check("prompt_caching", given)
        given = PromptCachingSettings(**given)
    return _values_of(given, "settings", "PromptCachingSettings")


class _HasValues(Protocol[_Values_co]):
    def values(self) -> _Values_co: ...


def _values_of(given: _HasValues[_Values_co], name: str, kind: str) -> _Values_co:
    if not hasattr(given, "values"):
        refuse(name, given, f"{kind}, a mapping, or None")
    return given.values()


def _check(section: str, given: Mapping[str, Any]) -> None:
    from everlong.config.listing import problems_in, raise_problems  # noqa: PLC0415 - as above

    raise_problems(problems_in({section: dict(given)}, lambda _: "settings", "give another value"))
