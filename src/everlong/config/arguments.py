"""Settings passed as an argument: a mapping, a model or None.

Only a mapping needs the models and their checks; they are imported then, so that importing Everlong stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from everlong.arguments import refuse
from everlong.config.values import (
    CACHING_DEFAULTS,
    DEFAULTS,
    CachingValues,
    CompressionValues,
)

if TYPE_CHECKING:
    from everlong.config.settings import CompressionSettings, PromptCachingSettings

_Values_co = TypeVar("_Values_co", covariant=True)

__all__ = ["caching_values", "compression_values"]


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
