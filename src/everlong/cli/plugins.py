"""``everlong plugins``: what is there, which engine is in use, choosing another, checking and starting one.

Listing imports nothing. Data goes to stdout, what was done to stderr. What a plugin is, `everlong.plugins` knows.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import click

from everlong.cli.plugins_doctor import doctor

__all__ = ["plugins_group"]


@click.group("plugins", invoke_without_command=True)
@click.pass_context
def plugins_group(context: click.Context) -> None:
    """List plugins and choose the context engine; without a command, a menu on a terminal, else the list."""
    if context.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from everlong.cli.plugins_menu import choose  # noqa: PLC0415 - keeps `everlong --help` quick

        choose()
    else:
        context.invoke(list_)


plugins_group.add_command(doctor)


@plugins_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool = False) -> None:
    """List every plugin that is there, with its version, where it comes from, and whether it is in use."""
    from everlong.cli.plugins_common import Listed, opened, rows  # noqa: PLC0415 - keeps `everlong --help` quick

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
    from everlong.cli.plugins_common import Listed, meant, opened  # noqa: PLC0415 - keeps `everlong --help` quick

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
    from everlong.cli.plugins_common import meant, opened, use_engine  # noqa: PLC0415 - keeps `everlong --help` quick

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
    from everlong.config.paths import config_home  # noqa: PLC0415 - as above
    from everlong.plugins.manifest import RESERVED_NAMES, check_name  # noqa: PLC0415 - as above
    from everlong.plugins.places import ENGINES, FOLDER  # noqa: PLC0415 - as above
    from everlong.plugins.template import write_plugin  # noqa: PLC0415 - as above

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
    from everlong.errors import PluginError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.plugins.places import is_plugin  # noqa: PLC0415 - as above
    from everlong.plugins.trust import trust  # noqa: PLC0415 - as above

    if not is_plugin(path):
        raise PluginError(f"{path} is no plugin: there is no folder with an __init__.py or a plugin.yaml in it")
    found = trust(path)
    click.echo(f"everlong: {path.resolve()} is trusted as it is now ({found[:12]}); a change asks again", err=True)


@plugins_group.command("host-path")
def host_path() -> None:
    """Print the folder that an author puts on PYTHONPATH to test a plugin that was written for another host."""
    from everlong.plugins.adapters.names import host_path as folder  # noqa: PLC0415 - keeps `everlong --help` quick

    click.echo(str(folder()))
