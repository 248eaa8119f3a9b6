"""YAML files: reading them with the line of every key, and changing single values.

Reading is safe: tags make no objects. Every fault of a file becomes one `ConfigError` that names the line. Changes go
through ruamel's round trip, which keeps comments, order and quotes. Knows no setting.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node
from ruamel.yaml.scalarstring import (
    DoubleQuotedScalarString,
    FoldedScalarString,
    LiteralScalarString,
    SingleQuotedScalarString,
)
from ruamel.yaml.tokens import (
    BlockEndToken,
    BlockMappingStartToken,
    BlockSequenceStartToken,
    CommentToken,
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
    ScalarToken,
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

_NULL = re.compile(r"(?<=[:-]) +(?:null|Null|NULL|~)(?=\s|$)")
_PREAMBLE = re.compile(r"(?:[ \t]*(?:#.*)?\n)+(?=---)")
"""Comments and empty lines above the start of a document."""

_NESTED = re.compile(r"^( *)[^\s#-][^#\n]*:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*(?=( *)(- +)?[^\s#-])", re.MULTILINE)
"""A key without a value on its line, and the first key or list item below it."""

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


def set_in_text(text: str, path: Sequence[str], value: Any) -> str:
    """Return YAML text with the value at ``path`` set; comments, order and quotes stay, spacing may change.

    Missing mappings on the way are added.

    Raises:
        ValueError: a comment would be lost.
        YAMLError: the text is not valid YAML.
    """
    present: Any = None

    def assign(document: Any) -> Any:
        nonlocal present
        document = CommentedMap() if document is None else document
        inner, below = document, ""
        for name in path[:-1]:
            if inner.get(name) is None:
                below = below or _cut_comment_below(document, inner, name)
                inner[name] = CommentedMap()
            inner = inner[name]
        present = inner.get(path[-1])
        below = below or _cut_comment_below(document, inner, path[-1])
        inner[path[-1]] = _restyle(present, value)
        beside = inner.ca.items.get(path[-1], [None] * 4)[2]
        if beside is not None and not isinstance(value, list | dict):  # the library would keep its column
            beside.start_mark.column += len(str(value)) - len(str(present))
        if below:
            inner.ca.items[path[-1]] = [None, None, CommentToken(f"\n{below}", CommentMark(0)), None]
        return document

    fresh = _edit_text(text, assign)
    # A list or mapping that is replaced may take its own comments with it; no other change may.
    if not isinstance(present, list | dict) and _comments(text) - _comments(fresh):
        raise ValueError("a comment would be lost")
    return fresh


def remove_from_text(text: str, path: Sequence[str]) -> str:
    """Return YAML text without the value at ``path``, if there is one; the empty text if nothing is left."""

    def remove(document: Any) -> Any:
        inner = document
        for name in path[:-1]:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(path[-1], None)
        return document

    return _edit_text(text, remove)


def _edit_text(text: str, edit: Callable[[Any], Any]) -> str:
    """Return YAML text written anew after ``edit`` has changed its document, which is None for an empty text."""
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    body = text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n")
    preamble = _PREAMBLE.match(body)  # the library drops comments before "---"
    above, body = (preamble[0], body[preamble.end() :]) if preamble else ("", body)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # long values are not folded
    yaml.explicit_start = body.startswith("---")
    mapping, sequence, offset = _indents(body)
    yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
    present = yaml.load(body)
    document = edit(present)
    buffer = io.StringIO()
    if present is None:  # nothing but comments, which the library drops
        yaml.explicit_start = False
        buffer.write(body if not body or body.endswith("\n") else f"{body}\n")
    elif not document:
        return ""
    if document is not None:
        yaml.dump(document, buffer)
    result = mark + above + _restore_nulls(body, buffer.getvalue())
    return result.replace("\n", "\r\n") if "\r\n" in text else result


def _restore_nulls(before: str, after: str) -> str:
    """Return a text written anew with the nulls of the text before, which the library leaves out."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for tag, start, end, at, until in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace" and end - start == until - at:
            for place, line in enumerate(old[start:end], at):
                if _NULL.search(line) and _NULL.sub("", line).split() == new[place].split():
                    new[place] = line.rstrip("\n") + "\n"
    return "".join(new)


def _restyle(present: Any, value: Any) -> Any:
    """Return a value in the style of the one that it replaces: its quotes, or the comments of the items kept."""
    if isinstance(present, SingleQuotedScalarString | DoubleQuotedScalarString) and isinstance(value, str):
        return type(present)(value)
    if not isinstance(present, CommentedSeq) or not isinstance(value, list):
        return value
    for at in reversed(range(len(present))):
        if present[at] not in value:
            del present[at]
    present.extend(item for item in value if item not in present)
    if present != value:
        present[:] = value
    return present


def _cut_comment_below(root: Any, section: Any, name: str) -> str:
    """Cut off the comment lines below a section's last entry, which belong below the new entry ``name``."""
    if section is root or name in section or not section or section.fa.flow_style():
        return ""
    while True:
        last = len(section) - 1 if isinstance(section, CommentedSeq) else next(reversed(section))
        inner = section[last]
        if not (isinstance(inner, CommentedMap | CommentedSeq) and inner) or inner.fa.flow_style():
            break
        section = inner
    comments = section.ca.items.get(last) or [None] * 4
    at = 0 if isinstance(section, CommentedSeq) else 2
    if comments[at] is None:
        return ""
    found = str(comments[at].value)
    if isinstance(inner, LiteralScalarString | FoldedScalarString):  # such a text ends its own line
        comments[at] = None
        return found
    own, newline, below = found.partition("\n")
    comments[at].value = own + newline
    return below


def _indents(text: str) -> tuple[int, int, int]:
    """Return the indents of mappings and of list items that a text uses first, and that of the items' dashes."""
    mapping = sequence = offset = None
    for found in _NESTED.finditer(text):
        indent = len(found[2]) - len(found[1])
        if found[3] and sequence is None:
            sequence, offset = indent + len(found[3]), indent
        elif not found[3] and mapping is None and indent > 0:
            mapping = indent
    mapping = mapping or 2
    return mapping, sequence or mapping, mapping - 2 if offset is None else offset


def _comments(text: str) -> Counter[str]:
    """Count the comments of YAML text."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    between, end = [], 0
    for token in safe_yaml().scan(text):
        if isinstance(token, ScalarToken) and token.end_mark.index > token.start_mark.index:
            between.append(text[end : token.start_mark.index])
            end = token.end_mark.index
    between.append(text[end:])
    return Counter(found.rstrip() for part in between for found in re.findall("#.*", part))


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
