"""``everlong wrap -- COMMAND``: runs a program whose calls to models go through the gateway.

Sets the base-URL variables for the program. Clients that do not read them get their own settings instead
(`everlong.cli.clients`). The program has our terminal and gets our signals, and its exit code becomes ours.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from everlong.agent.accounting import account
from everlong.agent.commands.books import money
from everlong.cli.chosen_store import store_option, store_settings
from everlong.cli.clients.client import VARIABLES, ClientRun, base_urls, no_proxy_variables
from everlong.cli.clients.known import client_of_program
from everlong.cli.output import counted, say
from everlong.cli.serve import check_installed, gateway_settings
from everlong.cli.setup import client_gateway, own_address
from everlong.config.listing import problems_in
from everlong.config.settings import StoreSettings
from everlong.errors import ConfigError, EverlongError
from everlong.gateway.auth import is_gateway
from everlong.gateway.formats import path_of_folder
from everlong.gateway.telemetry import GatewayLog
from everlong.store import open_store

if TYPE_CHECKING:
    from everlong.cli.clients.client import Client
    from everlong.config import Settings
    from everlong.gateway.server import HostedGateway
    from everlong.store import Store

_METRICS_SECONDS = 2.0
_NOT_RUN_CODES = (126, 127)
"""Exit codes of programs that could not be started."""
_RUNNERS = ("python", "node", "npx", "uv", "bash", "sh")
"""Programs that run another one, whose name says nothing about a client."""
_FORWARDED_SIGNALS = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_TERMINAL_SIGNALS = ("SIGINT", "SIGQUIT")
"""Signals that a terminal sends to the program as well."""
_CONVERSATION_ROUTES = frozenset({"messages", "chat", "responses"})
_METRIC = re.compile(r"^everlong_(\w+?)_total(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@click.command("wrap", context_settings={"allow_interspersed_args": False})
@click.option("--port", type=click.IntRange(0, 65_535), help="The gateway's port.  [default: 8642]")
@click.option("--upstream", metavar="URL", help="Where requests go.  [default: each API's own address]")
@store_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def wrap_command(command: tuple[str, ...], port: int | None, upstream: str | None) -> None:
    """Run COMMAND with its calls to models going through the gateway.

    A gateway runs for as long as COMMAND does. If none can be started, COMMAND runs all the same and calls the API
    directly. When it ends, one line says what went through the gateway.
    """
    flags = {"gateway.port": port, "gateway.upstream": upstream}
    client = client_of_program(command[0])
    with _open_gateway({key: value for key, value in flags.items() if value is not None}, client) as gateway:
        code = _run_program(command, os.environ) if gateway is None else _run_through_gateway(gateway, client, command)
    if gateway is not None and not gateway.is_outer and code not in _NOT_RUN_CODES:
        say(gateway.report(client, command[0]))
    if code:
        raise click.exceptions.Exit(code)


def _run_through_gateway(wrapped: _WrappedGateway, client: Client | None, command: tuple[str, ...]) -> int:
    gateway = client_gateway(wrapped.settings, wrapped.address)
    program = Path(command[0]).stem.lower() if client is None else client.name
    is_own = not program.startswith(_RUNNERS)
    gateway = replace(gateway, address=wrapped.address + path_of_folder(Path.cwd(), program if is_own else ""))
    run = ClientRun(list(command), {**os.environ, **no_proxy_variables(os.environ), **base_urls(gateway)})
    with nullcontext(run) if client is None else client.prepare_run(gateway, run, Path.home()) as ready:
        return _run_program(tuple(ready.command), ready.env)


# -- the gateway -------------------------------------------------------------------------------------------------------


@contextmanager
def _open_gateway(flags: dict[str, Any], client: Client | None) -> Iterator[_WrappedGateway | None]:
    """Provide a gateway while the block runs; yield None if none can be started."""
    try:
        check_installed()
        gateway = _WrappedGateway(gateway_settings(flags), store_settings(), client)
        gateway.start()
    except (EverlongError, OSError) as error:
        if isinstance(error, ConfigError) and error.key in flags:
            raise
        say(f"no gateway: {error}")
        say("going on without one: the program talks to the API itself, and nothing is stored")
        yield None
        return
    try:
        yield gateway
    finally:
        gateway.close()


class _WrappedGateway:
    """The gateway of a wrapped program; a wrap inside of a wrap uses the outer one's."""

    def __init__(self, settings: Settings, store: StoreSettings, client: Client | None) -> None:
        from everlong.gateway.routing import Routes  # noqa: PLC0415 - its packages may not be installed

        self.settings = settings
        self._store = store
        upstreams = _find_upstreams(os.environ, client, own_address(settings))
        outer = next((url for url in upstreams.values() if is_gateway(url)), None)
        self.is_outer = outer is not None
        self.address = "" if outer is None else "http://" + urlsplit(outer).netloc
        self._routes = Routes(settings, upstreams=upstreams)
        self._hosted: HostedGateway | None = None
        self._began = time.time()
        self._tally: WrapTally | None = None
        """The counts at the end."""

    def start(self) -> None:
        """Start the gateway, on another port if its own is taken."""
        if self.is_outer:
            return
        port = self.settings.gateway.port
        try:
            self._hosted = self._make_gateway(port).start()
        except ConfigError as error:
            if error.key != "gateway.port" or not port:
                raise
            self._hosted = self._make_gateway(0).start()
        self.address = self._hosted.address

    def _make_gateway(self, port: int) -> HostedGateway:
        from everlong.gateway.server import HostedGateway  # noqa: PLC0415 - its packages may not be installed

        own = self.settings.gateway
        update = {"host": "127.0.0.1", "port": port, "keys": {}}
        settings = self.settings.model_copy(update={"gateway": own.model_copy(update=update)})
        # The terminal is the program's, so there is no log.
        return HostedGateway(
            settings,
            self._routes,
            lambda: open_store(self._store, waits_for_disk=False).database,
            GatewayLog(None),
        )

    def close(self) -> None:
        """Read what went through the gateway, and end it."""
        if self._hosted is not None:
            self._tally = _read_metrics(self.address)
            self._hosted.close()

    def report(self, client: Client | None, program: str) -> str:
        """Return what went through the gateway, in one line; call it after `close`."""
        if self._tally is None:
            return "the gateway has stopped; what went through it is unknown"
        if not self._tally["requests"]:
            return _explain_silence(client, program)
        return report_line(self._tally, *self._look_back())

    def _look_back(self) -> tuple[tuple[Decimal, Decimal] | None, str | None]:
        """Return what the program's conversations cost, and which is the person's own, not a sub-agent's."""
        try:
            with open_store(self._store) as store:
                asked = Counter(turn.session for turn in store.turns.since(self._began) if turn.session is not None)
                found = {session: store.conversations.find(session) for session, _ in asked.most_common()}
                here = [session for session, one in found.items() if one.folder in (None, str(Path.cwd()))]
                if not here:
                    return None, None
                chosen = min(here, key=lambda one: found[one].kind != "main")
                return _cost_without_compactions(store, self.settings, here, self._began), chosen
        except (EverlongError, OSError):  # the program is done; a missing figure is no error
            return None, None


def _find_upstreams(env: Mapping[str, str], client: Client | None, own: str) -> dict[str, str]:
    """Return where the program would send its calls without us, by API; never our own address."""
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


# -- the report --------------------------------------------------------------------------------------------------------


WrapTally = Counter[str]
"""Figures on the requests that went through a gateway, by name."""


def _read_metrics(address: str) -> WrapTally | None:
    """Return the counts of a gateway; None if it does not answer."""
    parts = urlsplit(address)
    try:
        with closing(
            http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_METRICS_SECONDS)
        ) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read(1_000_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    tally = WrapTally()
    for name, inside, number in _METRIC.findall(text):
        labels, value = dict(_LABEL.findall(inside)), Decimal(number)
        if name == "requests" and labels.get("route") in _CONVERSATION_ROUTES:
            tally["requests"] += int(value)
            status = int(labels.get("status", "0"))
            tally["failed"] += int(value) * (status >= 400 and status != 499)  # 499: the client hung up on purpose
        elif name == "compactions" and labels.get("outcome") == "compacted":
            tally["compactions"] += int(value)
        elif name == "dollars":
            tally["microdollars"] += int(value * 1_000_000)
        elif name == "tokens" and labels.get("kind") != "output":
            tally["prompt_tokens"] += int(value)
            tally["cache_read"] += int(value) if labels.get("kind") == "cache_read" else 0
    return tally


def _cost_without_compactions(
    store: Store, settings: Settings, sessions: list[str], since: float
) -> tuple[Decimal, Decimal] | None:
    """Return the cost of conversations, and the estimated cost without compactions.

    Returns None if a call has no known price.
    """
    paid = without = Decimal(0)
    roots = {store.conversations.find(session).parts[0] for session in sessions}
    for name, one in account(store, settings, by="session", since=since).groups.items():
        if name not in roots:
            continue
        if one.unpriced_calls:
            return None
        paid += one.cost
        without += one.cost + one.unsent.cost - one.rewritten.cost - one.kinds["summary"].cost
    return paid, without


def report_line(tally: WrapTally, amounts: tuple[Decimal, Decimal] | None = None, session: str | None = None) -> str:
    """Return the line that sums up what a program sent through the gateway."""
    parts = [counted(tally["requests"], "request")]
    if tally["failed"]:
        parts.append(f"{tally['failed']:,} failed")
    parts.append(counted(tally["compactions"], "compaction"))
    if tally["prompt_tokens"]:
        parts.append(f"{100 * tally['cache_read'] // tally['prompt_tokens']} % from cache")
    dollars = Decimal(tally["microdollars"]) / 1_000_000
    paid, without = amounts or (dollars, dollars)
    if paid != without and tally["compactions"]:
        parts.append(f"{money(paid)} instead of an estimated {money(without)}")
    elif paid:
        parts.append(money(paid))
    line = ", ".join(parts)
    return line if session is None else f"{line}; everlong sessions show {session}"


def _explain_silence(client: Client | None, program: str) -> str:
    """Return why no request may have come through the gateway, and what to do."""
    if client is None:
        return (
            f"no request of {program} came through the gateway: it asked no model, or reads neither "
            "OPENAI_BASE_URL nor ANTHROPIC_BASE_URL; look for a base URL in its own settings (see docs/clients.md)"
        )
    return (
        f"no request of {client.title} came through the gateway: it asked no model, or uses another provider than "
        f"OpenAI and Anthropic; `everlong setup {client.name}` shows what its own file must say"
    )


# -- the program -------------------------------------------------------------------------------------------------------


def _run_program(command: tuple[str, ...], env: Mapping[str, str]) -> int:
    """Run the program to its end, and return its exit code as a shell would."""
    with _forward_signals() as receivers:
        try:
            process = subprocess.Popen(list(command), env=dict(env))  # noqa: S603 - what the user asked for
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            why = "it is not installed, or not on your PATH" if missing else error.strerror or error
            say(f"{command[0]} cannot be run: {why}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        receivers.append(process)
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _forward_signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward signals to the program; yield the list that it is to be added to.

    Signals get handlers rather than being ignored, because the program would inherit that.
    """
    receivers: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: Any) -> None:
        if signal.Signals(number).name in _TERMINAL_SIGNALS and _is_in_foreground():
            return
        for process in receivers:
            if process.poll() is None:
                process.send_signal(number)

    numbers = [getattr(signal, name) for name in (*_FORWARDED_SIGNALS, *_TERMINAL_SIGNALS) if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield receivers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Return whether the terminal sends its signals to our process group, and so to the program."""
    if sys.platform == "win32":
        return True
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
