"""Formats of configuration files: JSON, TOML and YAML.

Each format can read a text, and set or remove one value while every other value stays as it is; TOML and YAML keep
their comments too. A path of names addresses a value.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everlong.errors import ConfigError
from everlong.extras import install_command

_STRING = r'"(?:\\.|[^"\\\n])*+"?'  # one without an end is passed over whole, or it takes a square of time
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_INDENT = "  "


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, comments and trailing commas allowed.

    Raises:
        ValueError: the text is no JSON; the message names the line.
    """
    try:
        return json.loads(_blank(text, _COMMENT, _LAST_COMMA))
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("line 1: it is nested too deeply") from None


def set_json(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at ``path`` set; missing objects on the way are added.

    Raises:
        ValueError: the text is no JSON, something on the way is no object, or it has comments.
    """
    values = inner = _parse_json(text)
    for depth, name in enumerate(path):
        if not isinstance(inner, dict):
            raise ValueError(f"{'.'.join(path[:depth]) or 'the whole'} is no object")  # noqa: TRY004 - what a text is not, as for all formats
        if depth == len(path) - 1:
            inner[name] = value
        inner = inner.setdefault(name, {})
    return _write_json(values, text)


def remove_json(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at ``path``; unchanged if there is none."""
    values = _parse_json(text)
    inner = value_at(values, path[:-1])
    if not isinstance(inner, dict) or path[-1] not in inner:
        return text
    del inner[path[-1]]
    return _write_json(values, text)


def _write_json(values: Any, text: str) -> str:
    """Return values as JSON with the indent, the line ends and the last line end of a text."""
    if any(not found[0].startswith('"') for found in _COMMENT.finditer(text)):
        raise ValueError("it has comments, which would be lost")
    indent = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    fresh = json.dumps(values, indent=indent[1] if indent else _INDENT, ensure_ascii=False)
    fresh += "" if text.strip() and not text.endswith("\n") else "\n"
    fresh.encode()  # half of a pair of characters is a text of JSON, and cannot be written
    return fresh.replace("\n", "\r\n") if "\r\n" in text else fresh


def _blank(text: str, *patterns: re.Pattern[str]) -> str:
    """Return the text with spaces for comments and trailing commas; everything else stays in its place."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    text = text.replace("\ufeff", " ")
    for pattern in patterns:
        text = pattern.sub(blank, text)
    return text


Path = Sequence[str]


@dataclass(frozen=True, slots=True)
class Format:
    """One format; its functions raise `ValueError` for a text in another format."""

    name: str
    parse: Callable[[str], Any]
    """Return the document as plain values; an empty text is an empty mapping."""
    put: Callable[[str, Path, Any], str]
    """Return the text with a value set."""
    remove: Callable[[str, Path], str]
    """Return the text without the value at a path."""


def value_at(values: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


# -- JSON --------------------------------------------------------------------------------------------------------------


def _parse_json(text: str) -> Any:
    return parse_json(text) if text.strip("\ufeff \t\r\n") else {}


JSON = Format("JSON", _parse_json, set_json, remove_json)


# -- TOML --------------------------------------------------------------------------------------------------------------


def _tomlkit() -> Any:
    try:
        import tomlkit  # noqa: PLC0415 - only for TOML, and it may be missing
    except ImportError:
        raise ConfigError(
            f"changing a TOML file needs the package tomlkit; install it with: {install_command('gateway')}"
        ) from None
    return tomlkit


def _parse_toml(text: str) -> Any:
    return tomllib.loads(text.removeprefix("\ufeff"))


def _set_toml(text: str, path: Path, value: Any) -> str:
    tomlkit = _tomlkit()
    document = tomlkit.parse(text)
    inner = document
    for depth, name in enumerate(path[:-1]):
        if name not in inner:
            inner[name] = tomlkit.table(is_super_table=depth < len(path) - 2)
        inner = inner[name]
    inner[path[-1]] = value
    return str(tomlkit.dumps(document))


def _remove_toml(text: str, path: Path) -> str:
    tomlkit = _tomlkit()
    document = tomlkit.parse(text)
    inner: Any = value_at(document, path[:-1])
    if isinstance(inner, dict) and path[-1] in inner:
        del inner[path[-1]]
    return str(tomlkit.dumps(document))


TOML = Format("TOML", _parse_toml, _set_toml, _remove_toml)


# -- YAML --------------------------------------------------------------------------------------------------------------


def _parse_yaml(text: str) -> Any:
    import ruamel.yaml  # noqa: PLC0415 - only for YAML
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    try:
        found = ruamel.yaml.YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{where}{getattr(error, 'problem', None) or 'it cannot be read'}") from None
    return {} if found is None else found


def _set_yaml(text: str, path: Path, value: Any) -> str:
    from everlong.config.yaml_file import set_in_text  # noqa: PLC0415 - keeps `everlong --help` quick

    return set_in_text(text, path, value)


def _remove_yaml(text: str, path: Path) -> str:
    from everlong.config.yaml_file import remove_from_text  # noqa: PLC0415 - as above

    return remove_from_text(text, path)


YAML = Format("YAML", _parse_yaml, _set_yaml, _remove_yaml)
