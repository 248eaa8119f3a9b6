"""``everlong wrap -- COMMAND``: a program whose calls to models go through the gateway, and nothing else changed.

Only the base-URL variables of the program are set. It has our terminal, gets our signals, and its exit code is ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.serve import check_installed, gateway_settings
from everlong.cli.sessions_common import say, store_option, store_settings

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.gateway.hosting import HostedGateway, HostedRelay
    from everlong.gateway.routing import Routes
    from everlong.store.database import Database

__all__ = ["wrap_command"]

VARIABLES = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
}
"""By these programs find an API; the first is that of the official client."""
_WATCH_SECONDS = 1.0
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_TERMINAL = ("SIGINT", "SIGQUIT")
"""A terminal sends these to the program as well."""


@click.command("wrap", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--port", type=click.IntRange(0, 65_535), help="The gateway's port.  [default: 8642]")
@click.option("--upstream", metavar="URL", help="Where requests go.  [default: each API's own address]")
@store_option(hidden=False)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def wrap_command(command: tuple[str, ...], port: int | None, upstream: str | None) -> None:
    """Run COMMAND with its calls to models going through the gateway.

    A gateway that runs already is used; else one runs for as long as COMMAND does. Where none can be started, COMMAND
    is run all the same and talks to the API itself.
    """
    flags = {"gateway.port": port, "gateway.upstream": upstream}
    with _gateway({key: value for key, value in flags.items() if value is not None}) as address:
        code = _run(command, os.environ if address is None else _environment(address, os.environ))
    if code:
        raise click.exceptions.Exit(code)


def _environment(address: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: the base URLs, and all else as it is."""
    found = dict(env)
    for name in VARIABLES["anthropic"]:
        found[name] = address
    for name in VARIABLES["openai"]:
        found[name] = f"{address}/v1"
    return found


# -- the gateway -------------------------------------------------------------------------------------------------------


@contextmanager
def _gateway(flags: dict[str, Any]) -> Iterator[str | None]:
    """The address of a gateway while it is needed; None where there is none to be had."""
    from everlong.errors import ConfigError, EverlongError  # noqa: PLC0415 - keeps `everlong --help` quick

    try:
        check_installed()
        keeping = _Keeping(gateway_settings(flags), store_settings(), is_own="gateway.upstream" in flags)
        keeping.start()
    except (EverlongError, OSError) as error:
        if isinstance(error, ConfigError) and error.key in flags:
            raise
        say(f"no gateway: {error}")
        say("going on without one: the program talks to the API itself, and nothing is kept")
        yield None
        return
    try:
        yield keeping.address
    finally:
        keeping.close()


class _Keeping:
    """Sees to it that a gateway is there: one that runs already, else one of our own."""

    def __init__(self, settings: Settings, store: Any, *, is_own: bool) -> None:
        from everlong.gateway.routing import Routes  # noqa: PLC0415 - keeps `everlong --help` quick

        self._settings = settings
        self._store = store
        self._given = _given_upstreams(os.environ)
        self._is_own = is_own or bool(self._given)
        self._routes: Routes = Routes(settings, upstreams=self._given)
        self._hosted: HostedGateway | HostedRelay | None = None
        self._over = threading.Event()
        self._watching: threading.Thread | None = None
        self.address = ""

    def start(self) -> None:
        from everlong.gateway.hosting import is_gateway  # noqa: PLC0415 - as above

        own = self._settings.gateway
        usual = f"http://127.0.0.1:{own.port}"
        wrapped = next((url for url in self._given.values() if is_gateway(url)), None)
        if wrapped is not None:
            self.address = wrapped.removesuffix("/").removesuffix("/v1")  # a wrap inside of a wrap
        elif own.port and not self._is_own and is_gateway(usual):
            self.address = usual
            self._watching = threading.Thread(target=self._watch, name="everlong-watch", daemon=True)
            self._watching.start()
        else:
            self._host(own.port)
            assert self._hosted is not None  # noqa: S101 - just made
            self.address = self._hosted.address

    def close(self) -> None:
        self._over.set()
        if self._watching is not None:
            self._watching.join()
        if self._hosted is not None:
            self._hosted.close()

    def _host(self, port: int) -> None:
        """Start a gateway of our own; on another port where something else has this one."""
        from everlong.errors import ConfigError  # noqa: PLC0415 - as above

        try:
            self._hosted = self._made(port).start()
        except ConfigError as error:
            if error.key != "gateway.port" or not port:
                raise
            self._hosted = self._made(0).start()

    def _made(self, port: int) -> HostedGateway:
        from everlong.gateway.hosting import HostedGateway  # noqa: PLC0415 - as above
        from everlong.gateway.logs import Log, open_log  # noqa: PLC0415 - as above

        own = self._settings.gateway
        update = {"host": "127.0.0.1", "port": port, "keys": {}}
        settings = self._settings.model_copy(update={"gateway": own.model_copy(update=update)})
        # The terminal is the program's; without a file there is no log.
        log = Log(None) if own.log_file is None else open_log(own.log_file, own.log_level)
        return HostedGateway(settings, self._routes, self._database, log)

    def _database(self) -> Database:
        from everlong.store import open_store  # noqa: PLC0415 - as above

        return open_store(self._store, waits_for_disk=False).database

    def _watch(self) -> None:
        """Take over where the gateway that was found is gone: the program knows no other address."""
        from everlong.errors import EverlongError  # noqa: PLC0415 - as above
        from everlong.gateway.hosting import HostedRelay, is_gateway  # noqa: PLC0415 - as above

        port = self._settings.gateway.port
        while not self._over.wait(_WATCH_SECONDS):
            if is_gateway(self.address) or is_gateway(self.address):
                continue
            try:
                self._hosted = self._made(port).start()
            except (EverlongError, OSError) as error:
                if is_gateway(self.address):  # somebody else was quicker
                    continue
                try:
                    self._hosted = HostedRelay(self._routes, "127.0.0.1", port).start()
                except (EverlongError, OSError):
                    continue
                say(f"the gateway is gone, and no other could be started ({error}); calls go to the API directly")
            return


def _given_upstreams(env: Mapping[str, str]) -> dict[str, str]:
    """Where the program's calls would go by its variables, by API."""
    from everlong.config.check import problems_in  # noqa: PLC0415 - keeps `everlong --help` quick

    found: dict[str, str] = {}
    for api, names in VARIABLES.items():
        value = next((env[name].strip() for name in names if env.get(name, "").strip()), None)
        if value and not problems_in({"gateway": {"upstream": value}}, lambda key: key, ""):
            found[api] = value
    return found


# -- the program -------------------------------------------------------------------------------------------------------


def _run(command: tuple[str, ...], env: Mapping[str, str]) -> int:
    """Run the program to its end; its exit code, as a shell has it."""
    with _signals() as receivers:
        try:
            process = subprocess.Popen(list(command), env=dict(env))  # noqa: S603 - what the user asked for
        except OSError as error:
            say(f"{command[0]} cannot be run: {error.strerror or error}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        receivers.append(process)
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Hand signals on to the program; handlers and not ignoring, which the program would inherit."""
    receivers: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: Any) -> None:
        if signal.Signals(number).name in _FROM_TERMINAL and _is_in_foreground():
            return
        for process in receivers:
            if process.poll() is None:
                process.send_signal(number)

    numbers = [getattr(signal, name) for name in (*_FORWARDED, *_FROM_TERMINAL) if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield receivers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to our group, so that the program has them already."""
    if sys.platform == "win32":
        return True
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
