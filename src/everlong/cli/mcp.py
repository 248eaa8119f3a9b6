"""``everlong mcp``: serves the conversations of a folder to other agents, on standard input and output."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong import config
from everlong.cli.chosen_store import open_chosen_store, store_option, tenant_option
from everlong.cli.trust import tell_notices
from everlong.errors import ConfigError
from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.mcp.history import History


@click.command("mcp")
@click.option("--all", "everything", is_flag=True, help="The conversations of every folder, not only of this one.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False),
    help="The conversations of this folder.  [default: the folder that it is started in]",
)
@store_option
@tenant_option
def mcp_command(everything: bool, folder: str | None) -> None:
    """Serve stored conversations to other agents, as tools of the Model Context Protocol.

    `claude mcp add everlong -- everlong mcp` is all that Claude Code needs; other clients start the same command. They
    can search, recall, list and read what was said in this folder in any client.
    """
    if everything and folder is not None:
        raise click.UsageError("use --all or --folder, not both")
    if find_spec("mcp") is None:
        raise ConfigError(f"this needs the package mcp; install it with: {install_command('mcp')}", key="mcp")
    tell_notices(config.load_settings())
    _serve(None if everything else Path(folder or Path.cwd()))


def _serve(folder: Path | None) -> None:
    import anyio  # noqa: PLC0415 - keeps `--help` quick

    from everlong.mcp.server import HistoryServer  # noqa: PLC0415 - as above

    if sys.stdin.isatty():
        raise click.UsageError(
            "a client starts this command and talks to it; on a terminal there is nobody to talk to. "
            "Add it to a client, such as: claude mcp add everlong -- everlong mcp"
        )
    where = "" if folder is None else f" in the folder {json.dumps(str(folder), ensure_ascii=True)}"
    with ExitStack() as stack:
        history = _LateHistory(folder, stack)
        anyio.run(HistoryServer(history.open, where=where).run_stdio_async)


class _LateHistory:
    """The history of a folder; the store is opened when it is asked for, as clients wait for the server to start."""

    def __init__(self, folder: Path | None, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._context = click.get_current_context()
        self._lock = threading.Lock()
        self._history: History | None = None

    def open(self) -> History:
        """Return the history, from any thread."""
        from everlong.mcp.history import History  # noqa: PLC0415 - as above
        from everlong.mcp.quotations import folder_spellings  # noqa: PLC0415 - loads the database

        with self._lock:
            if self._history is None:
                with self._context.scope(cleanup=False):  # another thread than that of the command
                    store = self._stack.enter_context(open_chosen_store(new=True))
                folders = None if self._folder is None else folder_spellings(self._folder, os.environ.get("PWD"))
                self._history = History(store, folders)
            return self._history
