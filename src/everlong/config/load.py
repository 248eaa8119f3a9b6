"""The effective settings: flag over environment over project file over user file over default.

Every source is checked, overridden values included, and all problems are reported at once. Each key knows the origin
of its value. A project's file counts only in a trusted folder, and only for settings that a folder may set; a notice
lists the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from everlong.config.listing import (
    NAMED,
    PLUGINS,
    Problem,
    catalog,
    named_setting,
    nearest,
    problems_in,
    raise_problems,
    sections,
    spell,
    unknown_setting,
)
from everlong.config.paths import project_config_path, user_config_path
from everlong.config.settings import Settings
from everlong.config.trust import folder_records, is_settings_text_trusted, may_set, read_folder_settings
from everlong.config.yaml_file import DEPTH, Document, leaves, parse_document, parse_value, read_document
from everlong.errors import ConfigError

__all__ = ["LoadedSettings", "Origin", "load_settings"]

PREFIX = "EVERLONG_"
RESERVED = frozenset({"EVERLONG_HOME", "EVERLONG_SESSION_SOURCE", "EVERLONG_DEBUG", "EVERLONG_COMMAND"})
"""Variables with this prefix that are not settings."""


@dataclass(frozen=True)
class Origin:
    """The source of a value; as text: ``flag``, ``env NAME``, ``path:line`` or ``default``."""

    kind: Literal["flag", "env", "project", "user", "default"]
    name: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if self.kind == "env":
            return f"env {self.name}"
        if self.kind in {"project", "user"}:
            return self.name if self.line is None else f"{self.name}:{self.line}"
        return self.kind


@dataclass(frozen=True)
class LoadedSettings:
    """The effective settings, and the origin of each dotted key's value."""

    settings: Settings
    origins: dict[str, Origin]
    notices: tuple[str, ...] = ()
    """Parts of the project's file that were left out, and why; one sentence each."""


@dataclass(frozen=True)
class _Layer:
    """One source: its nested values, the origin of each dotted key, and its problems."""

    values: dict[str, Any]
    origins: dict[str, Origin]
    problems: list[Problem]
    notices: tuple[str, ...] = ()


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Read all sources and return the effective settings.

    Args:
        overrides: the flags, by dotted key or nested.
        cwd: the working directory; the process's own if not given.
        env: environment variables; the process's own if not given.

    Raises:
        ConfigError: a source has problems; the message lists those of all sources.
    """
    env = os.environ if env is None else env
    user = user_config_path(env)
    project = project_config_path(cwd)
    layers = [_file_layer(user, "user")]
    if project is not None and os.path.realpath(project) != os.path.realpath(user):
        layers.append(_project_layer(project, env))
    layers.append(_env_layer(env))
    layers.append(_flag_layer(overrides or {}))
    raise_problems(problem for layer in reversed(layers) for problem in layer.problems)

    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for layer in layers:
        values = _merge(values, layer.values)
        origins.update(layer.origins)
    settings = Settings.model_validate(values)
    # A mapping may have replaced a value of the same name, or a value a mapping: only remaining keys have an origin.
    left = (key for key, _ in leaves(settings.model_dump()))
    notices = tuple(notice for layer in layers for notice in layer.notices)
    return LoadedSettings(settings, {key: origins.get(key, Origin("default")) for key in left}, notices)


def _file_layer(path: Path, kind: Literal["project", "user"]) -> _Layer:
    document = read_document(path)
    return _Layer({}, {}, []) if document is None else _document_layer(path, kind, document)


def _project_layer(path: Path, env: Mapping[str, str]) -> _Layer:
    """Return what counts of a project's file: settings that folders may set, if the folder is trusted as it is now."""
    folder = path.parent.parent
    try:
        text = read_folder_settings(path)
    except ConfigError as error:
        return _Layer({}, {}, [], (f"the settings of this folder are left out: {error}",))
    if text is None:
        return _Layer({}, {}, [])
    if not is_settings_text_trusted(folder, text, env):
        record = folder_records(env).get(folder.resolve())
        why = "have changed since you trusted it" if record is not None and record.is_trusted else "are not trusted"
        notice = f"the settings of this folder ({path}) {why} and are left out; look at them and trust them with: "
        return _Layer({}, {}, [], (f"{notice}everlong trust add {folder}",))
    try:
        layer = _document_layer(path, "project", parse_document(text, str(path)))
    except ConfigError as error:  # even in a trusted folder somebody else may have written the file
        return _Layer({}, {}, [], (f"the settings of this folder are left out: {error}",))
    values: dict[str, Any] = {}
    refused = []
    for key, value in leaves(layer.values) if not layer.problems else ():
        if may_set(key):
            _put(values, key, value, "")
        else:
            refused.append(spell(key).strip('"'))
    notices: tuple[str, ...] = ()
    if refused:
        notices = (
            f"{path} sets {', '.join(refused[:8])}{' …' if len(refused) > 8 else ''}, which no folder may: where data, "
            "credentials and money go is said in your own file only (everlong config set); it is left out",
        )
    origins = {key: origin for key, origin in layer.origins.items() if may_set(key)}
    return _Layer(values, origins, layer.problems, notices)


def _document_layer(path: Path, kind: Literal["project", "user"], document: Document) -> _Layer:
    values = drop_empty_sections(document.values)

    def place(key: str) -> str:
        line = document.lines.get(key)
        return str(path) if line is None else f"{path}, line {line}"

    origins = {key: Origin(kind, str(path), document.lines.get(key)) for key, _ in leaves(values)}
    return _Layer(values, origins, problems_in(values, place, "correct the file"))


def _env_layer(env: Mapping[str, str]) -> _Layer:
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    problems: list[Problem] = []
    for variable in sorted(env):
        # An empty variable means "not set", as in most programs; there is no setting that wants an empty text.
        if not variable.startswith(PREFIX) or variable in RESERVED or not env[variable].strip():
            continue
        key = variable.removeprefix(PREFIX).lower().replace("__", ".")
        if (key in catalog() and key not in NAMED) or named_setting(key):
            value: Any = None if env[variable].strip() == "null" else env[variable]
        elif key.startswith(f"{PLUGINS}.") and all(key.split(".")):
            value = parse_value(env[variable])
        else:
            problems.append(_unknown_variable(variable, key))
            continue
        problems.extend(_put(values, key, value, f"env {variable}"))
        origins[".".join(key.split(".")[:DEPTH])] = Origin("env", variable)
    place = {key: str(origin) for key, origin in origins.items()}
    problems.extend(problems_in(values, lambda key: place.get(key, "env"), "change or unset the variable"))
    return _Layer(values, origins, problems)


def _flag_layer(overrides: Mapping[str, Any]) -> _Layer:
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in overrides.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            values[key] = _merge(values[key], dict(value))
        else:
            problems.extend(_put(values, key, value, "flag"))
    problems.extend(problems_in(values, lambda _: "flag", "give another value"))
    return _Layer(values, {key: Origin("flag") for key, _ in leaves(values)}, problems)


def drop_empty_sections(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values without empty sections, whose lines may all be commented out."""
    kept = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if value is None and (key in sections() or prefix.removesuffix(".") in NAMED):
            continue
        inner = isinstance(value, dict) and key in sections() and key != PLUGINS
        kept[name] = drop_empty_sections(value, f"{key}.") if inner else value
    return kept


def _put(values: dict[str, Any], key: str, value: Any, place: str) -> list[Problem]:
    *above, last = key.split(".")
    inner = values
    for name in above:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            return [Problem(key, f"{key} ({place}) cannot be set, because {name} is {spell(inner)}, not a section")]
    inner[last] = value
    return []


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    result = dict(lower)
    for name, value in upper.items():
        below = result.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            result[name] = _merge(below, value)
        else:
            result[name] = value
    return result


def _variable(key: str) -> str:
    return PREFIX + key.replace(".", "__").upper()


def _unknown_variable(variable: str, key: str) -> Problem:
    if key in sections():
        inside = (_variable(name) for name in catalog() if name.startswith(f"{key}.") and key != PLUGINS)
        example = next(inside, f"{variable}__NAME__KEY")
        return Problem(key, f"env {variable} names a section; set one of its keys, such as {example}")
    meant = nearest(variable, [*map(_variable, catalog()), *RESERVED])
    if meant is None:
        sentence = unknown_setting(key, f"env {variable}").sentence
        return Problem(key, f"{sentence}; unset the variable")
    return Problem(key, f"env {variable} is not a setting; did you mean {meant}? Rename or unset the variable")
