"""``everlong plugins``: list plugins, choose the context engine, check plugins, and start a new one.

Listing imports no plugin. `everlong.plugins` knows what a plugin is; this module prints and asks.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

import everlong.context
import everlong.lossless
from everlong import config
from everlong.cli.config import override_note, set_in_project
from everlong.cli.menu import pick_line
from everlong.cli.output import json_option, print_values, say
from everlong.cli.screen import styled
from everlong.config.paths import config_home
from everlong.errors import PluginError
from everlong.plugins import trust
from everlong.plugins.adapters import host_state
from everlong.plugins.discovery import ENGINES, FOLDER, RESERVED_NAMES, FoundPlugin, check_name, is_plugin
from everlong.plugins.manager import BUILT_IN, LOSSLESS, Plugins, named
from everlong.plugins.template import write_plugin

__all__ = ["ListedPlugin", "check_plugin", "missing_plugins", "plugins_group"]

_TITLES = {"engine": "Provider Plugins → Context Engine", "general": "General plugins"}
_WINDOW = 128_000
"""The context window that engines are checked with."""


@click.group("plugins", invoke_without_command=True)
@click.pass_context
def plugins_group(context: click.Context) -> None:
    """List plugins and choose the context engine. Without a command: a menu on a terminal, else the list."""
    if context.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _run_menu()
    else:
        context.invoke(list_)


# -- list -----------------------------------------------------------------------------------------------------


@plugins_group.command("list")
@json_option
def list_(as_json: bool = False) -> None:
    """List all plugins: version, origin, and whether they are in use."""
    plugins = find_plugins()
    listed = ListedPlugin.of(plugins)
    if as_json:
        print_values({"engine": plugins.settings.context.engine, "plugins": [one.as_dict() for one in listed]})
        return
    click.echo("\n".join(_format_list(listed)))


def find_plugins() -> Plugins:
    """Return the plugins of the settings in effect; none is loaded."""
    return Plugins(config.load_settings().settings)


@dataclass(frozen=True)
class ListedPlugin:
    """A plugin, and whether the settings use it."""

    found: FoundPlugin
    is_active: bool
    """True if it is the context engine, or a general plugin that is enabled."""
    is_trusted: bool
    """True if it may be loaded; only the plugins of a project need trust."""

    @classmethod
    def of(cls, plugins: Plugins) -> list[ListedPlugin]:
        """Return every plugin that is there."""
        trusted = {id(one): _is_loadable(one) for one in plugins.found}
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
        """The problem that can be seen without loading it; empty if there is none."""
        if not self.is_trusted:
            return f"it came with this project and is not trusted; see: everlong plugins trust {self.found.folder}"
        return self.found.problem

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
            "author": manifest.author,
            "provides": list(manifest.provides),
            "active": self.is_active,
            "trusted": self.is_trusted,
            "problem": self.problem,
        }


def _is_loadable(found: FoundPlugin) -> bool:
    return not found.needs_trust or found.folder is None or trust.is_trusted(found.folder)


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
            if one.problem:
                yield f"      ! {one.problem}"


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
@click.option("--project", is_flag=True, help="Write the project's file instead of yours.")
def use(name: str, project: bool) -> None:
    """Make NAME the context engine in config.yaml; comments in the file are kept."""
    plugins = find_plugins()
    found = find_plugin(plugins, name)
    for line in use_engine(plugins, found, name, project=project):
        click.echo(line, err=True)


def use_engine(plugins: Plugins, found: FoundPlugin, name: str, *, project: bool = False) -> Iterator[str]:
    """Write a plugin as the context engine to a configuration file; yield what was done, line by line."""
    own = config.user_config_path()
    engine = _engine_name(found, name)
    enabled = plugins.settings.plugins.enabled
    if found.kind == "general" and not any(found.answers_to(one) for one in enabled):
        config.set_value(own, "plugins.enabled", str([*enabled, found.name]))  # which no folder may do
        yield f"plugins.enabled now lists {found.name} in {own}"
    if project:
        path, _, note = set_in_project("context.engine", engine)
    else:
        path, note = own, ""
        config.set_value(path, "context.engine", engine)
    yield f"context.engine is now {engine} in {path}"
    if note:
        yield f"note: {note}"
    yield from override_note("context.engine", path)
    if not _is_loadable(found):
        yield f"note: it came with this project and is not trusted yet; see: everlong plugins trust {found.folder}"


def _engine_name(found: FoundPlugin, name: str) -> str:
    """Return the value of ``context.engine`` that means this plugin's engine; load the plugin if need be."""
    provides = found.manifest.provides
    if found.kind == "engine" or name in provides:
        return name if name in {found.name, *provides} else found.name
    if provides:
        return provides[0]
    if not _is_loadable(found):
        return found.name
    looked = check_plugin(found)
    if not looked.engine and looked.is_loaded:
        raise PluginError(
            f"the plugin {found.name!r} offers no context engine; to load what else it has: "
            f"everlong config set plugins.enabled {found.name}"
        )
    return looked.engine or found.name


# -- menu --------------------------------------------------------------------------------------------------------------


def _run_menu() -> None:
    """Let a person choose the context engine in a menu, and write it to their config.yaml."""
    while True:
        plugins = find_plugins()
        engines = [one for one in ListedPlugin.of(plugins) if one.found.kind == "engine" or one.found.manifest.provides]
        engines += [one for one in ListedPlugin.of(plugins) if one.found.kind == "general" and one not in engines]
        active = next((place for place, one in enumerate(engines) if one.is_active and one.found.kind == "engine"), 0)
        now = plugins.settings.context.engine
        if pick_line("Provider Plugins", [f"Context Engine   {now}"], 0) is None:
            return
        names = max(len(one.found.name) for one in engines)
        versions = max(len(one.found.manifest.version) for one in engines)
        lines = [_format_menu_line(one, names, versions) for one in engines]
        place = pick_line("Provider Plugins → Context Engine", lines, active)
        if place is None:
            continue
        found = engines[place].found
        for line in use_engine(plugins, found, found.name):
            click.echo(line, err=True)
        return


def _format_menu_line(one: ListedPlugin, names: int, versions: int) -> str:
    mark = "●" if one.is_active else "○"
    problem = f"  ! {one.problem}" if one.problem else ""
    kind = "  (general plugin)" if one.found.kind == "general" else ""
    return f"{mark} {_format_row(one, names, versions)}{kind}{problem}"


# -- doctor ------------------------------------------------------------------------------------------------------------


@plugins_group.command("doctor")
@click.argument("name", required=False)
@json_option
def doctor(name: str | None, as_json: bool) -> None:
    """Load a plugin, or all that are in use, and report problems; exit with 1 if there are any."""
    plugins = find_plugins()
    if name is not None:
        chosen, missing = [find_plugin(plugins, name)], []
    else:
        chosen = [one.found for one in ListedPlugin.of(plugins) if one.is_active]
        missing = list(missing_plugins(plugins))
    looked = [check_plugin(found) for found in chosen]
    is_well = all(one.is_well for one in looked) and not missing
    if as_json:
        values = [{**vars(one), "ok": one.is_well} for one in looked]
        print_values({"ok": is_well, "plugins": values, "missing": missing})
    else:
        for one in looked:
            click.echo("\n".join(_format_checkup(one)))
        for text in missing:
            click.echo(_format_state("fail", text))
    if not is_well:
        raise click.exceptions.Exit(1)


@dataclass
class PluginCheckup:
    """The result of loading one plugin."""

    name: str
    where: str
    version: str
    registered: list[str] = field(default_factory=list)
    engine: str = ""
    problems: list[str] = field(default_factory=list)
    traceback: str = ""
    """The plugin's own traceback, if it failed."""
    is_loaded: bool = False

    @property
    def is_well(self) -> bool:
        """True if it can be used."""
        return not self.problems


def check_plugin(found: FoundPlugin) -> PluginCheckup:
    """Load a plugin by itself, and check what it registered."""
    from everlong.cli.chat.command import command_registry  # noqa: PLC0415 - only for a plugin that is loaded

    looked = PluginCheckup(found.name, found.where, found.manifest.version)
    if found.problem:
        looked.problems.append(found.problem)
    plugins = Plugins(config.load_settings().settings, warn=looked.problems.append)
    try:
        plugins.load_one(found)
        looked.is_loaded = True
        looked.registered = plugins.registered.of(found.name)
        taken = command_registry().commands.keys() & plugins.registered.commands.keys()
        looked.problems += [f"it brings a command /{name}, which the chat has already" for name in sorted(taken)]
        _check_engine(plugins, found, looked)
    except PluginError as error:
        looked.problems.append(str(error))
        looked.traceback = error.traceback
    return looked


def _check_engine(plugins: Plugins, found: FoundPlugin, looked: PluginCheckup) -> None:
    from everlong.plugins.checkup import engine_problems  # noqa: PLC0415 - only for a plugin that is loaded
    from everlong.plugins.engines import make_engine  # noqa: PLC0415 - as above

    offer = plugins.registered.engine
    if found.origin == "built-in":
        engine: Any = (
            everlong.lossless.LosslessEngine(_WINDOW)
            if found.name == LOSSLESS
            else everlong.context.ContextCompressor(_WINDOW)
        )
        looked.registered = ["a context engine"]
    elif offer is not None:
        engine = make_engine(offer.offered, _WINDOW, found.name)
    else:
        return
    looked.engine = named(engine)
    looked.problems += [f"its engine: {text}" for text in engine_problems(engine)]


def missing_plugins(plugins: Plugins, *, engine: bool = True) -> Iterator[str]:
    """Yield a sentence for each plugin that the settings name and that cannot be loaded."""
    wanted = plugins.settings.context.engine
    enabled = plugins.settings.plugins.enabled
    if engine and not plugins.named(wanted) and not enabled:  # an enabled one may have an engine of that name
        yield f"context.engine is {wanted!r}, and there is no plugin of that name"
    for name in enabled:
        if not plugins.named(name):
            yield f"plugins.enabled names {name!r}, and there is no plugin of that name"
    for folder in plugins.places.missing_paths():
        yield f"plugins.paths names {folder}, and there is no such folder"
    for name in [*([wanted] if engine else []), *enabled]:
        candidates = [one for one in ListedPlugin.of(plugins) if one.found in plugins.named(name)]
        if candidates and not any(one.is_trusted for one in candidates):
            yield f"{name}: {candidates[0].problem}"


def _format_checkup(one: PluginCheckup) -> Iterator[str]:
    about = f"{one.name} {one.version}".rstrip()
    registered = ", ".join(one.registered) or "nothing"
    engine = f" ({one.engine})" if one.engine else ""
    yield _format_state("ok" if one.is_well else "fail", f"{about} in {one.where}")
    yield f"      registered: {registered}{engine}"
    for text in one.problems:
        yield f"      → {text}"
    for line in one.traceback.rstrip().splitlines():
        yield f"        {line}"


def _format_state(state: str, text: str) -> str:
    return f"{styled(f'{state:<4}', fg='green' if state == 'ok' else 'red', bold=state != 'ok')}  {text}"


# -- new, trust and host-path ------------------------------------------------------------------------------------------


@plugins_group.command("new")
@click.argument("name")
@click.option(
    "--path", type=click.Path(path_type=Path), help="The folder to write.  [default: among your own context engines]"
)
def new(name: str, path: Path | None) -> None:
    """Write a new context engine called NAME, with passing tests, ready to edit."""
    if name in RESERVED_NAMES:
        check_name(name)
    own = config_home() / FOLDER / ENGINES / name
    folder = (path or own).absolute()
    for written in write_plugin(folder, name):
        click.echo(str(written))
    say(f"wrote {folder}; run its tests with: pytest {folder}")
    if folder == own:
        say(f"use it with: everlong plugins use {name}")
    else:
        paths = json.dumps([*config.load_settings().settings.plugins.paths, str(folder)], ensure_ascii=False)
        say(f"make it known with: everlong config set plugins.paths {shlex.quote(paths)}")


@plugins_group.command("trust")
@click.argument("path", type=click.Path(path_type=Path))
def trust_(path: Path) -> None:
    """Trust the project plugin in the folder PATH as it is now. It runs with your rights: read it first."""
    if not is_plugin(path):
        raise PluginError(f"{path} is no plugin: there is no folder with an __init__.py or a plugin.yaml in it")
    digest = trust.trust(path)
    say(f"{path.resolve()} is trusted as it is now ({digest[:12]}); a change asks again")


@plugins_group.command("host-path")
def host_path() -> None:
    """Print the folder to put on PYTHONPATH when testing a plugin written for another host."""
    click.echo(str(host_state.host_path()))
