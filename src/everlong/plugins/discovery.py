"""The discovery of plugins: the places that are searched, and the plugins found there, without importing them.

Names are resolved in this order: folders of engines (the user's, those of ``plugins.paths``), then
general plugins in the same places, then installed packages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from everlong import __version__
from everlong.config.paths import config_home
from everlong.errors import PluginError

if TYPE_CHECKING:
    from everlong.config import Settings

__all__ = [
    "ENGINES",
    "ENGINE_GROUP",
    "FOLDER",
    "RESERVED_NAMES",
    "FoundPlugin",
    "Manifest",
    "PluginPlaces",
    "check_name",
    "is_plugin",
    "printable",
    "read_manifest",
]

RESERVED_NAMES = frozenset({"compressor", "context_engine", "paths"})
"""Names that no plugin can have: the built-in engine, the folder of engines, and a setting."""

_FILES = ("plugin.yaml", "plugin.yml")
_FACTS = ("name", "description", "version")
_MOST_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST = 300


@dataclass(frozen=True)
class Manifest:
    """The facts of a ``plugin.yaml``; empty where it does not say."""

    name: str = ""
    description: str = ""
    version: str = ""
    provides: tuple[str, ...] = ()
    """Context engines that the plugin registers under other names than its own."""
    problem: str = ""
    """The problem of the file, in a sentence; empty where there is none."""


def check_name(name: str) -> None:
    """Raise a `PluginError` if a plugin cannot have this name."""
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"a plugin cannot be called {printable(name, 80)!r}: a name has 1 to 64 letters, digits, '.', '_' and '-', "
            "and begins with a letter or a digit"
        )
    if name in RESERVED_NAMES:
        raise PluginError(f"a plugin cannot be called {name!r}: that name has a meaning of its own; choose another")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a plugin's folder; a damaged or huge file becomes its ``problem``."""
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
    return _parse(data, path.name)


def printable(value: object, longest: int = _LONGEST) -> str:
    """Return a value as one short line that is safe on any terminal."""
    text = " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _parse(data: bytes, name: str) -> Manifest:
    from ruamel.yaml import YAML  # noqa: PLC0415 - only where there is a manifest
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    from everlong.config.yaml_file import MOST_LEVELS, find_too_deep  # noqa: PLC0415 - as above

    try:
        text = data.decode("utf-8-sig")
        if find_too_deep(text) is not None:
            return Manifest(problem=f"its {name} is nested more than {MOST_LEVELS} levels deep")
        # This loader reads every value as text, so that version 1.10 does not become 1.1.
        values: Any = YAML(typ="base", pure=True).load(text)
    except UnicodeDecodeError:
        return Manifest(problem=f"its {name} is not UTF-8 text")
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        return Manifest(problem=f"its {name} is not valid YAML{where}")
    if not isinstance(values, Mapping):
        return Manifest(problem=f"its {name} holds no mapping of name, description and version")
    facts = {key: printable(value) for key in _FACTS if isinstance(value := values.get(key), str) and value}
    provides = values.get("provides", ())
    provides = [provides] if isinstance(provides, str) else provides
    wrong = [key for key in _FACTS if not isinstance(values.get(key), str | None)]
    if not isinstance(provides, list | tuple) or not all(isinstance(one, str) for one in provides):
        wrong, provides = [*wrong, "provides"], ()
    missing = [key for key in _FACTS if key not in facts]
    problem = f"its {name} does not tell {', '.join(missing)}" if missing else ""
    problem = f"{', '.join(wrong)} in its {name} must be text" if wrong else problem
    return Manifest(**facts, provides=tuple(printable(one, 64) for one in provides[:100]), problem=problem)


FOLDER = "plugins"
ENGINES = "context_engine"
"""The subfolder of a plugin folder that holds context engines."""
ENGINE_GROUP = "everlong.engines"

Kind = Literal["engine", "general"]
Origin = Literal["built-in", "user", "path", "package"]

_MOST_FOLDERS = 500
"""Folders in one place that are looked at, at most."""


@dataclass(frozen=True)
class FoundPlugin:
    """A plugin that was found, whether or not it works."""

    name: str
    kind: Kind
    origin: Origin
    folder: Path | None = None
    entry: EntryPoint | None = None
    manifest: Manifest = field(default_factory=Manifest)
    refused: str = ""
    """The reason why it cannot have its name; empty where it can."""

    @property
    def problem(self) -> str:
        """The problem that can be seen without loading it; empty where there is none."""
        return self.refused or self.manifest.problem

    @property
    def where(self) -> str:
        """The folder or the package that it is in."""
        if self.folder is not None:
            return str(self.folder)
        if self.entry is not None:
            package = self.entry.dist.name if self.entry.dist is not None else "a package"
            return f"{self.entry.value} of {package}"
        return "Everlong"

    def answers_to(self, name: str) -> bool:
        """Return whether a user may mean this plugin by a name."""
        return not self.refused and name in {self.name, self.manifest.name, *self.manifest.provides}


@dataclass(frozen=True)
class _Root:
    """A folder with plugins in it."""

    folder: Path
    origin: Origin


class PluginPlaces:
    """The places of one configuration; ``plugins.paths`` names some of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._roots = list(self._all_roots())

    def found(self) -> list[FoundPlugin]:
        """Return every plugin in the order of resolution; the built-in one first, since nothing overrides it."""
        engines = [one for root in self._roots for one in _plugins_in(root.folder / ENGINES, root, "engine")]
        general = [one for root in self._roots for one in _general_plugins(root)]
        return [
            *_builtin_engines(),
            *engines,
            *general,
            *_installed_engines(),
        ]

    def searched(self) -> list[str]:
        """Return the places in words, in order, for the message that a plugin is in none of them."""
        engines = [str(root.folder / ENGINES) for root in self._roots]
        general = [str(root.folder) for root in self._roots]
        return [*engines, *general, f"the entry points {ENGINE_GROUP}"]

    def _all_roots(self) -> Iterator[_Root]:
        yield _Root(config_home() / FOLDER, "user")
        for text in self._settings.plugins.paths:  # a setting of the user; no project may set it
            yield _Root(config_home() / Path(text).expanduser(), "path")

    def missing_paths(self) -> list[str]:
        """Return the folders of ``plugins.paths`` that do not exist."""
        return [str(root.folder) for root in self._roots if root.origin == "path" and not root.folder.is_dir()]


def _builtin_engines() -> Iterator[FoundPlugin]:
    """Yield the engines that come with Everlong."""
    about = "The built-in engine: clears old tool results, and summarizes the middle of a conversation."
    manifest = Manifest("compressor", about, __version__, provides=("compressor",))
    yield FoundPlugin("compressor", "engine", "built-in", manifest=manifest)
    about = "The lossless engine: a graph of summaries, under which every message can be opened."
    manifest = Manifest("lcm", about, __version__, provides=("lcm", "builtin:lcm"))
    yield FoundPlugin("lcm", "engine", "built-in", manifest=manifest)


def _plugins_in(folder: Path, root: _Root, kind: Kind) -> Iterator[FoundPlugin]:
    """Yield the plugins directly in a folder."""
    try:
        inside = sorted(one for one in folder.iterdir() if one.name[0] not in "._" and one.name != ENGINES)
    except OSError:  # it does not exist, or may not be read
        return
    for one in [one for one in inside if is_plugin(one)][:_MOST_FOLDERS]:
        yield _read_plugin(one, root, kind)


def _general_plugins(root: _Root) -> Iterator[FoundPlugin]:
    if root.origin == "path" and is_plugin(root.folder):
        yield _read_plugin(root.folder, root, "general")  # plugins.paths names the plugin itself
    else:
        yield from _plugins_in(root.folder, root, "general")


def is_plugin(folder: Path) -> bool:
    """Return whether a folder is a plugin: it has code or a manifest."""
    return any(os.path.isfile(folder / name) for name in ("__init__.py", "plugin.yaml", "plugin.yml"))  # noqa: PTH113


def _read_plugin(folder: Path, root: _Root, kind: Kind) -> FoundPlugin:
    manifest = read_manifest(folder)
    name, refused = printable(folder.name, 80), _refusal(folder.name)
    return FoundPlugin(name, kind, root.origin, folder, None, manifest, refused)


def _refusal(name: str) -> str:
    try:
        check_name(name)
    except PluginError as error:
        return str(error)
    return ""


def _installed_engines() -> Iterator[FoundPlugin]:
    seen: set[tuple[str, str]] = set()
    for entry in sorted(entry_points(group=ENGINE_GROUP), key=lambda one: (one.name, one.value)):
        if (entry.name, entry.value) in seen:  # the same package may be found twice on the path
            continue
        seen.add((entry.name, entry.value))
        dist = entry.dist
        about = printable(dist.metadata.json.get("summary") or "") if dist is not None else ""
        manifest = Manifest(entry.name, about, dist.version if dist is not None else "")
        yield FoundPlugin(entry.name, "engine", "package", None, entry, manifest, refused=_refusal(entry.name))
