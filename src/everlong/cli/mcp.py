"""``everlong mcp``: serves the conversations of a folder to other agents, on standard input and output or on a port."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlong import config
from everlong.cli.chosen_store import chosen_tenant, open_chosen_store, store_option, tenant_option
from everlong.cli.output import say
from everlong.cli.trust import tell_notices
from everlong.config.paths import workspace_folder
from everlong.errors import ConfigError
from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.gateway.auth import Caller
    from everlong.mcp.history import History
    from everlong.mcp.server import Remembering
    from everlong.memory.notes import NotesMemory
    from everlong.store import Store

__all__ = ["GatewayDoor", "mcp_command", "notes_for"]

_PORT = 8643


@click.command("mcp")
@click.option("--all", "everything", is_flag=True, help="The conversations of every folder, not only of this one.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False),
    help="The conversations of this folder.  [default: the folder that it is started in]",
)
@click.option("--http", "over_http", is_flag=True, help="Listen on a port instead of standard input and output.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on with --http; any but loopback needs a key.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port with --http; 0 for any free one.  [default: 8643]"
)
@store_option
@tenant_option
def mcp_command(everything: bool, folder: str | None, over_http: bool, host: str | None, port: int | None) -> None:
    """Serve stored conversations to other agents, as tools of the Model Context Protocol.

    `claude mcp add everlong -- everlong mcp` is all that Claude Code needs; other clients start the same command. They
    can search, recall, list and read what was said in this folder in any client, and keep a note if you say yes.
    """
    if everything and folder is not None:
        raise click.UsageError("use --all or --folder, not both")
    if not over_http and (host is not None or port is not None):
        raise click.UsageError("--host and --port need --http")
    if find_spec("mcp") is None:
        raise ConfigError(f"this needs the package mcp; install it with: {install_command('mcp')}", key="mcp")
    loaded = config.load_settings()
    tell_notices(loaded)
    address = (host or "127.0.0.1", _PORT if port is None else port) if over_http else None
    _serve(loaded.settings, None if everything else Path(folder or Path.cwd()), address)


def _serve(settings: Settings, folder: Path | None, address: tuple[str, int] | None) -> None:
    import anyio  # noqa: PLC0415 - keeps `--help` quick

    from everlong.mcp.server import HistoryServer  # noqa: PLC0415 - as above

    # Other machines need not know its path.
    named = "this folder" if address is not None else f"the folder {json.dumps(str(folder), ensure_ascii=True)}"
    where = "" if folder is None else f" in {named}"
    remembering: Remembering = settings.mcp.remember if settings.memory.enabled else "never"
    with ExitStack() as stack:
        histories = _Histories(settings, folder, stack)
        if address is None:
            if sys.stdin.isatty():
                raise click.UsageError(
                    "a client starts this command and talks to it; on a terminal there is nobody to talk to. "
                    "Add it to a client, such as: claude mcp add everlong -- everlong mcp; or say --http"
                )
            chosen = chosen_tenant()
            server = HistoryServer(lambda _: histories.find(chosen), remembering=remembering, where=where)
            anyio.run(server.run_stdio_async)
            return
        from everlong.mcp.server import bind, serve_http, tenant_of  # noqa: PLC0415 - as above

        door = GatewayDoor(settings, address[0])
        listening = stack.enter_context(closing(bind(*address)))
        server = HistoryServer(histories.find, tenant_of=tenant_of, remembering=remembering, where=where)
        anyio.run(serve_http, server, listening, door, say)


class _Histories:
    """The histories of all tenants; the store is opened when the first of them is asked for."""

    def __init__(self, settings: Settings, folder: Path | None, stack: ExitStack) -> None:
        self._settings = settings
        self._folder = folder
        self._stack = stack
        self._context = click.get_current_context()
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._known: dict[str, History] = {}

    def find(self, tenant: str) -> History:
        """Return the history of a tenant; a caller with a key has no notes on this machine."""
        from everlong.agent.handover import folder_spellings  # noqa: PLC0415 - loads the database
        from everlong.mcp.history import History  # noqa: PLC0415 - as above
        from everlong.store import Store  # noqa: PLC0415 - as above

        with self._lock:
            if tenant not in self._known:
                store = self._open()
                if tenant != store.tenant:
                    store = Store(store.database, tenant, embedder=store.searcher.embedder)
                shell = os.environ.get("PWD")
                folders = None if self._folder is None else folder_spellings(self._folder, shell)
                notes = notes_for(self._settings, self._folder or Path.cwd()) if store is self._store else None
                self._known[tenant] = History(store, folders, notes=notes)
            return self._known[tenant]

    def _open(self) -> Store:
        if self._store is None:
            with self._context.scope(cleanup=False):  # another thread than that of the command
                self._store = self._stack.enter_context(open_chosen_store(new=True))
        return self._store


def notes_for(settings: Settings, folder: Path) -> NotesMemory | None:
    """Return the notes of a folder, as the agent has them there; None if nothing is to be remembered."""
    from everlong.memory.notes import NotesMemory  # noqa: PLC0415 - loads the tokenizer

    if not settings.memory.enabled:
        return None
    project = workspace_folder(folder) if settings.memory.scope == "project" else None
    return NotesMemory(project=project)


class GatewayDoor:
    """The door of a server with the gateway's keys, its limits on them, and its brake on guesses.

    Args:
        settings: the gateway's keys are in them.
        host: the address that the server listens on.

    Raises:
        ConfigError: a key is missing or wrong, or other machines could come in without one.
    """

    def __init__(self, settings: Settings, host: str) -> None:
        from everlong.gateway.auth import Guard, Guesses, KeyLimits, check_bind  # noqa: PLC0415 - keeps `--help` quick

        check_bind(settings.gateway, host)
        self._guard = Guard(settings.gateway)
        self._guesses = Guesses()
        self._limits = KeyLimits(1_000_000)
        self._callers: dict[str, Caller] = {}

    def enter(self, headers: Mapping[str, str], address: str, *, is_call: bool) -> str:
        """Return the tenant of a request, by its key; raise `DoorClosed` for one that is not let in."""
        from everlong.gateway.auth import Refused  # noqa: PLC0415 - as above
        from everlong.mcp.server import DoorClosed  # noqa: PLC0415 - as above

        try:
            self._guard.check_host(headers.get("host"))
            caller = self._guard.admit(headers)
            if not self._guard.is_open:
                self._guesses.check(address, caller, self._guard.tried(headers))
            if caller is None:
                if self._guard.is_open:
                    raise DoorClosed(403, "requests of web pages are not let in")
                raise DoorClosed(401, "this server needs one of the gateway's keys: Authorization: Bearer KEY")
            if is_call:
                self._limits.enter(caller)
        except Refused as refused:
            raise DoorClosed(refused.status, refused.message, refused.retry_after) from refused
        self._callers[caller.tenant] = caller
        return caller.tenant

    def leave(self, tenant: str) -> None:
        """Note that a call is over."""
        self._limits.leave(self._callers[tenant])
