"""``everlong plugins``: what is there, which engine is in use, choosing another, checking and starting one.

Listing imports nothing. Data goes to stdout, what was done to stderr. What a plugin is, `everlong.plugins` knows.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from everlong.agent.text import visible
from everlong.cli.config import set_in_project
from everlong.cli.screen import styled, unguarded
from everlong.config import load_settings, set_value, user_config_path
from everlong.config.paths import config_home
from everlong.errors import ConfigError, PluginError
from everlong.plugins.adapters import host_state
from everlong.plugins.discovery import FoundPlugin
from everlong.plugins.manager import BUILT_IN, Plugins
from everlong.plugins.template import write_plugin
from everlong.plugins.trust import is_trusted

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyPressEvent

__all__ = [
    "Listed",
    "choose",
    "doctor",
    "looked_at",
    "meant",
    "missing_plugins",
    "opened",
    "plugins_group",
    "rows",
    "use_engine",
]

_TITLES = {"engine": "Provider Plugins → Context Engine", "general": "General plugins"}


def opened() -> Plugins:
    """The plugins of the settings in effect here; nothing is loaded."""
    return Plugins(load_settings().settings)


@dataclass(frozen=True)
class Listed:
    """A plugin, and what the settings make of it."""

    found: FoundPlugin
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


def meant(plugins: Plugins, name: str) -> FoundPlugin:
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


def use_engine(plugins: Plugins, found: FoundPlugin, name: str, *, project: bool = False) -> Iterator[str]:
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


def _engine_name(found: FoundPlugin, name: str) -> str:
    """What to write as the context engine, so that this plugin's is meant."""
    provides = found.manifest.provides
    if found.kind == "engine" or name in provides:
        return name if name in {found.name, *provides} else found.name
    if provides:
        return provides[0]
    if not _may_be_loaded(found):
        return found.name

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


def _may_be_loaded(found: FoundPlugin) -> bool:
    return not found.needs_trust or found.folder is None or is_trusted(found.folder)


_KEYS = "↑ ↓ move · Enter chooses · Esc leaves"


def choose() -> None:
    """Let a person go through the menu; what they choose is written to their config.yaml."""
    while True:
        plugins = opened()
        engines = [one for one in Listed.of(plugins) if one.found.kind == "engine" or one.found.manifest.provides]
        engines += [one for one in Listed.of(plugins) if one.found.kind == "general" and one not in engines]
        active = next((place for place, one in enumerate(engines) if one.is_active and one.found.kind == "engine"), 0)
        now = plugins.settings.context.engine
        if pick("Provider Plugins", [f"Context Engine   {now}"], 0) is None:
            return
        names = max(len(one.found.name) for one in engines)
        versions = max(len(one.found.manifest.version) for one in engines)
        lines = [_line(one, names, versions) for one in engines]
        place = pick("Provider Plugins → Context Engine", lines, active)
        if place is None:
            continue
        found = engines[place].found
        for line in use_engine(plugins, found, found.name):
            click.echo(line, err=True)
        return


def _line(one: Listed, names: int, versions: int) -> str:
    mark = "●" if one.is_active else "○"
    problem = f"  ! {one.problem}" if one.problem else ""
    kind = "  (general plugin)" if one.found.kind == "general" else ""
    return f"{mark} {row(one, names, versions)}{kind}{problem}"


def pick(title: str, lines: Sequence[str], place: int) -> int | None:
    """Let a person choose one of several lines; None where they leave."""
    at = [place]
    keys = KeyBindings()

    def drawn() -> StyleAndTextTuples:
        text: StyleAndTextTuples = [("bold", f"{title}\n")]
        for number, line in enumerate(lines):
            is_here = number == at[0]
            text.append(("reverse" if is_here else "", f" {'›' if is_here else ' '} {visible(line)}\n"))
        return [*text, ("ansibrightblack", _KEYS)]

    def move(by: int) -> None:
        at[0] = (at[0] + by) % len(lines)

    @keys.add("up")
    @keys.add("k")
    def _(event: KeyPressEvent) -> None:  # noqa: ARG001 - its place is what counts
        move(-1)

    @keys.add("down")
    @keys.add("j")
    def _(event: KeyPressEvent) -> None:  # noqa: ARG001 - as above
        move(1)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=at[0])

    @keys.add("escape", eager=True)
    @keys.add("q")
    @keys.add("c-c")
    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    # The window scrolls to where the cursor is, although nobody sees it.
    here = FormattedTextControl(drawn, show_cursor=False, get_cursor_position=lambda: Point(0, at[0] + 1))
    body = Window(here, wrap_lines=True, always_hide_cursor=True)
    application: Application[int | None] = Application(Layout(body), key_bindings=keys, erase_when_done=True)
    with unguarded():  # it draws with escapes
        return application.run()


_WINDOW = 128_000


@dataclass
class Looked:
    """What was found out about one plugin by loading it."""

    name: str
    where: str
    version: str
    registered: list[str] = field(default_factory=list)
    engine: str = ""
    problems: list[str] = field(default_factory=list)
    traceback: str = ""
    """The plugin's own, where it has failed."""
    is_loaded: bool = False

    @property
    def is_well(self) -> bool:
        """Whether it can be used."""
        return not self.problems


@click.command("doctor")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(name: str | None, as_json: bool) -> None:
    """Load a plugin, or all that are in use, and say what is wrong; leaves with 1 if anything is."""
    plugins = opened()
    chosen = [meant(plugins, name)] if name is not None else [one.found for one in Listed.of(plugins) if one.is_active]
    looked = [looked_at(found) for found in chosen]
    missing = [] if name is not None else list(missing_plugins(plugins))
    is_well = all(one.is_well for one in looked) and not missing
    if as_json:
        values = [{**vars(one), "ok": one.is_well} for one in looked]
        click.echo(json.dumps({"ok": is_well, "plugins": values, "missing": missing}, ensure_ascii=False, indent=2))
    else:
        for one in looked:
            click.echo("\n".join(_lines(one)))
        for text in missing:
            click.echo(_state("fail", text))
    if not is_well:
        raise click.exceptions.Exit(1)


def looked_at(found: FoundPlugin) -> Looked:
    """Load a plugin by itself, and look at what it registered."""
    from everlong.cli.chat.command import command_registry  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.config import load_settings  # noqa: PLC0415 - as above
    from everlong.plugins.manager import Plugins  # noqa: PLC0415 - as above

    looked = Looked(found.name, found.where, found.manifest.version)
    if found.problem:
        looked.problems.append(found.problem)
    plugins = Plugins(load_settings().settings, warn=looked.problems.append)
    try:
        plugins.load_one(found)
        looked.is_loaded = True
        looked.registered = plugins.registered.of(found.name)
        taken = command_registry().commands.keys() & plugins.registered.commands.keys()
        looked.problems += [f"it brings a command /{name}, which the chat has already" for name in sorted(taken)]
        _look_at_engine(plugins, found, looked)
    except PluginError as error:
        looked.problems.append(str(error))
        looked.traceback = error.traceback
    return looked


def _look_at_engine(plugins: Plugins, found: FoundPlugin, looked: Looked) -> None:
    from everlong.context import ContextCompressor  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.plugins.checkup import engine_problems  # noqa: PLC0415 - as above
    from everlong.plugins.engines import made_engine  # noqa: PLC0415 - as above
    from everlong.plugins.manager import named  # noqa: PLC0415 - as above

    offer = plugins.registered.engine
    if found.origin == "built-in":
        engine: Any = ContextCompressor(_WINDOW)
        looked.registered = ["a context engine"]
    elif offer is not None:
        engine = made_engine(offer.offered, _WINDOW, found.name)
    else:
        return
    looked.engine = named(engine)
    looked.problems += [f"its engine: {text}" for text in engine_problems(engine)]


def missing_plugins(plugins: Plugins, *, engine: bool = True) -> Iterator[str]:
    """What the settings name and nobody can load, in sentences."""
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
        meant = [one for one in Listed.of(plugins) if one.found in plugins.named(name)]
        if meant and not any(one.is_trusted for one in meant):
            yield f"{name}: {meant[0].problem}"


def _lines(one: Looked) -> Iterator[str]:
    about = f"{one.name} {one.version}".rstrip()
    registered = ", ".join(one.registered) or "nothing"
    engine = f" ({one.engine})" if one.engine else ""
    yield _state("ok" if one.is_well else "fail", f"{about} in {one.where}")
    yield f"      registered: {registered}{engine}"
    for text in one.problems:
        yield f"      → {text}"
    for line in one.traceback.rstrip().splitlines():
        yield f"        {line}"


def _state(state: str, text: str) -> str:
    return f"{styled(f'{state:<4}', fg='green' if state == 'ok' else 'red', bold=state != 'ok')}  {text}"


@click.group("plugins", invoke_without_command=True)
@click.pass_context
def plugins_group(context: click.Context) -> None:
    """List plugins and choose the context engine; without a command, a menu on a terminal, else the list."""
    if context.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        choose()
    else:
        context.invoke(list_)


plugins_group.add_command(doctor)


@plugins_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool = False) -> None:
    """List every plugin that is there, with its version, where it comes from, and whether it is in use."""
    plugins = opened()
    listed = Listed.of(plugins)
    if as_json:
        values = {"engine": plugins.settings.context.engine, "plugins": [one.as_dict() for one in listed]}
        click.echo(json.dumps(values, ensure_ascii=False, indent=2))
        return
    click.echo("\n".join(rows(listed)))


@plugins_group.command("info")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(name: str, as_json: bool) -> None:
    """Show what is known of a plugin without loading it."""
    plugins = opened()
    found = meant(plugins, name)
    one = next(each for each in Listed.of(plugins) if each.found == found)
    if as_json:
        click.echo(json.dumps(one.as_dict(), ensure_ascii=False, indent=2))
        return
    for key, value in one.as_dict().items():
        words = ("yes" if value else "no") if isinstance(value, bool) else value
        words = ", ".join(words) if isinstance(words, list) else words
        if words not in {None, ""}:
            click.echo(f"{key + ':':<13}{words}")


@plugins_group.command("use")
@click.argument("name")
@click.option("--project", is_flag=True, help="Write the project's file instead of yours.")
def use(name: str, project: bool) -> None:
    """Make NAME the context engine: write it to config.yaml, whose comments are kept."""
    plugins = opened()
    found = meant(plugins, name)
    for line in use_engine(plugins, found, name, project=project):
        click.echo(line, err=True)


@plugins_group.command("new")
@click.argument("name")
@click.option(
    "--path", type=click.Path(path_type=Path), help="The folder to write.  [default: among your own context engines]"
)
def new(name: str, path: Path | None) -> None:
    """Write a context engine called NAME, with tests that pass, ready to be edited."""
    from everlong.config import load_settings  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.plugins.discovery import ENGINES, FOLDER, RESERVED_NAMES, check_name  # noqa: PLC0415 - as above  # noqa: PLC0415 - as above

    if name in RESERVED_NAMES:
        check_name(name)
    own = config_home() / FOLDER / ENGINES / name
    folder = (path or own).absolute()
    for written in write_plugin(folder, name):
        click.echo(str(written))
    click.echo(f"everlong: {folder} is written; its tests run with: pytest {folder}", err=True)
    if folder == own:
        click.echo(f"everlong: it is used with: everlong plugins use {name}", err=True)
    else:
        paths = json.dumps([*load_settings().settings.plugins.paths, str(folder)], ensure_ascii=False)
        click.echo(f"everlong: it is found with: everlong config set plugins.paths {shlex.quote(paths)}", err=True)


@plugins_group.command("trust")
@click.argument("path", type=click.Path(path_type=Path))
def trust_(path: Path) -> None:
    """Trust the project plugin in the folder PATH as it is now; it runs with your rights, so look at it first."""
    from everlong.plugins.discovery import is_plugin  # noqa: PLC0415 - as above
    from everlong.plugins.trust import trust  # noqa: PLC0415 - as above

    if not is_plugin(path):
        raise PluginError(f"{path} is no plugin: there is no folder with an __init__.py or a plugin.yaml in it")
    found = trust(path)
    click.echo(f"everlong: {path.resolve()} is trusted as it is now ({found[:12]}); a change asks again", err=True)


@plugins_group.command("host-path")
def host_path() -> None:
    """Print the folder that an author puts on PYTHONPATH to test a plugin that was written for another host."""
    click.echo(str(host_state.host_path()))
