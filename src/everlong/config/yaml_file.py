"""A YAML file as plain values, with the line of every key.

Reading is safe (no tags that make objects), and whatever is wrong with a file becomes one `ConfigError` that says
where. This module knows YAML and files; it knows no setting.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode
from ruamel.yaml.util import load_yaml_guess_indent

from everlong.errors import ConfigError

__all__ = [
    "Document",
    "parse_document",
    "parse_value",
    "read_document",
    "read_text",
    "rewritten",
    "scalar_text",
    "spliced",
]

BYTE_ORDER_MARK = "\ufeff"

MOST_VALUES = 100_000
"""A file that stands for more, by aliases of aliases, is meant to harm."""


@dataclass(frozen=True)
class Document:
    """What a file says: its values, and for each dotted key the line it stands on (counted from 1)."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_text(path: Path) -> str | None:
    """The text of a configuration file, line endings and byte order mark as they are; None if it does not exist."""
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
    """A configuration file's values and lines; None if it does not exist."""
    text = read_text(path)
    return None if text is None else parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Values and lines of YAML text; ``name`` says in errors whose text it is."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415 - as in safe_yaml

    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        values = safe_yaml().load(text)
        root = safe_yaml().compose(text)
        lines = {} if root is None else dict(_lines(root, "", 1))
        if root is not None:
            _refuse_floods(root, name, [], {})
    except MarkedYAMLError as error:
        raise ConfigError(_syntax_problem(name, error)) from error
    except YAMLError as error:
        raise ConfigError(f"{name} is not valid YAML: {str(error).splitlines()[0]}; correct the file") from error
    except ValueError as error:  # a number or date whose form is right and whose value is impossible
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


def parse_value(text: str) -> Any:
    """One value as YAML reads it (0.6, true, null, 1h, [1, 2]); text that is no YAML stays text."""
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as in safe_yaml

    try:
        return safe_yaml().load(text)
    except (YAMLError, ValueError, RecursionError):
        return text


def safe_yaml() -> YAML:
    """A YAML 1.2 reader that makes plain values only."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - programs without a configuration file never need it

    return YAML(typ="safe", pure=True)


def _lines(node: Node, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    from ruamel.yaml.nodes import MappingNode  # noqa: PLC0415 - as in safe_yaml

    # Settings are at most three levels deep; what plugins nest below that has no lines of its own.
    if not isinstance(node, MappingNode) or depth > 3:
        return
    for key, value in node.value:
        dotted = f"{prefix}{key.value}"
        yield dotted, key.start_mark.line + 1
        yield from _lines(value, f"{dotted}.", depth + 1)


def _refuse_floods(node: Node, name: str, above: list[Node], sizes: dict[int, int]) -> int:
    """How many values a node stands for, each alias counted with all that it leads to; too many are refused."""
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
            f"{name} has a value at line {line} that stands for more than {MOST_VALUES:,} values; remove aliases (*)"
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


def spliced(text: str, path: list[str], value: Any) -> str | None:
    """The text with the value at ``path`` set, adding what is missing; None if that takes more than a splice."""
    newline = "\r\n" if "\r\n" in text else "\n"
    root = safe_yaml().compose(text)
    if root is None:
        return _appended(text, _block(path, value, 0, newline), newline)
    node, rest = _descend(root, path)
    if not rest:
        return _replaced(text, node, value)
    if _is_empty(node):
        return _filled(text, root, path[: -len(rest)], _nested(rest, value), newline)
    if not isinstance(node, MappingNode):
        return None
    if _is_flow(node):
        return _added_to_flow(text, node, rest, value)
    if node is root:
        return _appended(text, _block(rest, value, node.start_mark.column, newline), newline)
    return _added_to_block(text, node, _block(rest, value, node.start_mark.column, newline), newline)


def rewritten(text: str, path: list[str], value: Any) -> str:
    """The same, written anew by the YAML library: comments, order and quotes stay, spacing may change."""
    _, indent, offset = load_yaml_guess_indent(text)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # long values are not folded
    yaml.explicit_start = text.startswith("---")
    if indent:
        yaml.indent(mapping=indent, sequence=indent, offset=offset or 0)
    document = yaml.load(text)
    inner = document
    for name in path[:-1]:
        if inner.get(name) is None:
            inner[name] = {}
        inner = inner[name]
    inner[path[-1]] = value
    buffer = io.StringIO()
    yaml.dump(document, buffer)
    result = buffer.getvalue()
    return result.replace("\n", "\r\n") if "\r\n" in text else result


def scalar_text(value: Any) -> str:
    """A value on one line of YAML: bare where that reads back the same, else as JSON, which is YAML too."""
    if isinstance(value, str) and value and _reads_back(value):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _reads_back(value: str) -> bool:
    # Beyond letters, digits and a few signs, a bare word's meaning depends on where it stands.
    if not all(char.isalnum() or char in "_-./:@+ " for char in value) or value != value.strip():
        return False
    if value[0] in "-:@" or value.endswith(":") or ": " in value:
        return False
    return bool(safe_yaml().load(value) == value)


def _descend(root: Node, path: list[str]) -> tuple[Node, list[str]]:
    """The deepest node on a path that is there, and the names that are not."""
    node, rest = root, list(path)
    while rest and isinstance(node, MappingNode):
        inner = next((v for k, v in node.value if k.value == rest[0]), None)
        if inner is None:
            break
        node, rest = inner, rest[1:]
    return node, rest


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and str(node.tag).endswith(":null")


def _is_flow(node: Node) -> TypeGuard[CollectionNode]:
    return isinstance(node, CollectionNode) and bool(node.flow_style)


def _replaced(text: str, node: Node, value: Any) -> str | None:
    start, end = node.start_mark.index, node.end_mark.index
    quote = node.style if isinstance(node, ScalarNode) else None
    if node.anchor or quote in {"|", ">"} or not (isinstance(node, ScalarNode) or _is_flow(node)):
        return None
    fresh = scalar_text(value)
    if quote == "'" and isinstance(value, str) and value.isprintable():
        fresh = "'" + value.replace("'", "''") + "'"
    elif quote == '"' and isinstance(value, str):
        fresh = json.dumps(value, ensure_ascii=False)
    space = " " if start == end and text[start - 1 : start] == ":" else ""
    return text[:start] + space + fresh + text[end:]


def _filled(text: str, root: Node, path: list[str], value: dict[str, Any], newline: str) -> str | None:
    """Give a section that is there but empty its first content, on the line below its name."""
    parent, _ = _descend(root, path[:-1])
    key, node = next((k, v) for k, v in parent.value if k.value == path[-1])
    if node.start_mark.index != node.end_mark.index or _is_flow(parent):
        return _replaced(text, node, value)  # "compression: null" or "{compression: }"
    indent = key.start_mark.column + 2
    (name, inner), *_ = value.items()
    lines = _block([name], inner, indent, newline)
    return _inserted_below(text, key.end_mark.index, lines, newline)


def _added_to_flow(text: str, node: Node, rest: list[str], value: Any) -> str | None:
    end = node.end_mark.index - 1
    if text[end : end + 1] != "}":
        return None
    addition = f"{scalar_text(rest[0])}: {scalar_text(_nested(rest[1:], value))}"
    if not node.value:
        return text[:end] + addition + text[end:]
    last = node.value[-1][1].end_mark.index
    return f"{text[:last]}, {addition}{text[last:]}"


def _added_to_block(text: str, node: Node, lines: str, newline: str) -> str | None:
    last_key, last = node.value[-1]
    while isinstance(last, MappingNode) and last.value and not _is_flow(last):
        last_key, last = last.value[-1]
    if not _is_flow(last) and not (isinstance(last, ScalarNode) and last.style not in {"|", ">"}):
        return None  # the parser counts comments below a block to the block
    end = max(last_key.end_mark.index, last.end_mark.index)
    return _inserted_below(text, end, lines, newline)


def _inserted_below(text: str, index: int, lines: str, newline: str) -> str:
    end = text.find("\n", index)
    if end < 0:
        return text + newline + lines
    return text[: end + 1] + lines + text[end + 1 :]


def _appended(text: str, lines: str, newline: str) -> str:
    gap = "" if not text or text.endswith("\n") else newline
    return text + gap + lines


def _nested(path: list[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _block(path: list[str], value: Any, indent: int, newline: str) -> str:
    lines = [f"{' ' * (indent + 2 * depth)}{scalar_text(name)}:" for depth, name in enumerate(path)]
    lines[-1] += f" {scalar_text(value)}"
    return newline.join(lines) + newline
