"""What a plugin says of itself in its ``plugin.yaml``: read safely, bounded in size, never by running anything.

A manifest that is missing or broken is no error here: whoever lists plugins shows what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everlong.errors import PluginError

__all__ = ["RESERVED_NAMES", "Manifest", "check_name", "printable", "read_manifest"]

RESERVED_NAMES = frozenset({"compressor", "context_engine", "enabled", "paths"})
"""Names that no plugin can have: the built-in engine, the folder of engines, and the settings beside the sections."""

_FILES = ("plugin.yaml", "plugin.yml")
_MOST_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST = 300


@dataclass(frozen=True)
class Manifest:
    """The facts of a ``plugin.yaml``; empty where it does not tell them."""

    name: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    provides: tuple[str, ...] = ()
    """Context engines that the plugin registers under other names than its own."""
    problem: str = ""
    """What is wrong with the file, in a sentence; empty where nothing is."""


def check_name(name: str) -> None:
    """Refuse a name that a plugin cannot have, with a `PluginError` that says why."""
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"a plugin cannot be called {printable(name, 80)!r}: a name has 1 to 64 letters, digits, '.', '_' and '-', "
            "and begins with a letter or a digit"
        )
    if name in RESERVED_NAMES:
        raise PluginError(f"a plugin cannot be called {name!r}: that name has a meaning of its own; choose another")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a plugin's folder; never raises, and never reads more than a bounded amount."""
    path = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if path is None:
        return Manifest(problem="it has no plugin.yaml")
    try:
        if not path.is_file():
            return Manifest(problem=f"its {path.name} is no file")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        return Manifest(problem=f"its {path.name} cannot be read: {error.strerror or error}")
    if len(data) > _MOST_BYTES:
        return Manifest(problem=f"its {path.name} is larger than {_MOST_BYTES // 1024} KiB")
    return _parsed(data, path.name)


def printable(value: object, longest: int = _LONGEST) -> str:
    """A text in one line that can be shown on any terminal: no control characters, not too long."""
    text = " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _parsed(data: bytes, name: str) -> Manifest:
    from ruamel.yaml import YAML  # noqa: PLC0415 - only where there is a manifest
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    try:
        # Every value is a text here, so that version 1.10 is not 1.1; tags and types mean nothing.
        values: Any = YAML(typ="base", pure=True).load(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Manifest(problem=f"its {name} is not UTF-8 text")
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        return Manifest(problem=f"its {name} is not valid YAML{where}")
    except (ValueError, RecursionError):
        return Manifest(problem=f"its {name} has a value that cannot be read")
    if not isinstance(values, Mapping):
        return Manifest(problem=f"its {name} holds no mapping of name, description and version")
    return _checked(values, name)


def _checked(values: Mapping[Any, Any], name: str) -> Manifest:
    wrong = [key for key in ("name", "description", "version", "author") if not _is_plain(values.get(key))]
    provides = values.get("provides", ())
    provides = [provides] if isinstance(provides, str) else provides
    if not isinstance(provides, list | tuple) or not all(isinstance(one, str) for one in provides):
        wrong, provides = [*wrong, "provides"], ()
    facts = {key: printable(values[key]) for key in ("name", "description", "version", "author") if values.get(key)}
    if wrong:
        facts = {key: value for key, value in facts.items() if key not in wrong}
        problem = f"{', '.join(wrong)} in its {name} must be text"
    else:
        missing = [key for key in ("name", "description", "version") if key not in facts]
        problem = f"its {name} does not tell {', '.join(missing)}" if missing else ""
    return Manifest(**facts, provides=tuple(printable(one, 64) for one in provides[:100]), problem=problem)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str)
