"""Changing one value in YAML text and leaving every other character as it is.

A parser says where values stand; the change is made in the text between. Where that would be guesswork (block
scalars, anchors, explicit tags), `spliced` says so by returning None, and `rewritten` lets the YAML library write
the whole document anew with its comments. Neither checks the result: the caller parses it again. This module knows
no setting and no file.
"""

from __future__ import annotations

import io
import json
from typing import Any, TypeGuard

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode
from ruamel.yaml.util import load_yaml_guess_indent

from everlong.config.document import safe_yaml

__all__ = ["rewritten", "scalar_text", "spliced"]


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
