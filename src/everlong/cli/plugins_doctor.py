"""``everlong plugins doctor``: loads plugins and says what they registered, or why they cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.screen import styled

if TYPE_CHECKING:
    from everlong.plugins.manager import Plugins
    from everlong.plugins.places import Found

__all__ = ["doctor", "looked_at", "missing_plugins"]

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
    from everlong.cli.plugins_common import Listed, meant, opened  # noqa: PLC0415 - keeps `everlong --help` quick

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


def looked_at(found: Found) -> Looked:
    """Load a plugin by itself, and look at what it registered."""
    from everlong.cli.chat.command import command_registry  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.config import load_settings  # noqa: PLC0415 - as above
    from everlong.errors import PluginError  # noqa: PLC0415 - as above
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


def _look_at_engine(plugins: Plugins, found: Found, looked: Looked) -> None:
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
    from everlong.cli.plugins_common import Listed  # noqa: PLC0415 - keeps `everlong --help` quick

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
