"""The list of all settings (dotted key, default, allowed values, meaning), and checks of their values.

It is derived from the models of `everlong.config.settings`, so no setting is named twice. Each source (flags,
environment, a file) is checked on its own, so that a problem names its place even if another source overrides the
value.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from everlong.config.settings import KeySettings, ModelSettings, ProviderSettings, RouteSettings, Settings
from everlong.errors import ConfigError

__all__ = [
    "NAMED",
    "PLUGINS",
    "Problem",
    "SettingInfo",
    "catalog",
    "named_section",
    "named_setting",
    "named_settings",
    "nearest",
    "problems_in",
    "raise_problems",
    "sections",
    "spell",
    "unknown_setting",
]

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


# -- checks ---------------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """One thing that is wrong, as a whole sentence; ``key`` is the dotted name of the setting."""

    key: str
    sentence: str


def problems_in(values: dict[str, Any], place: Callable[[str], str], remedy: str) -> list[Problem]:
    """Return every problem of one source; ``place(key)`` says where a key stands, ``remedy`` what the user can do."""
    try:
        Settings.model_validate(values)
    except ValidationError as error:
        found: dict[str, Problem] = {}
        for detail in error.errors(include_url=False, include_context=False):
            key = _key_of(detail["loc"])
            # A union reports one error for each of its members; the first is enough.
            found.setdefault(key, Problem(key, _sentence(key, detail, place(key), remedy)))
        return list(found.values())
    return []


def raise_problems(problems: Iterable[Problem]) -> None:
    """Raise one `ConfigError` that lists all problems; return if there are none."""
    listed = list(problems)
    if len(listed) == 1:
        raise ConfigError(listed[0].sentence, listed[0].key)
    if listed:
        lines = "\n".join(f"  - {problem.sentence}" for problem in listed)
        raise ConfigError(f"the configuration has {len(listed)} problems:\n{lines}", listed[0].key)


def unknown_setting(key: str, place: str) -> Problem:
    """Return the problem of a key that is no setting, with the name that was probably meant."""
    section = named_section(key)
    if section is not None and key != section:
        leaf = nearest(key.rpartition(".")[2], named_settings(section))
        advice = f"did you mean {leaf}?" if leaf else f"a name in {section} has {', '.join(named_settings(section))}"
        return Problem(key, f"{key} ({place}) is not a setting; {advice}")
    meant = nearest(key, catalog() if "." in key else [*sections(), *catalog()])
    advice = f"did you mean {meant}?" if meant else "everlong config show lists all settings"
    return Problem(key, f"{key} ({place}) is not a setting; {advice}")


def spell(value: object, limit: int = 60) -> str:
    """Return a value as JSON for a message: shortened, and with unprintable characters escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(value).__name__}"
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _key_of(location: tuple[int | str, ...]) -> str:
    named = named_section(".".join(map(str, location)))
    if named is not None:
        return ".".join(map(str, location[: named.count(".") + 3]))  # what follows names a member of a union
    known = {*catalog(), *sections()}
    parts: list[str] = []
    for step in location:
        parts.append(str(step))
        key = ".".join(parts)
        if key in catalog():
            return key  # what follows names the member of a union that was tried
        if key not in known:
            return key
    return ".".join(parts)


def _sentence(key: str, detail: Any, place: str, remedy: str) -> str:
    named = named_setting(key)
    if named is not None:
        return f"{key} ({place}) is {spell(detail['input'])}, but must be {named[1].allowed}; {remedy}"
    if named_section(key) is not None and detail["type"] != "extra_forbidden":
        return f"{key} ({place}) is {spell(detail['input'])}, but must be a section with settings of its own; {remedy}"
    is_known = key in sections() or key in catalog() or key.startswith(f"{PLUGINS}.")
    if detail["type"] == "extra_forbidden" or not is_known:
        return unknown_setting(key, place).sentence
    value = spell(detail["input"])
    if key == PLUGINS:
        return f"{key} ({place}) is {value}, but must be a mapping of plugin names to their own settings; {remedy}"
    if key in sections():
        return f"{key} ({place}) is {value}, but must be a section with settings of its own; {remedy}"
    info = catalog().get(key)
    if info is None:  # a plugin whose name is no text
        return f"{key} ({place}) is not a name for a plugin's section; write the name as text; {remedy}"
    return f"{key} ({place}) is {value}, but must be {info.allowed}; {remedy}"
