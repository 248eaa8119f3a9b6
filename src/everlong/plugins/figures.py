"""What a host reads off an engine and gets from it, held against the type that it must have; what methods take."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from everlong.plugins.checking import Unusable

__all__ = ["FIGURES", "as_flag", "as_schemas", "as_status", "as_text", "figures_of", "name_of", "wanted_arguments"]

_COUNTS = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "compression_count")
_LIMITS = ("threshold_tokens", "context_length", "protect_first_n", "protect_last_n")
FIGURES = (*_COUNTS, *_LIMITS, "threshold_percent")


def figures_of(engine: object) -> tuple[dict[str, Any], dict[str, Exception]]:
    """The figures that make sense, and what was raised where one was read; one that is no number is left out."""
    found: dict[str, Any] = {}
    raised: dict[str, Exception] = {}
    for name in FIGURES:
        try:
            value = getattr(engine, name, None)
        except Exception as error:  # noqa: BLE001 - told by whoever asked; the usual figure counts
            raised[name] = error
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
            continue
        if name in _COUNTS:
            found[name] = max(0, int(value))  # some hosts write -1 for "not known yet"
        elif value > 0:
            found[name] = value if name == "threshold_percent" else int(value)
    return found, raised


def name_of(engine: object) -> str:
    """The engine's name; that of its class where it has none that can be shown."""
    name = getattr(engine, "name", None)
    return name if isinstance(name, str) and name.strip() else type(engine).__name__


def wanted_arguments(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a function takes; all of them where it takes any, or does not say."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(options)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known):
        return dict(options)
    return {one.name: options[one.name] for one in known if one.name in options and one.kind is not one.POSITIONAL_ONLY}


def as_flag(value: object) -> bool:
    """Yes or no."""
    if not isinstance(value, bool | int):
        raise Unusable(f"returned {type(value).__name__}, not true or false")
    return bool(value)


def as_schemas(value: Any) -> list[dict[str, Any]]:
    """Schemas that have a name."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise Unusable(f"returned {type(value).__name__}, not a list of schemas")
    found: list[dict[str, Any]] = []
    for schema in value:
        body = schema.get("function", schema) if isinstance(schema, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(body.get("name"), str):
            raise Unusable(f"returned a schema without a name: {schema!r:.80}")
        found.append(copy.deepcopy(dict(schema)))
    return found


def as_text(value: Any) -> str:
    """A text; anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def as_status(value: Any) -> dict[str, Any]:
    """A mapping, copied."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unusable(f"returned {type(value).__name__}, not a mapping")
    return {str(key): copy.deepcopy(one) for key, one in value.items()}
