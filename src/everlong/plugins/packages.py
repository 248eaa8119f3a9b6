"""Installed packages that were written for another host, which a plugin brings with it.

Some plugins are a thin folder, or an entry point, in front of a package that was installed. Where such a package
imports a module of another host, its modules see the adapters as a plugin's own modules do; they keep their names, and
no other package sees anything. Knows only whether a package speaks of another host, not what it does.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path

from everlong.plugins.adapters.names import adapted_modules
from everlong.plugins.importing import PluginFinder, Scope

__all__ = ["take_in"]

_MOST_FILES = 400
_MOST_BYTES = 8_000_000

_seen: set[str] = set()


def take_in(name: str) -> None:
    """Let a package see the adapters, if it is about to be imported for the first time and speaks of another host."""
    root = name.partition(".")[0]
    if root in _seen or root in sys.modules or root in sys.stdlib_module_names:
        return
    _seen.add(root)
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return
    if spec is None or spec.origin is None or not _speaks_of_another_host(spec):
        return
    folder = Path(spec.origin).resolve().parent
    sys.meta_path.insert(0, PluginFinder(Scope(package=root, folder=folder), has_root=True))


def _speaks_of_another_host(spec: ModuleSpec) -> bool:
    words = "|".join(re.escape(name) for name in adapted_modules())
    pattern = re.compile(rf"^[ \t]*(?:from|import)[ \t]+(?:{words})\b".encode(), re.MULTILINE)
    read = 0
    for file in islice(_sources(spec), _MOST_FILES):
        try:
            text = file.read_bytes()
        except OSError:
            continue
        if pattern.search(text):
            return True
        read += len(text)
        if read > _MOST_BYTES:
            break
    return False


def _sources(spec: ModuleSpec) -> Iterator[Path]:
    places = spec.submodule_search_locations
    if places is None:
        yield Path(str(spec.origin))
        return
    for place in places:
        yield from sorted(Path(place).rglob("*.py"))
