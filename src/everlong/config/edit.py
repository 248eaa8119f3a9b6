"""Setting or removing one value in a ``config.yaml`` while keeping its comments and order.

The whole result is checked before anything is written, and the file is replaced in one step: a reader never sees half
of it, and a refused value leaves it untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from everlong.config.files import write_whole
from everlong.config.listing import (
    NAMED,
    PLUGINS,
    catalog,
    named_setting,
    named_settings,
    problems_in,
    raise_problems,
    sections,
    spell,
    unknown_setting,
)
from everlong.config.load import drop_empty_sections
from everlong.config.settings import Settings
from everlong.config.yaml_file import leaves, parse_document, parse_value, read_text, remove_from_text, set_in_text
from everlong.errors import ConfigError

__all__ = ["set_value", "unset_value"]


def set_value(path: Path, key: str, value: str) -> Any:
    """Set a dotted key in a file, which is created if absent; return the value that the text stands for."""
    steps = _split_key(key)
    parsed = _parse_setting(steps, value)
    text = read_text(path) or ""
    wanted = _values_with(parse_document(text, str(path)).values, steps, parsed, path)
    _check(wanted, path)
    _write(path, _change_text(text, steps, parsed, wanted, path))
    return parsed


def unset_value(path: Path, key: str) -> bool:
    """Remove a dotted key from a file, and none of its comments but the one beside it; return False if it has none."""
    text = read_text(path) or ""
    document = parse_document(text, str(path))
    steps = _split_key(key)
    if key not in document.lines:
        return False
    try:
        fresh = remove_from_text(text, steps)
    except ValueError:
        fresh = text
    wanted = {name: value for name, value in _set_leaves(document.values) if not f"{name}.".startswith(f"{key}.")}
    if dict(_set_leaves(parse_document(fresh, str(path)).values)) != wanted:
        raise ConfigError(f"{key} cannot be removed from {path} line by line; edit the file by hand", key)
    _write(path, fresh)
    return True


def _set_leaves(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in leaves(values) if value not in (None, {}))


def _split_key(key: str) -> list[str]:
    steps = key.split(".")
    if key in catalog() and key not in NAMED:
        return steps
    named = named_setting(key)
    if named is not None:
        return named[0]
    if steps[0] == PLUGINS and len(steps) > 1 and all(steps):
        return steps
    if key in sections():
        inside = [name for name in catalog() if name.startswith(f"{key}.")]
        inside += [f"{key}.NAME.{leaf}" for leaf in (named_settings(key) if key in NAMED else ())]
        inside += [f"{PLUGINS}.NAME.KEY"] if key == PLUGINS else []
        raise ConfigError(f"{key} is a section, not a setting; set one of {', '.join(inside)}", key)
    problem = unknown_setting(key, "command line")
    raise ConfigError(problem.sentence, key)


def _parse_setting(steps: list[str], text: str) -> Any:
    """Return the value that a text means for a setting: as YAML reads it, or the text itself if that does not fit."""
    parsed = parse_value(text)
    if steps[0] == PLUGINS and ".".join(steps) not in catalog():
        return parsed
    problems = problems_in(_nest(steps, parsed), lambda _: "command line", "give another value")
    # A model may be called "4" or "gpt: fast", which YAML takes for a number and a mapping.
    if problems and text.strip() and not problems_in(_nest(steps, text), lambda _: "", ""):
        parsed, problems = text, []
    raise_problems(problems)
    found: Any = Settings.model_validate(_nest(steps, parsed))
    for name in steps:
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def _nest(steps: list[str], value: Any) -> dict[str, Any]:
    for name in reversed(steps):
        value = {name: value}
    return dict(value)


def _values_with(values: dict[str, Any], steps: list[str], value: Any, path: Path) -> dict[str, Any]:
    # Copy only the mappings on the way: a mapping that a YAML alias shares must not change in two places.
    result = inner = dict(values)
    for depth, name in enumerate(steps[:-1], start=1):
        below = inner.get(name)
        if not isinstance(below, dict | None):
            above = ".".join(steps[:depth])
            raise ConfigError(
                f"{'.'.join(steps)} cannot be set, because {above} in {path} is {spell(below)}, not a section; "
                f"remove {above} from the file first",
                ".".join(steps),
            )
        inner[name] = dict(below or {})
        inner = inner[name]
    inner[steps[-1]] = value
    return result


def _check(values: dict[str, Any], path: Path) -> None:
    problems = problems_in(drop_empty_sections(values), lambda _: str(path), "correct the file, then set it again")
    raise_problems(problems)


def _change_text(text: str, steps: list[str], value: Any, wanted: dict[str, Any], path: Path) -> str:
    """Return the new text; raise `ConfigError` unless exactly the wanted value has changed."""
    try:
        fresh = set_in_text(text, steps, value)
        is_right, why = parse_document(fresh, str(path)).values == wanted, "other values would change"
    except (ConfigError, ValueError) as error:
        is_right, why = False, str(error).splitlines()[0]
    if not is_right:
        key = ".".join(steps)
        raise ConfigError(f"{key} cannot be set in {path} ({why}); edit the file by hand", key)
    return fresh


def _write(path: Path, text: str) -> None:
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path} cannot be written: {reason}; check the folder's permissions") from error
