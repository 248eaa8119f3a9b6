"""Formats of configuration files: reading one, and setting or removing a value with everything else left as it is.

Values are addressed by a path of names. An empty path is the whole document, for files that hold a list.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everlong.cli.clients.jsonc import parse_json, remove_json, set_json
from everlong.errors import ConfigError

__all__ = ["ENV", "JSON", "TOML", "YAML", "Format", "value_at"]

Path = Sequence[str]


@dataclass(frozen=True, slots=True)
class Format:
    """One format; its functions raise `ValueError` for a text that it is not."""

    name: str
    parse: Callable[[str], Any]
    """Return the document as plain values; an empty text is an empty mapping."""
    put: Callable[[str, Path, Any], str]
    """Return the text with a value set."""
    remove: Callable[[str, Path], str]
    """Return the text without the value at a path."""


def value_at(values: Any, path: Path) -> Any:
    """Return the value at a path; None where there is none."""
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
        import tomlkit  # noqa: PLC0415 - only where a client has TOML
    except ImportError:
        raise ConfigError(
            "changing a TOML file needs the package tomlkit; install it with: pip install 'everlong[gateway]'"
        ) from None
    return tomlkit


def _parse_toml(text: str) -> Any:
    import tomllib  # noqa: PLC0415 - as above

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
    import ruamel.yaml  # noqa: PLC0415 - keeps `everlong --help` quick
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    try:
        found = ruamel.yaml.YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{where}{getattr(error, 'problem', None) or 'it cannot be read'}") from None
    return {} if found is None else found


def _set_yaml(text: str, path: Path, value: Any) -> str:
    from everlong.config.splice import spliced  # noqa: PLC0415 - keeps `everlong --help` quick

    if path and not isinstance(value, list):
        fresh = spliced(text, list(path), value)
        if fresh is not None:
            return fresh
    return _edited_yaml(text, lambda document: _assigned(document, path, value))


def _remove_yaml(text: str, path: Path) -> str:
    def removed(document: Any) -> Any:
        inner = value_at(document, path[:-1])
        if isinstance(inner, dict):
            inner.pop(path[-1], None)
        return document

    return _edited_yaml(text, removed)


def _assigned(document: Any, path: Path, value: Any) -> Any:
    """Return a document with a value set; items that a list keeps stay with their comments."""
    if not path:
        return _as_list(document, value)
    document = {} if document is None else document
    inner = document
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = _as_list(inner.get(path[-1]), value) if isinstance(value, list) else value
    return document


def _as_list(present: Any, wanted: list[Any]) -> Any:
    if not isinstance(present, list):
        return wanted
    for at in reversed(range(len(present))):
        if present[at] not in wanted:
            del present[at]
    present.extend(item for item in wanted if item not in present)
    return present


def _edited_yaml(text: str, edit: Callable[[Any], Any]) -> str:
    import ruamel.yaml  # noqa: PLC0415 - keeps `everlong --help` quick
    from ruamel.yaml.util import load_yaml_guess_indent  # noqa: PLC0415 - as above

    yaml = ruamel.yaml.YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # long values are not folded
    yaml.explicit_start = text.startswith("---")
    if text.strip():
        _, indent, offset = load_yaml_guess_indent(text)
        yaml.indent(mapping=indent or 2, sequence=indent or 2, offset=offset or 0)
    document = edit(yaml.load(text))
    if not document and document is not None:
        return ""
    buffer = io.StringIO()
    yaml.dump(document, buffer)
    result = buffer.getvalue()
    return result.replace("\n", "\r\n") if "\r\n" in text else result


YAML = Format("YAML", _parse_yaml, _set_yaml, _remove_yaml)


# -- variables in a .env file ------------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)


def _parse_env(text: str) -> Any:
    return {found[1]: _unquoted(found[2]) for found in _VARIABLE.finditer(text)}


def _unquoted(value: str) -> str:
    if value[:1] in {"'", '"'} and value[-1:] == value[:1] and len(value) > 1:
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def _set_env(text: str, path: Path, value: Any) -> str:
    (name,) = path
    newline = "\r\n" if "\r\n" in text else "\n"
    line = f"{name}='{value}'"
    found = [one for one in _VARIABLE.finditer(text) if one[1] == name]
    if found:
        end = found[-1].end() - (1 if found[-1][0].endswith("\r") else 0)
        return text[: found[-1].start()] + line + text[end:]
    return text + ("" if not text or text.endswith("\n") else newline) + line + newline


def _remove_env(text: str, path: Path) -> str:
    (name,) = path
    return "".join(
        line for line in text.splitlines(keepends=True) if not ((found := _VARIABLE.match(line)) and found[1] == name)
    )


ENV = Format(".env", _parse_env, _set_env, _remove_env)
