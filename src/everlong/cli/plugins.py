"""``everlong plugins``: list plugins and choose the context engine.

Listing imports no plugin. `everlong.plugins` knows what a plugin is; this module prints and asks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import click

from everlong import config
from everlong.cli.config import override_note
from everlong.cli.main import HintingGroup
from everlong.cli.output import json_option, print_values, say
from everlong.cli.screen import pick_line
from everlong.config import Settings
from everlong.errors import PluginError
from everlong.plugins.discovery import FoundPlugin
from everlong.plugins.engines import make_engine
from everlong.plugins.manager import BUILT_IN, Plugins

_TITLES = {"engine": "Provider Plugins → Context Engine", "general": "General plugins"}
_WINDOW = 128_000
"""The context window that engines are checked with."""


@click.group("plugins", cls=HintingGroup, invoke_without_command=True)
@json_option
@click.pass_context
def plugins_group(context: click.Context, as_json: bool) -> None:
    """List plugins and choose the context engine. Without a command: a menu on a terminal, else the list."""
    if context.invoked_subcommand is not None:
        return
    plugins = find_plugins()
    listed = ListedPlugin.of(plugins)
    if as_json:
        print_values({"engine": plugins.settings.context.engine, "plugins": [one.as_dict() for one in listed]})
    elif sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _run_menu(plugins, listed)
    else:
        click.echo("\n".join(_format_list(listed)))


# -- list --------------------------------------------------------------------------------------------------------------


def find_plugins() -> Plugins:
    """Return the plugins of the settings in effect; none is loaded."""
    return Plugins(config.load_settings().settings)


@dataclass(frozen=True)
class ListedPlugin:
    """A plugin, and whether it is the context engine of the settings."""

    found: FoundPlugin
    is_active: bool

    @classmethod
    def of(cls, plugins: Plugins) -> list[ListedPlugin]:
        """Return every plugin that is there."""
        engine = (plugins.named(plugins.settings.context.engine) or plugins.named(BUILT_IN))[0]
        return [cls(one, one is engine) for one in plugins.found]

    def as_dict(self) -> dict[str, Any]:
        """Return the plugin as JSON-ready data."""
        found, manifest = self.found, self.found.manifest
        return {
            "name": found.name,
            "kind": found.kind,
            "origin": found.origin,
            "where": found.where,
            "version": manifest.version,
            "description": manifest.description,
            "provides": list(manifest.provides),
            "active": self.is_active,
            "problem": found.problem,
        }


def _format_list(listed: list[ListedPlugin]) -> Iterator[str]:
    """Yield the plugins as lines of a table; a star marks those in use."""
    names = max((len(one.found.name) for one in listed), default=0)
    versions = max((len(one.found.manifest.version) for one in listed), default=0)
    for kind, title in _TITLES.items():
        of_kind = [one for one in listed if one.found.kind == kind]
        if not of_kind:
            continue
        yield title
        for one in of_kind:
            yield f"  {'*' if one.is_active else ' '} {_format_row(one, names, versions)}"
            if one.found.problem:
                yield f"      ! {one.found.problem}"


def _format_row(one: ListedPlugin, names: int, versions: int) -> str:
    """Return one plugin in columns."""
    manifest = one.found.manifest
    columns = f"{one.found.name:<{names}}  {manifest.version:<{versions}}  {one.found.origin:<8}"
    return f"{columns}  {manifest.description}".rstrip()


def find_plugin(plugins: Plugins, name: str) -> FoundPlugin:
    """Return a plugin by its name.

    Raises:
        PluginError: there is none; the message lists those that there are.
    """
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


# -- use ---------------------------------------------------------------------------------------------------------------


@plugins_group.command("use")
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the context engine in config.yaml; comments in the file are kept."""
    plugins = find_plugins()
    found = find_plugin(plugins, name)
    for line in use_engine(plugins, found, name):
        click.echo(line, err=True)


def use_engine(plugins: Plugins, found: FoundPlugin, name: str) -> Iterator[str]:
    """Write a plugin as the context engine to the user's configuration file; yield what was done, line by line.

    Raises:
        PluginError: it cannot be loaded, or it offers no engine; nothing is written then.
    """
    load_plugin(found, plugins.settings, say)
    engine = name if name in {found.name, *found.manifest.provides} else found.name
    own = config.user_config_path()
    config.set_value(own, "context.engine", engine)
    yield f"context.engine is now {engine} in {own}"
    if found.problem:
        yield f"but {found.problem}"
    yield from override_note("context.engine", own)


# -- menu --------------------------------------------------------------------------------------------------------------


def _run_menu(plugins: Plugins, listed: list[ListedPlugin]) -> None:
    """Let a person choose the context engine in a menu, and write it to their config.yaml."""
    engines = sorted(listed, key=lambda one: one.found.kind != "engine")
    active = next((place for place, one in enumerate(engines) if one.is_active and one.found.kind == "engine"), 0)
    names = max(len(one.found.name) for one in engines)
    versions = max(len(one.found.manifest.version) for one in engines)
    lines = [_format_menu_line(one, names, versions) for one in engines]
    place = pick_line(_TITLES["engine"], lines, active)
    if place is not None:
        found = engines[place].found
        for line in use_engine(plugins, found, found.name):
            click.echo(line, err=True)


def _format_menu_line(one: ListedPlugin, names: int, versions: int) -> str:
    mark = "●" if one.is_active else "○"
    problem = f"  ! {one.found.problem}" if one.found.problem else ""
    kind = "  (general plugin)" if one.found.kind == "general" else ""
    return f"{mark} {_format_row(one, names, versions)}{kind}{problem}"


# -- loading -----------------------------------------------------------------------------------------------------------


def load_plugin(found: FoundPlugin, settings: Settings, warn: Callable[[str], None]) -> None:
    """Load a plugin by itself, and make its engine.

    Raises:
        PluginError: it cannot be loaded, or its engine cannot be made.
    """
    plugins = Plugins(settings, warn=warn)
    plugins.load_one(found)
    if plugins.offer is not None:
        make_engine(plugins.offer.offered, _WINDOW, found.name)


def missing_plugins(plugins: Plugins) -> Iterator[str]:
    """Yield a sentence for each plugin or folder that the settings name and that is not there."""
    wanted = plugins.settings.context.engine
    if not plugins.named(wanted):
        yield f"context.engine is {wanted!r}, and there is no plugin of that name"
    for folder in plugins.places.missing_paths():
        yield f"plugins.paths names {folder}, and there is no such folder"
