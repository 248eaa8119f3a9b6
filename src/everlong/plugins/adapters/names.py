"""Which module names of other hosts have an adapter, and where the adapters are.

The names are data (`roots.toml`). Imports nothing of an adapter.
"""

from __future__ import annotations

import functools
import os
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["adapted_modules", "adapter_of", "foreign_home", "host_path", "session_fact"]

HOST = "everlong.plugins.adapters.host"


def host_path() -> Path:
    """The folder to put on ``PYTHONPATH`` so that a foreign plugin's own tests find ``agent`` and the rest."""
    return Path(__file__).with_name("host")


def adapter_of(name: str) -> str:
    """The full name of the module that stands for the foreign module ``name``; nothing if that is no foreign name."""
    known = _data()["modules"]
    head, tail = name, ""
    while head:
        if head in known:
            return f"{HOST}.{known[head]}{tail}"
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return ""


def adapted_modules() -> list[str]:
    """The foreign modules that there are adapters for, by full name; packages only where they stand for themselves."""
    found: list[str] = []
    for name, target in _data()["modules"].items():
        place = host_path().joinpath(*target.split("."))
        files = sorted(place.glob("[a-z]*.py")) if place.is_dir() else []
        found += [f"{name}.{file.stem}" for file in files] or [name]
    return found


def foreign_home() -> Path | None:
    """The home folder that the environment sets for another host, if it sets one."""
    for name in _data()["home"]["variables"]:
        if os.environ.get(name, "").strip():
            return Path(os.environ[name].strip()).expanduser()
    return None


def session_fact(variable: str) -> str:
    """What a session variable of another host's stands for: ``session_id``, ``conversation_id``, ``platform``."""
    return str(_data()["session"].get(variable, ""))


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("roots.toml").read_text(encoding="utf-8"))
