"""``everlong wrap -- COMMAND``: a program whose calls to models go through the gateway, and nothing else changed.

Sets the base-URL variables of the program; clients that do not read them get what they do read
(`everlong.cli.clients`). It has our terminal, gets our signals, and its exit code is ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.serve import check_installed, gateway_settings
from everlong.cli.sessions_common import say, store_option, store_settings
from everlong.cli.setup import client_gateway, own_address

if TYPE_CHECKING:
    from everlong.cli.clients import Client
    from everlong.cli.wrap_report import SessionLog, Tally
    from everlong.config import Settings
    from everlong.gateway.hosting import HostedGateway, HostedRelay
    from everlong.gateway.routing import Routes
    from everlong.store.database import Database

__all__ = ["wrap_command"]

_WATCH_SECONDS = 1.0
_NOT_RUN = (126, 127)
"""Exit codes of commands that could not be run."""
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
    is run all the same and talks to the API itself. When it ends, one line says what went through the gateway.
    """
    from everlong.cli.clients import client_of_program  # noqa: PLC0415 - keeps `everlong --help` quick

    flags = {"gateway.port": port, "gateway.upstream": upstream}
    client = client_of_program(command[0])
    with _gateway({key: value for key, value in flags.items() if value is not None}, client) as keeping:
        code = _run(command, os.environ) if keeping is None else _run_through(keeping, client, command)
    if keeping is not None and code not in _NOT_RUN:
        say(keeping.report(client, command[0]))
    if code:
        raise click.exceptions.Exit(code)


def _run_through(keeping: _Keeping, client: Client | None, command: tuple[str, ...]) -> int:
    from everlong.cli.clients.client import Run, around_proxies, base_urls  # noqa: PLC0415 - keeps `everlong --help` quick

    gateway = client_gateway(keeping.settings, keeping.address)
    run = Run(list(command), {**os.environ, **around_proxies(os.environ), **base_urls(gateway)})
    with nullcontext(run) if client is None else client.started(gateway, run, Path.home()) as ready:
        return _run(tuple(ready.command), ready.env)


# -- the gateway -------------------------------------------------------------------------------------------------------


@contextmanager
def _gateway(flags: dict[str, Any], client: Client | None) -> Iterator[_Keeping | None]:
    """A gateway while it is needed; None where there is none to be had."""
    from everlong.errors import ConfigError, EverlongError  # noqa: PLC0415 - keeps `everlong --help` quick

    try:
        check_installed()
        keeping = _Keeping(gateway_settings(flags), store_settings(), client, is_own="gateway.upstream" in flags)
        keeping.start()
    except (EverlongError, OSError) as error:
        if isinstance(error, ConfigError) and error.key in flags:
            raise
        say(f"no gateway: {error}")
        say("going on without one: the program talks to the API itself, and nothing is kept")
        yield None
        return
    try:
        yield keeping
    finally:
        keeping.close()


class _Keeping:
    """Sees to it that a gateway is there: one that runs already, else one of our own."""

    def __init__(self, settings: Settings, store: Any, client: Client | None, *, is_own: bool) -> None:
        from everlong.gateway.routing import Routes  # noqa: PLC0415 - keeps `everlong --help` quick

        self.settings = settings
        self._store = store
        self._given = _given_upstreams(os.environ, client, own_address(settings))
        self._is_own = is_own or bool(self._given)
        self._routes: Routes = Routes(settings, upstreams=self._given)
        self._hosted: HostedGateway | HostedRelay | None = None
        self._log: SessionLog | None = None
        """That of a gateway of our own."""
        self._began = time.time()
        self._before: Tally | None = None
        """The counts of a gateway that was running already, from before the program started."""
        self._tally: Tally | None = None
        """The counts at the end."""
        self._over = threading.Event()
        self._watching: threading.Thread | None = None
        self.address = ""

    def start(self) -> None:
        from everlong.cli.wrap_report import read_metrics  # noqa: PLC0415 - as above
        from everlong.gateway.probe import is_gateway  # noqa: PLC0415 - as above

        own = self.settings.gateway
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
        if self._hosted is None:
            self._before = read_metrics(self.address)

    def close(self) -> None:
        from everlong.cli.wrap_report import read_metrics  # noqa: PLC0415 - as above

        self._over.set()
        if self._watching is not None:
            self._watching.join()
        self._tally = read_metrics(self.address)
        if self._hosted is not None:
            self._hosted.close()

    def report(self, client: Client | None, program: str) -> str:
        """Return what went through the gateway, in one line; to be asked when it is closed."""
        from everlong.cli.wrap_report import tell, why_nothing_came  # noqa: PLC0415 - as above

        tally, is_shared = self._tally, self._hosted is None
        if tally is None:
            return "the gateway is gone; what went through it is not known"
        if is_shared and self._before is not None:
            tally = tally.minus(self._before)
        if not tally.requests:
            return why_nothing_came(client, program)
        sessions = [] if self._log is None else self._log.sessions
        amounts = self._amounts(sessions) if tally.compactions and sessions else None
        return tell(tally, amounts, sessions[0] if sessions else None, is_shared=is_shared)

    def _amounts(self, sessions: list[str]) -> tuple[Decimal, Decimal] | None:
        from everlong.cli.wrap_report import cost_without  # noqa: PLC0415 - as above
        from everlong.errors import EverlongError  # noqa: PLC0415 - as above
        from everlong.store import open_store  # noqa: PLC0415 - as above

        try:
            with open_store(self._store) as store:
                return cost_without(store, self.settings, sessions, self._began)
        except (EverlongError, OSError):  # the program is done; a figure less is no error
            return None

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
        from everlong.cli.wrap_report import SessionLog  # noqa: PLC0415 - as above
        from everlong.gateway.hosting import HostedGateway  # noqa: PLC0415 - as above
        from everlong.gateway.logs import Log, open_log  # noqa: PLC0415 - as above

        own = self.settings.gateway
        update = {"host": "127.0.0.1", "port": port, "keys": {}}
        settings = self.settings.model_copy(update={"gateway": own.model_copy(update=update)})
        # The terminal is the program's; without a file there is no log.
        log = Log(None) if own.log_file is None else open_log(own.log_file, own.log_level)
        self._log = SessionLog(log)
        return HostedGateway(settings, self._routes, self._database, self._log)

    def _database(self) -> Database:
        from everlong.store import open_store  # noqa: PLC0415 - as above

        return open_store(self._store, waits_for_disk=False).database

    def _watch(self) -> None:
        """Take over where the gateway that was found is gone: the program knows no other address."""
        from everlong.errors import EverlongError  # noqa: PLC0415 - as above
        from everlong.gateway.hosting import HostedRelay  # noqa: PLC0415 - as above
        from everlong.gateway.probe import is_gateway  # noqa: PLC0415 - as above

        port = self.settings.gateway.port
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


def _given_upstreams(env: Mapping[str, str], client: Client | None, own: str) -> dict[str, str]:
    """Where the program's calls would go by its variables or its configuration, by API; never to our own address."""
    from everlong.cli.clients.client import VARIABLES  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.config.check import problems_in  # noqa: PLC0415 - as above
    from everlong.gateway.probe import is_gateway  # noqa: PLC0415 - as above

    found = {} if client is None else client.upstreams(env, Path.home())
    for api, names in VARIABLES.items():
        value = next((env[name].strip() for name in names if env.get(name, "").strip()), None)
        if value and api not in found:
            found[api] = value

    def is_upstream(url: str) -> bool:
        if problems_in({"gateway": {"upstream": url}}, lambda key: key, ""):
            return False
        return not url.startswith(own) or is_gateway(url)

    return {api: url for api, url in found.items() if is_upstream(url)}


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
