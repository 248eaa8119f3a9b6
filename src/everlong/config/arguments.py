"""Settings passed as an argument: a mapping, a model or None.

Only a mapping needs the models and their checks; they are imported then, so that importing Everlong stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everlong.config.values import (
    CACHING_DEFAULTS,
    DEFAULTS,
    LOSSLESS_DEFAULTS,
    CachingValues,
    CompressionValues,
    LosslessValues,
)

if TYPE_CHECKING:
    from everlong.config.settings import CompressionSettings, LosslessSettings, PromptCachingSettings

__all__ = ["caching_values", "compression_values", "lossless_values"]


def compression_values(given: CompressionSettings | Mapping[str, Any] | None) -> CompressionValues:
    """Return the values of compression settings; raise `ConfigError` for a bad entry of a mapping."""
    if given is None:
        return DEFAULTS
    if isinstance(given, Mapping):
        from everlong.config.settings import CompressionSettings  # noqa: PLC0415 - costly, and seldom needed

        _check("compression", given)
        given = CompressionSettings(**given)
    return given.values()


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
    return given.values()


def lossless_values(given: LosslessValues | LosslessSettings | Mapping[str, Any] | None) -> LosslessValues:
    """Return the values of the lossless engine's settings; raise `ConfigError` for a bad entry of a mapping."""
    if given is None:
        return LOSSLESS_DEFAULTS
    if isinstance(given, LosslessValues):
        return given
    if isinstance(given, Mapping):
        from everlong.config.settings import LosslessSettings  # noqa: PLC0415 - costly, and seldom needed

        _check("lcm", given)
        given = LosslessSettings(**given)
    return given.values()


def _check(section: str, given: Mapping[str, Any]) -> None:
    from everlong.config.check import problems_in, raise_problems  # noqa: PLC0415 - as above

    raise_problems(problems_in({section: dict(given)}, lambda _: "settings", "give another value"))
