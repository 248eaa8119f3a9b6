"""Formats of configuration files: JSON, TOML and YAML.

Each format can read a text, and set or remove one value while everything else stays as it is. A path of names addresses
a value.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from everlong.errors import ConfigError
from everlong.extras import install_command

__all__ = ["JSON", "TOML", "YAML", "Format", "parse_json", "remove_json", "set_json", "value_at"]

_GAP = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"-?[0-9.eE+\-]+|[A-Za-z]+")
_MOST_DEPTH = 200
_DECODER = json.JSONDecoder()
_INDENT = "  "


@dataclass(slots=True)
class _Node:
    """A value and its place in the text."""

    start: int
    end: int
    value: Any
    members: list[_Member] = field(default_factory=list)
    """The members of an object."""


@dataclass(slots=True)
class _Member:
    name: str
    start: int
    node: _Node
    comma: int | None = None
    """The place of the comma after it."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, comments and trailing commas allowed.

    Raises:
        ValueError: the text is no JSON; the message names the line.
    """
    return _Parser(text).whole().value


def set_json(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at ``path`` set; missing objects on the way are added.

    Raises:
        ValueError: the text is no JSON, or something on the way is no object.
    """
    if not text.strip():
        text = "{}\n"
    node, rest = _descend(_Parser(text).whole(), path)
    if not rest:
        return text[: node.start] + _dump(value, _line_indent(text, node.start), text) + text[node.end :]
    if not isinstance(node.value, dict):
        raise ValueError(f"{'.'.join(path[: -len(rest)]) or 'the whole'} is no object")  # noqa: TRY004 - of the text
    for name in reversed(rest[1:]):
        value = {name: value}
    return _add_member(text, node, rest[0], value)


def remove_json(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at ``path``; unchanged if there is none."""
    node, rest = _descend(_Parser(text).whole(), path[:-1])
    names = [member.name for member in node.members]
    if rest or path[-1] not in names:
        return text
    at = names.index(path[-1])
    member = node.members[at]
    if at:
        return text[: node.members[at - 1].node.end] + text[member.node.end :]
    end = member.node.end if member.comma is None else member.comma + 1
    left = text[end : node.end - 1]
    return text[: node.start + 1] + (left if left.strip() else "") + text[node.end - 1 :]


def _descend(node: _Node, path: Sequence[str]) -> tuple[_Node, list[str]]:
    """Return the innermost node on a path, and the names that are missing below it."""
    for depth, name in enumerate(path):
        below = next((member.node for member in reversed(node.members) if member.name == name), None)
        if below is None:
            return node, list(path[depth:])
        node = below
    return node, []


def _add_member(text: str, node: _Node, name: str, value: Any) -> str:
    outer = _line_indent(text, node.start)
    if not node.members:
        inner = outer + _unit(text)
        inside = text[node.start + 1 : node.end - 1].rstrip()
        member = f"{json.dumps(name)}: {_dump(value, inner, text)}"
        newline = _newline(text)
        return f"{text[: node.start + 1]}{inside}{newline}{inner}{member}{newline}{outer}{text[node.end - 1 :]}"
    last = node.members[-1]
    is_spread = "\n" in text[node.start : last.start]
    inner = _line_indent(text, node.members[0].start) if is_spread else outer
    member = f"{json.dumps(name)}: {_dump(value, inner, text) if is_spread else json.dumps(value)}"
    cut = last.node.end
    head = text[:cut] + ("," if last.comma is None else "")
    gap = text[cut : node.end - 1]
    comma = "" if last.comma is None else ","
    if not is_spread:
        return f"{head}{gap.rstrip()} {member}{comma}{gap[len(gap.rstrip()) :]}{text[node.end - 1 :]}"
    newline = _newline(text)
    return f"{head}{gap.rstrip()}{newline}{inner}{member}{comma}{newline}{outer}{text[node.end - 1 :]}"


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


class _Parser:
    """A parser of JSON with comments, into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> _Node:
        self._skip()
        node = self._value(0)
        self._skip()
        if self._at != len(self._text):
            raise self._error("the end was expected here")
        return node

    def _skip(self) -> None:
        found = _GAP.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> _Node:
        if depth > _MOST_DEPTH:
            raise self._error("it is nested too deeply")
        sign = self._next()
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._list(depth)
        start = self._at
        if sign == '"':
            value = self._string()
            return _Node(start, self._at, value)
        word = _WORD.match(self._text, start)
        if word is None:
            raise self._error("a value was expected here")
        try:
            value = json.loads(word[0])
        except ValueError:
            raise self._error(f"{word[0][:40]!r} is no value") from None
        self._at = word.end()
        return _Node(start, self._at, value)

    def _string(self) -> str:
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except ValueError:
            raise self._error("this text has no end, or a character that may not stand in it") from None
        return str(value)

    def _object(self, depth: int) -> _Node:
        node = _Node(self._at, 0, {})
        self._at += 1
        while True:
            self._skip()
            if self._next() == "}":
                break
            if node.members and node.members[-1].comma is None:
                raise self._error("a comma or } was expected here")
            if self._next() != '"':
                raise self._error("a name in double quotes was expected here")
            start = self._at
            name = self._string()
            self._skip()
            if self._next() != ":":
                raise self._error("a colon was expected here")
            self._at += 1
            self._skip()
            member = _Member(name, start, self._value(depth + 1))
            node.members.append(member)
            node.value[name] = member.node.value
            self._skip()
            if self._next() == ",":
                member.comma = self._at
                self._at += 1
        self._at += 1
        node.end = self._at
        return node

    def _list(self, depth: int) -> _Node:
        node = _Node(self._at, 0, [])
        self._at += 1
        has_comma = True
        while True:
            self._skip()
            if self._next() == "]":
                break
            if not has_comma:
                raise self._error("a comma or ] was expected here")
            node.value.append(self._value(depth + 1).value)
            self._skip()
            has_comma = self._next() == ","
            self._at += has_comma
        self._at += 1
        node.end = self._at
        return node

    def _error(self, what: str) -> ValueError:
        line = self._text.count("\n", 0, self._at) + 1
        return ValueError(f"line {line}: {what}")


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
