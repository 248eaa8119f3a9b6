"""``everlong trust``, and the question that is asked once in a folder with settings or instructions of its own.

`everlong.config.trust` knows what a folder wants and whether it is trusted; this module prints and asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong.cli.main import HintingGroup
from everlong.cli.output import json_option, print_values, say
from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config import LoadedSettings
    from everlong.config.trust import FolderWishes

trust_option = click.option("--trust", is_flag=True, help="Trust this folder: its settings and instructions count.")

_PATH = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group("trust", cls=HintingGroup)
def trust_group() -> None:
    """Choose the folders you trust: only their settings and instructions count."""


@trust_group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the folders that you trust, and those that you do not."""
    from everlong.config.trust import folder_records, folder_wishes, is_decided  # noqa: PLC0415 - keeps `--help` quick

    rows = [
        {
            "folder": str(folder),
            "trusted": record.is_trusted,
            "changed": not is_decided(folder_wishes(folder)),
        }
        for folder, record in sorted(folder_records().items())
    ]
    if as_json:
        print_values(rows)
        return
    if not rows:
        say("no folder is in the list yet; everlong trust add trusts the one you are in")
    for row in rows:
        changed = "  (its settings have changed since: they ask again)" if row["changed"] else ""
        click.echo(f"{'trusted' if row['trusted'] else 'not trusted':<13}{row['folder']}{changed}")


@trust_group.command("add")
@click.argument("path", type=_PATH, default=".")
def add(path: Path) -> None:
    """Trust the folder at PATH as it is now, and show what it wants. Changed settings ask again."""
    from everlong.config.trust import folder_wishes, folders_at, remember_folder  # noqa: PLC0415 - keeps `--help` quick

    for folder in folders_at(path):
        wishes = folder_wishes(folder)
        for line in _describe_wishes(wishes):
            click.echo(line, err=True)
        remember_folder(wishes, is_trusted=True)
        say(f"{folder} is trusted")


@trust_group.command("remove")
@click.argument("path", type=click.Path(path_type=Path), default=".")
def remove(path: Path) -> None:
    """Stop trusting the folder at PATH; the next chat there asks again."""
    from everlong.config.trust import folders_at, forget_folder  # noqa: PLC0415 - keeps `--help` quick

    folders = [path.absolute(), *(folders_at(path) if path.is_dir() else [])]
    if not sum(forget_folder(folder) for folder in folders):
        raise ConfigError(f"{path.absolute()} is not in the list; everlong trust list shows the folders that are")
    say(f"{folders[-1]} is no longer trusted")


# -- in commands that work in a folder --------------------------------------------------------------------------------


def settle_trust(*, trusts: bool, asks: bool) -> None:
    """Ask once whether to trust a folder that has settings or instructions of its own.

    Args:
        trusts: True if the user says yes on the command line.
        asks: True if somebody is there to answer. Otherwise a folder that is not trusted stays so.
    """
    from everlong.config.trust import folder_wishes, folders_at, is_decided, remember_folder  # noqa: PLC0415 - keeps `--help` quick

    for folder in folders_at():
        wishes = folder_wishes(folder)
        if not wishes:
            continue
        if trusts:
            remember_folder(wishes, is_trusted=True)
        elif asks and not is_decided(wishes):
            answer = _ask_user(wishes)
            if answer is not None:
                remember_folder(wishes, is_trusted=answer)


def tell_notices(loaded: LoadedSettings) -> None:
    """Print which of the folder's settings were left out, and why."""
    for notice in loaded.notices:
        say(_escape(notice))


def _ask_user(wishes: FolderWishes) -> bool | None:
    """Ask whether the user trusts a folder; return None if there is no answer."""
    from everlong.agent.approval import discard_typed  # noqa: PLC0415 - keeps `--help` quick

    for line in _describe_wishes(wishes):
        click.echo(line, err=True)
    discard_typed(sys.stdin)
    while True:
        click.echo("Do you trust this folder? [y]es, [n]o (asked once): ", nl=False, err=True)
        answer = sys.stdin.readline()
        if not answer:
            click.echo(err=True)
            return None
        said = answer.strip().lower()
        if said in {"y", "yes"}:
            return True
        if said in {"n", "no"}:
            say("what it brings along is left out; change your mind with: everlong trust add")
            return False


def _describe_wishes(wishes: FolderWishes) -> Iterator[str]:
    """Yield what a folder wants, line by line."""
    yield f"{_escape(str(wishes.folder))} {'brings along:' if wishes else 'brings nothing along that needs trust.'}"
    if wishes.settings:
        yield "  settings (.everlong/config.yaml):"
        yield from (f"    {key}: {value}" for key, value in wishes.settings)
    if wishes.problem:
        yield f"  settings that cannot be read: {wishes.problem}"
    if wishes.ignored:
        yield f"  settings that no folder may set, and that are left out: {', '.join(wishes.ignored)}"
    if wishes.instructions:
        yield f"  instructions for the model: {', '.join(wishes.instructions)}"


def _escape(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
