"""A model's window in the lists of models that servers of many makers give. Asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["listed_window"]

_WINDOW_NAMES = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens", "n_ctx")
"""Where servers of different makers list a model's window."""


def listed_window(models: Sequence[Mapping[str, Any]], model: str) -> int | None:
    """The window of a model by such a list, under whichever name; None where it does not say."""
    named = [entry for entry in models if entry.get("id") == model]
    # A server of one model often lists it by its file, and takes any name.
    for entry in named or (models if len(models) == 1 else []):
        meta = entry.get("meta")
        for source in (entry, meta if isinstance(meta, Mapping) else {}):
            for name in _WINDOW_NAMES:
                value = source.get(name)
                if isinstance(value, int) and value > 0:
                    return value
    return None
