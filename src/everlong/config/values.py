"""The compressor's settings as plain values, and their defaults.

This is what the engine works with and where the defaults are written down. It is the standard library only, so that
using Everlong as a library costs little; `everlong.config.settings` wraps the same values in models that check what
users write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from everlong.config.settings import CompressionSettings


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


DEFAULTS = CompressionValues()


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
