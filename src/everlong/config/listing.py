"""The list of all settings (dotted key, default, allowed values, meaning), and the nearest name to a typo.

It is derived from the models of `everlong.config.settings`, so no setting is named twice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from everlong.config.settings import KeySettings, ModelSettings, ProviderSettings, RouteSettings, Settings

__all__ = ["NAMED", "SettingInfo", "catalog", "named_section", "named_setting", "named_settings", "nearest", "sections"]

PLUGINS = "plugins"
"""The section that holds, besides its own settings, one part per plugin, which only the plugin can check."""

NAMED: dict[str, type[BaseModel]] = {
    "models": ModelSettings,
    "providers": ProviderSettings,
    "gateway.routes": RouteSettings,
    "gateway.keys": KeySettings,
}
"""Sections with one part per name that a user chooses; names may contain dots."""


@dataclass(frozen=True)
class SettingInfo:
    """One setting; ``allowed`` and ``description`` are sentences for people."""

    key: str
    default: Any
    allowed: str
    description: str


@cache
def catalog() -> dict[str, SettingInfo]:
    """Return every setting by its dotted key, in the order of the documentation."""
    return {info.key: info for info in _walk(Settings, "")}


@cache
def sections() -> frozenset[str]:
    """Return the dotted names that hold settings and are not settings themselves."""
    above = {key.rsplit(".", depth)[0] for key in catalog() for depth in range(1, key.count(".") + 1)}
    return frozenset(above | {PLUGINS} | NAMED.keys())


@cache
def named_settings(section: str) -> dict[str, SettingInfo]:
    """Return the settings that each part of a named section can have."""
    return {info.key: info for info in _walk(NAMED[section], "")}


def named_section(key: str) -> str | None:
    """Return the named section that a key names or lies in; None for any other key."""
    return next((section for section in NAMED if key == section or key.startswith(f"{section}.")), None)


def named_setting(key: str) -> tuple[list[str], SettingInfo] | None:
    """Return a key's steps in a named section (section, name, setting) and its setting; None for any other key."""
    section = named_section(key)
    if section is None:
        return None
    name, _, leaf = key.removeprefix(section).lstrip(".").rpartition(".")
    info = named_settings(section).get(leaf)
    return ([*section.split("."), name, leaf], info) if name and info else None


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that a typo most likely meant; None if nothing is close."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    # A setting named without its section, or with the wrong one: "threshold", "context.threshold".
    leaf = name.rpartition(".")[2]
    leaves = {key.rpartition(".")[2]: key for key in reversed(known)}
    close = difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.8)
    return leaves[close[0]] if close else None


def _walk(model: type[BaseModel], prefix: str) -> Iterator[SettingInfo]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _walk(inner, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra
        allowed = str(extra.get("allowed", "")) if isinstance(extra, dict) else ""
        yield SettingInfo(f"{prefix}{name}", field.get_default(), allowed, field.description or "")
