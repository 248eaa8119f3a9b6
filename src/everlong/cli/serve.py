"""``everlong serve``: runs the gateway until it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong import config
from everlong.cli.chosen_store import store_option, store_settings
from everlong.cli.inspect_web import is_installed
from everlong.cli.output import say
from everlong.cli.trust import tell_notices
from everlong.errors import ConfigError
from everlong.extras import install_command
from everlong.processes import own_command

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.gateway.writer import StoreWriter
    from everlong.store.database import Database


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="The address to listen on; any but loopback needs a key.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port; 0 for any free one.  [default: 8642]")
@click.option("--upstream", metavar="URL", help="Where requests go.  [default: each API's own address]")
@click.option("--json", "as_json", is_flag=True, help="Log JSON to a terminal too.")
@click.option(
    "--drain",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Store the journal of a gateway that is gone for good, and end.",
)
@click.option("--until-eof", is_flag=True, help="Stop when standard input ends, for programs that start this one.")
@store_option
def serve_command(until_eof: bool, as_json: bool, drain: Path | None, **given: Any) -> None:
    """Serve the gateway: point any client at it, and its conversations never end.

    It speaks the OpenAI and the Anthropic API and passes on the keys of its clients. Ctrl-C, SIGTERM or a hang-up stops
    it when the requests under way are done; a second signal stops it at once.

    Without a key, try it with the stand-in model of `python -m everlong.testing`: --upstream takes its address.
    """
    check_installed()
    overrides = {f"gateway.{name}": value for name, value in given.items() if value is not None}
    settings = gateway_settings(overrides)
    if drain is not None:
        _drain(settings, drain)
        return
    with running_channels(settings, _say):
        code = _serve(settings, overrides, until_eof=until_eof, as_json=as_json)
    if code:
        raise click.exceptions.Exit(code)


def _drain(settings: Settings, folder: Path) -> None:
    """Store what lies in a folder of journals, except those of gateways that run."""
    from everlong.gateway.upkeep import store_left_behind  # noqa: PLC0415 - keeps `--help` quick
    from everlong.store.store import Store, redacted_message  # noqa: PLC0415 - as above

    redact = redacted_message if settings.store.redact else None
    with open_database() as database:
        stored = store_left_behind(lambda tenant: Store(database, tenant, redact=redact), folder)
    left = len([*folder.glob("*.jsonl"), *folder.glob("*.broken")])
    _say(f"stored {stored:,} entries of {folder}; {left} files stay, of running gateways or refused")


def _serve(settings: Settings, overrides: dict[str, Any], *, until_eof: bool, as_json: bool) -> int:
    """Run the gateway until it is stopped; return the exit code."""
    import asyncio  # noqa: PLC0415 - keeps `--help` quick

    from everlong.gateway.routing import Routes  # noqa: PLC0415 - as above
    from everlong.gateway.server import GatewayServer, serve, tune  # noqa: PLC0415 - as above
    from everlong.gateway.telemetry import open_log  # noqa: PLC0415 - as above
    from everlong.plugins.manager import BUILT_IN, BUILT_IN_LOSSLESS, LOSSLESS  # noqa: PLC0415 - as above

    if settings.context.engine not in {BUILT_IN, LOSSLESS, BUILT_IN_LOSSLESS}:
        _say(
            f"context.engine is {settings.context.engine!r}; plugins do not reach the gateway, which uses {BUILT_IN!r}"
        )
    routes = Routes(settings)
    log = open_log(as_json=as_json)
    try:
        with open_database() as database:
            reload = partial(gateway_settings, overrides)
            server = GatewayServer(
                settings,
                routes,
                database,
                log=log,
                reload=reload,
                writer=_storing_process(settings),
                has_inspector=is_installed(),
            )
            tune()
            return asyncio.run(serve(server, _say, until_eof=until_eof))
    finally:
        log.close()


def check_installed() -> None:
    """Raise a `ConfigError` that says how to install the gateway, if it is not installed."""
    if find_spec("aiohttp") is None or find_spec("genai_prices") is None:
        raise ConfigError(f"the gateway is not installed; install it with: {install_command('gateway')}", key="gateway")


def gateway_settings(overrides: dict[str, Any]) -> Settings:
    """Load the settings and print their notices."""
    loaded = config.load_settings(overrides)
    tell_notices(loaded)
    return loaded.settings


def open_database() -> Any:
    """Open the store's database for a ``with`` statement."""
    from everlong.store import open_store  # noqa: PLC0415 - keeps `--help` quick

    database: Database = open_store(store_settings(), waits_for_disk=False).database
    return closing(database)


def _storing_process(settings: Settings) -> StoreWriter | None:
    """Return the process that stores for a gateway; None where threads do, because no socket can be handed on."""
    if sys.platform == "win32":
        return None
    from everlong.gateway.writer import StoringProcess  # noqa: PLC0415 - as above
    from everlong.store.store import location  # noqa: PLC0415 - as above

    where = str(location(store_settings()))
    if not where.startswith("postgres"):
        where = str(Path(where).expanduser().absolute())  # it starts in another folder
    return StoringProcess(where, redacts=settings.store.redact)


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone while requests are still under way
        say(text)


# -- the channels beside the gateway -----------------------------------------------------------------------------------


_FIRST_WAIT = 2.0
_LONGEST_WAIT = 300.0
_END_SECONDS = 15.0
"""Seconds that the process gets to end by itself."""


@contextmanager
def running_channels(settings: Settings, say: Callable[[str], None]) -> Iterator[None]:
    """Run the channels that are enabled for as long as a ``with`` block."""
    if not (settings.channels.telegram.enabled or settings.channels.discord.enabled):
        yield
        return
    process = _ChannelProcess(say)
    process.start()
    try:
        yield
    finally:
        process.end()


class _ChannelProcess:
    """Keeps ``everlong channels run`` running."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._env = dict(os.environ)
        if (url := store_settings().url) is not None:
            self._env["EVERLONG_STORE__URL"] = url  # the store that this command uses
        self._thread = threading.Thread(target=self._keep_running, name="everlong-channels", daemon=True)

    def start(self) -> None:
        """Start the process, and the thread that looks after it."""
        self._thread.start()

    def end(self) -> None:
        """Let the process end: its turns get some seconds."""
        self._is_over.set()
        with self._lock:
            process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _keep_running(self) -> None:
        wait = _FIRST_WAIT
        command = own_command("everlong", "channels", "run", "--until-eof")
        while not self._is_over.is_set():
            with self._lock:
                if self._is_over.is_set():
                    return
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=self._env)  # noqa: S603 - our own
            code = self._process.wait()
            if self._is_over.is_set():
                return
            self._say(f"the channels ended with code {code}; they start again in {wait:g} seconds")
            self._is_over.wait(wait)
            wait = min(_LONGEST_WAIT, 2 * wait)
