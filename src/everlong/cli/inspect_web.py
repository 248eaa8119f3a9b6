"""``everlong inspect --web``: the inspector over a store, or over the conversations of a file."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong import config
from everlong.cli.chosen_store import chosen_tenant, open_chosen_store, use_store
from everlong.cli.output import counted, say
from everlong.errors import ConfigError
from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["check_installed", "is_installed", "serve_for_gateway", "serve_inspector", "show_web"]

_SQLITE = b"SQLite format 3\x00"
_NICE = 5
"""The steps by which pages stand back behind other processes."""
_NEEDED = ("aiohttp", "jinja2", "markdown_it", "nh3")


def is_installed() -> bool:
    """Return whether all that the inspector needs is installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


def check_installed() -> None:
    """Raise a `ConfigError` that says how to install the inspector, if it is not installed."""
    if not is_installed():
        raise ConfigError(
            f"the inspector is not installed; install it with: {install_command('inspector')}", key="inspect"
        )


def show_web(target: str | None, *, port: int, opens_browser: bool) -> None:
    """Serve the inspector over a store or a file until it is stopped."""
    check_installed()
    with _open_target(target) as store:
        serve_inspector(store, target, port=port, opens_browser=opens_browser)


def serve_for_gateway() -> None:
    """Serve the inspector to the gateway that started this process, until that closes standard input.

    The first line of input is JSON with the store and the gateway's secret, which no argument and no environment shows.
    """
    check_installed()
    told = json.loads(sys.stdin.buffer.readline())
    use_store(told["store"])
    with open_chosen_store() as store:
        serve_inspector(store, port=0, opens_browser=False, proof=told["proof"])


def serve_inspector(
    store: Store,
    name: str | None = None,
    *,
    port: int,
    opens_browser: bool,
    proof: str = "",
    models: Mapping[str, Any] | None = None,
) -> None:
    """Serve the inspector over an open store until it is stopped; ``models`` are settings of models in it."""
    import asyncio  # noqa: PLC0415 - keeps `--help` quick

    from everlong.inspector.handlers import Reader  # noqa: PLC0415 - as above
    from everlong.inspector.security import Watch  # noqa: PLC0415 - as above
    from everlong.inspector.server import serve  # noqa: PLC0415 - as above

    def tell(address: str) -> None:
        if proof:  # the gateway reads where it listens
            click.echo(address)
            return
        say(f"the inspector is at {address} (only this machine reaches it; Ctrl-C stops it)")
        if opens_browser and not webbrowser.open(address):
            say("no browser could be opened; open the address yourself")

    with suppress(AttributeError, OSError):  # a page can wait, a gateway's client cannot
        os.nice(_NICE)
    settings = config.load_settings({"models": models} if models else None).settings
    reader = Reader(store.database, settings, name or store.database.backend.where)
    watch = Watch(store.tenant, proof)
    asyncio.run(serve(reader, watch, port=port, on_ready=tell, until_eof=bool(proof)))


@contextmanager
def _open_target(target: str | None) -> Iterator[Store]:
    """Open the store that is meant: the chosen one, one by its path or url, or a new one with what a file has."""
    if target is None:
        with open_chosen_store(new=True) as store:
            yield store
    elif "://" in target or _is_store(target):
        use_store(target)
        with open_chosen_store() as store:
            yield store
    else:
        with (
            tempfile.TemporaryDirectory(prefix="everlong-inspect-") as folder,
            _imported(target, Path(folder) / "store.db") as store,
        ):
            yield store


def _is_store(target: str) -> bool:
    if target == "-":
        return False
    with Path(target).open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


@contextmanager
def _imported(file: str, path: Path) -> Iterator[Store]:
    """Open a store of its own for the conversations of a file."""
    from everlong.cli.files import read_input  # noqa: PLC0415 - keeps `--help` quick
    from everlong.store import Store  # noqa: PLC0415 - as above
    from everlong.store.imports import Importer, ImportOrigin  # noqa: PLC0415 - as above

    transcript = read_input(file)
    written = 0.0 if file == "-" else Path(file).stat().st_mtime
    with Store.open(path, chosen_tenant()) as store:
        origin = ImportOrigin(Path(file).name, written, kind=transcript.kind)
        added = sum(
            Importer(store).add(conversation, origin).outcome != "empty" for conversation in transcript.conversations
        )
        say(f"showing {counted(added, 'conversation')} of {file}; nothing of it is kept after this")
        yield store


if __name__ == "__main__":
    click.Command("inspector", callback=serve_for_gateway)()  # in a context, in which the store is chosen
