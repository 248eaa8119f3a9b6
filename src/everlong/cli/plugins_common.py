"""What the commands of ``everlong plugins`` share: plugins as rows, the one that a name means, choosing an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from everlong.cli.config import set_in_project
from everlong.config import load_settings, set_value, user_config_path
from everlong.errors import ConfigError, PluginError
from everlong.plugins.manager import BUILT_IN, Plugins
from everlong.plugins.places import Found
from everlong.plugins.trust import is_trusted

__all__ = ["Listed", "meant", "opened", "rows", "use_engine"]

_TITLES = {"engine": "Provider Plugins → Context Engine", "general": "General plugins"}


def opened() -> Plugins:
    """The plugins of the settings in effect here; nothing is loaded."""
    return Plugins(load_settings().settings)


@dataclass(frozen=True)
class Listed:
    """A plugin, and what the settings make of it."""

    found: Found
    is_active: bool
    """Whether it is the context engine, or general and enabled."""
    is_trusted: bool
    """Whether it may be loaded; only a project's plugins need to be trusted."""

    @classmethod
    def of(cls, plugins: Plugins) -> list[Listed]:
        """Every plugin that is there."""
        trusted = {id(one): _may_be_loaded(one) for one in plugins.found}
        wanted = plugins.settings.context.engine
        general = [
            next((one for one in plugins.named(name) if trusted[id(one)]), None)
            for name in plugins.settings.plugins.enabled
        ]
        engine = next((one for one in plugins.named(wanted) if trusted[id(one)]), None)
        if engine is None and not any(general):  # one of those may have an engine of that name
            engine = plugins.named(BUILT_IN)[0]
        return [cls(one, one is engine or one in general, trusted[id(one)]) for one in plugins.found]

    @property
    def problem(self) -> str:
        """What is wrong with it, as far as that can be seen without loading it."""
        if not self.is_trusted:
            return f"it came with this project and is not trusted; see: everlong plugins trust {self.found.folder}"
        return self.found.problem

    def as_dict(self) -> dict[str, Any]:
        """The plugin as JSON-ready data."""
        found, manifest = self.found, self.found.manifest
        return {
            "name": found.name,
            "kind": found.kind,
            "origin": found.origin,
            "where": found.where,
            "version": manifest.version,
            "description": manifest.description,
            "author": manifest.author,
            "provides": list(manifest.provides),
            "active": self.is_active,
            "trusted": self.is_trusted,
            "problem": self.problem,
        }


def rows(listed: list[Listed]) -> Iterator[str]:
    """The plugins as lines of a table; a star marks what is in use."""
    names = max((len(one.found.name) for one in listed), default=0)
    versions = max((len(one.found.manifest.version) for one in listed), default=0)
    for kind, title in _TITLES.items():
        of_kind = [one for one in listed if one.found.kind == kind]
        if not of_kind:
            continue
        yield title
        for one in of_kind:
            yield f"  {'*' if one.is_active else ' '} {row(one, names, versions)}"
            if one.problem:
                yield f"      ! {one.problem}"


def row(one: Listed, names: int, versions: int) -> str:
    """One plugin in columns."""
    manifest = one.found.manifest
    columns = f"{one.found.name:<{names}}  {manifest.version:<{versions}}  {one.found.origin:<8}"
    return f"{columns}  {manifest.description}".rstrip()


def meant(plugins: Plugins, name: str) -> Found:
    """The plugin that a person means by a name; a `PluginError` lists what there is."""
    found = plugins.named(name)
    if found:
        return found[0]
    refused = next((one for one in plugins.found if one.name == name and one.refused), None)
    if refused is not None:
        raise PluginError(f"{refused.where} cannot be used: {refused.refused}")
    names = sorted({one.name for one in plugins.found})
    close = get_close_matches(name, names, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise PluginError(
        f"there is no plugin {name!r}{hint}; there are {', '.join(names)}; looked in "
        f"{', '.join(plugins.places.searched())}"
    )


def use_engine(plugins: Plugins, found: Found, name: str, *, project: bool = False) -> Iterator[str]:
    """Write a plugin as the context engine to a configuration file; what was done, line by line."""
    own = user_config_path()
    engine = _engine_name(found, name)
    enabled = plugins.settings.plugins.enabled
    if found.kind == "general" and not any(found.answers_to(one) for one in enabled):
        set_value(own, "plugins.enabled", str([*enabled, found.name]))  # which no folder may do
        yield f"plugins.enabled now lists {found.name} in {own}"
    if project:
        path, _, note = set_in_project("context.engine", engine)
    else:
        path, note = own, ""
        set_value(path, "context.engine", engine)
    yield f"context.engine is now {engine} in {path}"
    if note:
        yield f"note: {note}"
    yield from _overridden(path)
    if not _may_be_loaded(found):
        yield f"note: it came with this project and is not trusted yet; see: everlong plugins trust {found.folder}"


def _engine_name(found: Found, name: str) -> str:
    """What to write as the context engine, so that this plugin's is meant."""
    provides = found.manifest.provides
    if found.kind == "engine" or name in provides:
        return name if name in {found.name, *provides} else found.name
    if provides:
        return provides[0]
    if not _may_be_loaded(found):
        return found.name
    from everlong.cli.plugins_doctor import looked_at  # noqa: PLC0415 - loads the plugin, as its user now wants it to be

    looked = looked_at(found)
    if not looked.engine and looked.is_loaded:
        raise PluginError(
            f"the plugin {found.name!r} offers no context engine; to load what else it has: "
            f"everlong config set plugins.enabled {found.name}"
        )
    return looked.engine or found.name


def _overridden(path: Path) -> Iterator[str]:
    """A note where the value just written is not the one in effect."""
    try:
        where = load_settings().origins.get("context.engine")
    except ConfigError as error:
        yield f"note: it has no effect yet, because {error}"
        return
    if where is not None and where.kind != "default" and where.name != str(path):
        yield f"note: {where} overrides it"


def _may_be_loaded(found: Found) -> bool:
    return not found.needs_trust or found.folder is None or is_trusted(found.folder)
