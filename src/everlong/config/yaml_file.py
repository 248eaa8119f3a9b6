"""YAML files: reading them with the line of every key, and changing single values.

Reading is safe: tags make no objects. Every fault of a file becomes one `ConfigError` that names the line. A change
replaces the characters of one value and no others, so that comments and order stay. Knows no setting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, SequenceNode
from ruamel.yaml.tokens import (
    BlockEndToken,
    BlockMappingStartToken,
    BlockSequenceStartToken,
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
)

from everlong.errors import ConfigError

__all__ = [
    "MOST_LEVELS",
    "Document",
    "find_too_deep",
    "leaves",
    "parse_document",
    "parse_value",
    "read_document",
    "read_text",
    "remove_from_text",
    "scalar_text",
    "set_in_text",
]

BYTE_ORDER_MARK = "\ufeff"

DEPTH = 3
"""The depth to which keys have their own line and origin (auxiliary.compression.model, plugins.name.key)."""

MOST_VALUES = 100_000
"""A file that expands to more, by aliases of aliases, is meant to harm."""


MOST_LEVELS = 100
"""Levels of lists and mappings in a file. The library takes seconds for thousands of brackets on one line."""

_BRACKET = re.compile(r"[\[{]")
_FAR_RIGHT = re.compile(rf"^[ ?-]{{{MOST_LEVELS // 2},}}", re.MULTILINE)
"""A line that may be deep in a block: each level but those of lists in mappings takes a column."""
_OPENING = (BlockMappingStartToken, BlockSequenceStartToken, FlowMappingStartToken, FlowSequenceStartToken)
_CLOSING = (BlockEndToken, FlowMappingEndToken, FlowSequenceEndToken)


@dataclass(frozen=True)
class Document:
    """The values of a file, and the line of each dotted key, counted from 1."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_text(path: Path) -> str | None:
    """Return a file's text with its line endings and byte order mark; None if it does not exist."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text (byte {error.start} is {error.object[error.start]:#04x}); "
            "save it as UTF-8 and try again"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path} cannot be read: {reason}; make it a readable file or move it away") from error


def read_document(path: Path) -> Document | None:
    """Return a file's values and lines; None if it does not exist."""
    text = read_text(path)
    return None if text is None else parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Return the values and lines of YAML text; errors call it ``name``."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    if (line := find_too_deep(text)) is not None:
        raise ConfigError(f"{name} is nested more than {MOST_LEVELS} levels deep at line {line}; flatten it")
    try:
        root = safe_yaml().compose(text)
        if root is not None:  # before it is loaded, which copies what "<<" merges
            _refuse_floods(root, name, [], {})
        values = safe_yaml().load(text)
        lines = {} if root is None else dict(_lines(root, "", 1))
    except MarkedYAMLError as error:
        raise ConfigError(_syntax_problem(name, error)) from error
    except YAMLError as error:
        raise ConfigError(f"{name} is not valid YAML: {str(error).splitlines()[0]}; correct the file") from error
    except ValueError as error:  # a well-formed number or date with an impossible value
        raise ConfigError(f"{name} has a value that YAML cannot represent: {error}; correct the file") from error
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply to be read; flatten it") from None
    if values is None:
        return Document()
    if not isinstance(values, dict):
        raise ConfigError(
            f"{name} must hold a mapping of sections such as 'compression:', but holds {_kind(values)}; "
            "see docs/configuration.md for an example"
        )
    return Document(values, lines)


def find_too_deep(text: str) -> int | None:
    """Return the line of YAML text at which it is nested more than `MOST_LEVELS` deep; None if it nowhere is."""
    brackets = [found.start() for found in islice(_BRACKET.finditer(text), 2 * MOST_LEVELS)]
    if len(brackets) > MOST_LEVELS:  # first the beginning alone, which is read quickly whatever follows
        line = _scan_depth(text[: brackets[-1] + 1])
        return _scan_depth(text) if line is None else line
    return _scan_depth(text) if _FAR_RIGHT.search(text) else None


def _scan_depth(text: str) -> int | None:
    depth = 0
    try:
        for token in safe_yaml().scan(text):
            depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
            if depth > MOST_LEVELS:
                return int(token.start_mark.line) + 1
    except (YAMLError, ValueError):  # whoever reads the text reports it
        pass
    return None


def parse_value(text: str) -> Any:
    """Return one value as YAML reads it (0.6, true, null, 1h, [1, 2]); text that is not YAML stays text."""
    try:
        return safe_yaml().load(text)
    except (YAMLError, ValueError, RecursionError):
        return text


def safe_yaml() -> YAML:
    """Return a YAML 1.2 reader that makes plain values only."""
    return YAML(typ="safe", pure=True)


def leaves(values: Mapping[Any, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted key; mappings below `DEPTH` stay whole, and so do empty ones."""
    for name, value in values.items():
        if depth < DEPTH and isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _lines(node: Node, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    if not isinstance(node, MappingNode) or depth > DEPTH:
        return
    for key, value in node.value:
        dotted = f"{prefix}{key.value}"
        yield dotted, key.start_mark.line + 1
        yield from _lines(value, f"{dotted}.", depth + 1)


def _refuse_floods(node: Node, name: str, above: list[Node], sizes: dict[int, int]) -> int:
    """Return how many values a node expands to, with its aliases; raise `ConfigError` for too many."""
    if not isinstance(node.value, list):
        return 1
    if id(node) in sizes:
        return sizes[id(node)]
    line = node.start_mark.line + 1
    if any(node is outer for outer in above):
        raise ConfigError(f"{name} has a value at line {line} that contains itself; remove the alias (*) in it")
    size = 1
    for entry in node.value:
        for inner in entry if isinstance(entry, tuple) else (entry,):
            size += _refuse_floods(inner, name, [*above, node], sizes)
    if size > MOST_VALUES:
        raise ConfigError(
            f"{name} has a value at line {line} that expands to more than {MOST_VALUES:,} values; remove aliases (*)"
        )
    sizes[id(node)] = size
    return size


def _syntax_problem(name: str, error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    # Some of the library's texts go on for paragraphs about its own API; the first line is the fact.
    problem = (error.problem or error.context or "it cannot be parsed").strip().splitlines()[0]
    if type(error).__name__ == "DuplicateKeyError":
        problem = problem.split(" with value")[0].replace("found duplicate key", "duplicate key")
        return f"{name} has a {problem}{where}; keep one of them"
    return f"{name} is not valid YAML{where}: {problem}; correct that line"


def _kind(value: object) -> str:
    names = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


# -- changing single values --------------------------------------------------------------------------------------------


def set_in_text(text: str, path: Sequence[str], value: Any) -> str:
    """Return YAML text with the value at ``path`` set, and every other character as it was.

    Missing mappings on the way are added. The caller checks that the result means what it should: in odd texts, such
    as those with aliases, a value may stand for several.

    Raises:
        ValueError: the text is not valid YAML.
    """
    mark, body, ending = _split_text(text)
    root = _compose(body)
    if root is None:  # nothing but comments
        body = body if not body or body.endswith("\n") else body + ending
        return mark + body + _block_lines(path, value, "", ending)
    entries = _entries_on(root, path)
    rest = path[len(entries) :]
    key, node = entries[-1] if entries else (None, root)
    start, end = _span(node, body, key)
    if not rest:
        return mark + _replace_value(body, entries[-1], value, ending)
    if isinstance(node, MappingNode) and node.value:
        if node.flow_style:
            return f"{mark}{body[: end - 1]}, {_flow(rest, value)}{body[end - 1 :]}"
        lines = _block_lines(rest, value, " " * node.value[0][0].start_mark.column, ending)
        return mark + _insert_lines(body, end, lines, ending)
    if key is None or any(map(_is_flow, (root, *(inner for _, inner in entries[:-1])))):
        return f"{mark}{body[:start]}{' ' if start == end else ''}{{{_flow(rest, value)}}}{body[end:]}"
    head = body[: body.index(":", key.end_mark.index) + 1]
    lines = _block_lines(rest, value, " " * (key.start_mark.column + 2), ending)
    return mark + _insert_lines(head + body[end:], len(head), lines, ending)


def remove_from_text(text: str, path: Sequence[str]) -> str:
    """Return YAML text without the lines of the value at ``path``, if there is one; comments between them stay.

    Raises:
        ValueError: the value has no lines of its own, or the text is not valid YAML.
    """
    mark, body, _ = _split_text(text)
    root = _compose(body)
    entries = _entries_on(root, path) if root is not None else []
    if root is None or not path or len(entries) < len(path):
        return text
    if any(map(_is_flow, (root, *(inner for _, inner in entries[:-1])))):
        raise ValueError("it shares its line with others")
    key, node = entries[-1]
    return mark + _remove_lines(body, key.start_mark.index, _span(node, body, key)[1])


def _compose(body: str) -> Node | None:
    try:
        root: Node | None = safe_yaml().compose(body)
    except YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return root


def _split_text(text: str) -> tuple[str, str, str]:
    """Return a text's byte order mark, the text without it, and how its lines end."""
    body = text.removeprefix(BYTE_ORDER_MARK)
    return text[: len(text) - len(body)], body, "\r\n" if "\r\n" in body else "\n"


def _entries_on(node: Node, path: Sequence[str]) -> list[tuple[Node, Node]]:
    """Return the keys on a path with their values, as far as they are there."""
    found: list[tuple[Node, Node]] = []
    for name in path:
        inside = node.value if isinstance(node, MappingNode) else []
        entry = next(((key, value) for key, value in inside if key.value == name), None)
        if entry is None:
            break
        found.append(entry)
        node = entry[1]
    return found


def _is_flow(node: Node) -> bool:
    return isinstance(node, CollectionNode) and bool(node.flow_style)


def _span(node: Node, body: str, key: Node | None = None) -> tuple[int, int]:
    """Return where the text of a node begins and ends, without the comments behind it."""
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node.value, list) and node.value and not _is_flow(node):
        last = node.value[-1]
        return start, (_span(last[1], body, last[0]) if isinstance(last, tuple) else _span(last, body))[1]
    if start == end and key is not None:  # a key without a value
        start = end = body.index(":", key.end_mark.index) + 1
    return start, start + len(body[start:end].rstrip())  # a block of text ends with its line


def _replace_value(body: str, entry: tuple[Node, Node], value: Any, ending: str) -> str:
    key, node = entry
    start, end = _span(node, body, key)
    if isinstance(node, SequenceNode) and isinstance(value, list) and not _is_flow(node):
        items = _replace_items(body, node, value, ending)
        if items is not None:
            return items
    if isinstance(node.value, list) and not _is_flow(node):
        start = body.index(":", key.end_mark.index) + 1
    return f"{body[:start]}{'' if body[start - 1].isspace() else ' '}{_flow((), value)}{body[end:]}"


def _replace_items(body: str, node: SequenceNode, value: list[Any], ending: str) -> str | None:
    """Return a text with other items in a list; those that stay keep their comments. None if it has none of them."""
    items = [(item, parse_value(body[slice(*_span(item, body))])) for item in node.value]
    stay = [found for _, found in items if found in value]
    if not stay or value[: len(stay)] != stay:
        return None
    first = node.value[0].start_mark
    dash = body[first.index - first.column : first.index]
    added = "".join(f"{dash}{_flow((), item)}{ending}" for item in value[len(stay) :])
    body = _insert_lines(body, _span(node, body)[1], added, ending) if added else body
    for item, found in reversed(items):
        if found not in value:
            body = _remove_lines(body, item.start_mark.index, _span(item, body)[1])
    return body


def _insert_lines(body: str, place: int, lines: str, ending: str) -> str:
    """Return a text with lines below the one that an index is in."""
    end = body.find("\n", place)
    return f"{body}{ending}{lines}" if end < 0 else body[: end + 1] + lines + body[end + 1 :]


def _remove_lines(body: str, start: int, end: int) -> str:
    """Return a text without the lines from one index to another, but with the comments between them."""
    start = body.rfind("\n", 0, start) + 1
    end = body.find("\n", end) + 1 or len(body)
    comments = [line for line in body[start:end].split("\n") if line.lstrip().startswith("#")]
    return body[:start] + "".join(f"{line}\n" for line in comments) + body[end:]


def _block_lines(path: Sequence[str], value: Any, indent: str, ending: str) -> str:
    """Return the lines of a value and of the mappings that it is in."""
    lines = [f"{indent}{'  ' * depth}{scalar_text(name)}:" for depth, name in enumerate(path)]
    return f"{ending.join(lines)} {_flow((), value)}{ending}"


def _flow(path: Sequence[str], value: Any) -> str:
    """Return a value on one line, behind the names that lead to it."""
    if path:
        inner = _flow(path[1:], value)
        return f"{scalar_text(path[0])}: {f'{{{inner}}}' if len(path) > 1 else inner}"
    if isinstance(value, list):
        return f"[{', '.join(_flow((), item) for item in value)}]"
    return scalar_text(value)


def scalar_text(value: Any) -> str:
    """Return a value on one line of YAML: bare if that reads back the same, else as JSON, which is YAML too."""
    if isinstance(value, str) and value and _reads_back(value):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _reads_back(value: str) -> bool:
    # With other signs, the meaning of a bare word depends on its place.
    if not all(char.isalnum() or char in "_-./:@+ " for char in value) or value != value.strip():
        return False
    if value[0] in "-:@" or value.endswith(":") or ": " in value:
        return False
    return bool(safe_yaml().load(value) == value)
