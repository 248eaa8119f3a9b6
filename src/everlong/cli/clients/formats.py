"""Formats of configuration files: JSON, TOML, YAML, and files that are written as a whole.

Each format can read a text, and set or remove one value while everything else stays as it is. A path of names addresses
a value.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from everlong.errors import ConfigError
from everlong.extras import install_command

__all__ = ["JSON", "TEXT", "TOML", "YAML", "Format", "parse_json", "remove_json", "set_json", "value_at"]

_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_INDENT = "  "


class _Member(NamedTuple):
    """A member of an object, and its place in the text."""

    name: str
    start: int
    value: int
    end: int


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
        ValueError: the text is no JSON, or something on the way is no object.
    """
    text = text if text.strip() else "{}\n"
    start, end, rest = _find(text, path)
    outer = _line_indent(text, start)
    if not rest:
        return text[:start] + _dump(value, outer, text) + text[end:]
    if text[start] != "{":
        raise ValueError(f"{'.'.join(path[: -len(rest)]) or 'the whole'} is no object")
    for name in reversed(rest[1:]):
        value = {name: value}
    members = _members(text, start)
    is_spread = not members or "\n" in text[start:end]
    inner = _line_indent(text, members[0].start) if members else outer + _unit(text)
    added = f"{json.dumps(rest[0])}: {_dump(value, inner, text) if is_spread else json.dumps(value)}"
    last = members[-1].end if members else start + 1
    comma = "," if members and _comma_after(text, last, end) is None else ""
    before, behind = (_newline(text) + inner, _newline(text) + outer) if is_spread else (" ", "")
    return text[:last] + comma + text[last : end - 1].rstrip() + before + added + behind + text[end - 1 :]


def remove_json(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at ``path``; unchanged if there is none."""
    start, end, rest = _find(text, path[:-1])
    members = _members(text, start) if not rest and text[start] == "{" else []
    at = next((place for place, member in enumerate(members) if member.name == path[-1]), None)
    if at is None:
        return text
    member = members[at]
    if at:
        return text[: members[at - 1].end] + text[member.end :]
    comma = _comma_after(text, member.end, end)
    left = text[member.end if comma is None else comma + 1 : end - 1]
    return text[: start + 1] + (left if left.strip() else "") + text[end - 1 :]


def _blank(text: str, *patterns: re.Pattern[str]) -> str:
    """Return the text with spaces for comments and trailing commas; everything else stays in its place."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    text = text.replace("\ufeff", " ")
    for pattern in patterns:
        text = pattern.sub(blank, text)
    return text


def _find(text: str, path: Sequence[str]) -> tuple[int, int, list[str]]:
    """Return the start and the end of the innermost value on a path, and the names that are missing below it."""
    parse_json(text)
    plain = _blank(text, _COMMENT, _LAST_COMMA)
    start = _skip(plain, 0)
    end = _DECODER.raw_decode(plain, start)[1]
    for depth, name in enumerate(path):
        members = _members(text, start) if plain[start] == "{" else []
        below = next((member for member in reversed(members) if member.name == name), None)
        if below is None:
            return start, end, list(path[depth:])
        start, end = below.value, below.end
    return start, end, []


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of the object that begins at a place."""
    plain = _blank(text, _COMMENT, _LAST_COMMA)
    found: list[_Member] = []
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        name, end = _DECODER.raw_decode(plain, at)
        value = _skip(plain, _skip(plain, end) + 1)
        end = _DECODER.raw_decode(plain, value)[1]
        found.append(_Member(name, at, value, end))
        at = _skip(plain, end)
        at = _skip(plain, at + 1) if plain[at] == "," else at
    return found


def _skip(plain: str, at: int) -> int:
    found = _SPACE.match(plain, at)
    return found.end() if found else at


def _comma_after(text: str, at: int, end: int) -> int | None:
    place = _blank(text, _COMMENT).find(",", at, end - 1)
    return None if place < 0 else place


def _dump(value: Any, indent: str, text: str) -> str:
    unit = _unit(text)
    lines = json.dumps(value, indent=unit, ensure_ascii=False).splitlines()
    return _newline(text).join([lines[0], *(indent + line for line in lines[1:])])


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """Return the indent of the first indented line."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else _INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


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
TEXT = Format("text", lambda text: {"text": text} if text else {}, lambda _, __, value: str(value), lambda _, __: "")
"""A file that is Everlong's as a whole: the value ``text`` is all of it."""


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
