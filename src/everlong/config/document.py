"""A YAML file as plain values, with the line of every key.

Reading is safe (no tags that make objects), and whatever is wrong with a file becomes one `ConfigError` that says
where. This module knows YAML and files; it knows no setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import Node

__all__ = ["Document", "parse_document", "parse_value", "read_document", "read_text"]

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
