"""``everlong trust``, and the question that is asked once in a folder that brings something along.

What a folder may want and whether it is trusted, `everlong.config.trust` knows; this module prints and asks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config import LoadedSettings
    from everlong.config.trust import FolderWishes

__all__ = ["settle_trust", "tell_notices", "trust_group", "trust_option"]

trust_option = click.option("--trust", is_flag=True, help="Trust this folder: its settings and instructions count.")

_PATH = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group("trust")
def trust_group() -> None:
    """Say whose settings and instructions count: only folders that you trust may bring any along."""


@trust_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the folders that you have trusted, and those that you said no to."""
    from everlong.config.trust import folder_records, folder_wishes, is_decided  # noqa: PLC0415 - quick --help

    rows = [
        {
            "folder": str(folder),
            "trusted": record.is_trusted,
            "changed": not is_decided(folder_wishes(folder)),
        }
        for folder, record in sorted(folder_records().items())
    ]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        changed = "  (its settings have changed since: they ask again)" if row["changed"] else ""
        click.echo(f"{'trusted' if row['trusted'] else 'not trusted':<13}{row['folder']}{changed}")


@trust_group.command("add")
@click.argument("path", type=_PATH, default=".")
def add(path: Path) -> None:
    """Trust the folder at PATH as it is now; what it wants is shown. Changed settings ask again."""
    from everlong.config.trust import folder_wishes, folders_at, remember_folder  # noqa: PLC0415 - quick --help

    for folder in folders_at(path):
        wishes = folder_wishes(folder)
        for line in _wanted(wishes):
            click.echo(line, err=True)
        remember_folder(wishes, is_trusted=True)
        click.echo(f"everlong: {folder} is trusted", err=True)


@trust_group.command("remove")
@click.argument("path", type=click.Path(path_type=Path), default=".")
def remove(path: Path) -> None:
    """Trust the folder at PATH no longer; the next chat there asks again."""
    from everlong.config.trust import folders_at, forget_folder  # noqa: PLC0415 - quick --help

    folders = [path.absolute(), *(folders_at(path) if path.is_dir() else [])]
    if not sum(forget_folder(folder) for folder in folders):
        raise ConfigError(f"nothing was said about {path.absolute()}; everlong trust list shows what was")
    click.echo(f"everlong: {folders[-1]} is not trusted any more", err=True)


# -- in commands that work in a folder --------------------------------------------------------------------------------


def settle_trust(root: Path | None, *, trusts: bool, asks: bool) -> None:
    """Ask about a folder that brings something along, once; with ``trusts``, take the answer to be yes.

    Args:
        root: the folder that is worked in, where it is not the current one.
        trusts: whether the user has said so on the command line.
        asks: whether somebody is there to answer; without them a folder that is not trusted stays so.
    """
    from everlong.config.trust import folder_wishes, folders_at, is_decided, remember_folder  # noqa: PLC0415 - as above

    for folder in dict.fromkeys([*folders_at(), *(folders_at(root) if root is not None else ())]):
        wishes = folder_wishes(folder)
        if not wishes:
            continue
        if trusts:
            remember_folder(wishes, is_trusted=True)
        elif asks and not is_decided(wishes):
            answer = _ask(wishes)
            if answer is not None:
                remember_folder(wishes, is_trusted=answer)


def tell_notices(loaded: LoadedSettings) -> None:
    """Say what of the folder's settings was left out, and why."""
    for notice in loaded.notices:
        click.echo(f"everlong: {_safe(notice)}", err=True)


def _ask(wishes: FolderWishes) -> bool | None:
    """Whether the user trusts a folder; None where they leave that open."""
    for line in _wanted(wishes):
        click.echo(line, err=True)
    _forget_typed()
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
            click.echo(
                "everlong: what it brings along is left out; change your mind with: everlong trust add", err=True
            )
            return False


def _wanted(wishes: FolderWishes) -> Iterator[str]:
    """What a folder wants, line by line."""
    yield f"{_safe(str(wishes.folder))} {'brings along:' if wishes else 'brings nothing along that needs trust.'}"
    if wishes.settings:
        yield "  settings (.everlong/config.yaml):"
        yield from (f"    {key}: {value}" for key, value in wishes.settings)
    if wishes.problem:
        yield f"  settings that cannot be read: {wishes.problem}"
    if wishes.ignored:
        yield f"  settings that no folder may set, and that are left out: {', '.join(wishes.ignored)}"
    if wishes.instructions:
        yield f"  instructions for the model: {', '.join(wishes.instructions)}"
    if wishes.plugins:
        yield f"  plugins, each to be trusted on its own (everlong plugins trust): {', '.join(wishes.plugins)}"


def _forget_typed() -> None:
    """Throw away what was typed before the question was there: it is no answer to it."""
    try:
        import termios  # noqa: PLC0415 - there is none on Windows

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (ImportError, OSError, ValueError):
        return


def _safe(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
