"""The gateway as a server: it listens, reloads its keys, drains and stops; as a program, or inside another one."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from aiohttp import web
from yarl import URL

from everlong.config.paths import user_config_path
from everlong.errors import ConfigError
from everlong.gateway.app import SERVER_OPTIONS, Front, make_app, refusal
from everlong.gateway.auth import MOST_BODY_BYTES, Guard, KeyLimits, Refused, check_bind, is_loopback
from everlong.gateway.formats import OPENAI
from everlong.gateway.gateway import Gateway
from everlong.gateway.inspector_link import INSPECTOR_PATH, InspectorLink
from everlong.gateway.telemetry import GatewayLog, captured, server_logger
from everlong.gateway.upstream import failure, read_in_steps

if TYPE_CHECKING:
    from pathlib import Path

    from everlong.config import Settings
    from everlong.gateway.routing import Routes
    from everlong.gateway.writer import StoreWriter
    from everlong.store.database import Database

__all__ = ["GatewayServer", "HostedGateway", "bound_socket", "serve", "tune"]

DRAIN_SECONDS = 30
"""Seconds that requests under way may go on when the gateway is told to stop."""
LEAVE_SECONDS = 5.0
"""Seconds for which a gateway behind a balancer still takes requests, while it says that it is not ready."""
_IDLE_SECONDS = 75.0
"""Seconds that a connection may stay without a whole request head."""
_MOST_HEAD = 300_000
"""Bytes of a request's head; each of its headers may have `MAX_HEADER_BYTES`."""
MOST_CONNECTIONS = 2_000
"""Connections of clients; of more, the oldest that waits for a request is closed, whoever opened it."""
_KEYS_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
"""Seconds that an upstream may take for a connection before a person is told."""
_LAST_SECONDS = 2.0
"""Seconds that a cut-off request gets to come to its end."""


class GatewayServer:
    """A gateway that listens, over an open database, which it leaves open.

    It reads the settings anew with ``reload``, so that keys that were taken out of the user's file let nobody in any
    more. Without a ``writer``, threads of this process store.

    Raises:
        ConfigError: it may not listen there, or its keys are not right.
    """

    def __init__(
        self,
        settings: Settings,
        routes: Routes,
        database: Database,
        *,
        log: GatewayLog | None = None,
        reload: Callable[[], Settings] | None = None,
        writer: StoreWriter | None = None,
        has_inspector: bool = False,
    ) -> None:
        own = settings.gateway
        check_bind(own, own.host)
        _check_no_circle(routes, own.host, own.port)
        self._settings = settings
        self._log = log or GatewayLog(None)
        self.gateway = Gateway(settings, database, routes, writer=writer)
        self.front = Front(Guard(own), KeyLimits(MOST_BODY_BYTES), self.gateway.metrics, self._log)
        self._inspector: InspectorLink | None = None
        self.has_inspector = has_inspector
        if has_inspector:
            self._inspector = InspectorLink(database.backend.address, self.front.guard, self.gateway.look_up_views)
        self._runner: _Runner | None = None
        self._reload = reload
        self._reading_keys: asyncio.Task[None] | None = None
        self._capturing = ExitStack()
        self.address = ""
        """The address where it listens, once it does."""

    async def start(self) -> None:
        """Bind, and take requests from now on."""
        own = self._settings.gateway
        bound = bound_socket(own.host, own.port)
        try:
            self._capturing.enter_context(captured(self._log))
            self._runner = _Runner(
                make_app(self.gateway, self.front, inspector=self._inspector),
                **SERVER_OPTIONS,
                logger=server_logger(self._log),
                access_log=None,
                keepalive_timeout=_IDLE_SECONDS,
                shutdown_timeout=_LAST_SECONDS,
            )
            await self._runner.setup()
            await web.SockSite(self._runner, bound, backlog=1024).start()
        except BaseException:
            bound.close()
            self._capturing.close()
            raise
        host = f"[{own.host}]" if ":" in own.host else own.host
        self.address = f"http://{host}:{bound.getsockname()[1]}"
        if self._reload is not None and own.keys:
            self._reading_keys = asyncio.create_task(self._keep_reading_keys(self._reload))

    async def stop_listening(self) -> None:
        """Take no more connections."""
        for site in list(self._runner.sites) if self._runner is not None else ():
            await site.stop()

    async def stop(self, seconds: float) -> int:
        """Take no more requests, finish those under way, close; return how many had to be cut off."""
        if self._runner is None:
            return 0
        if self._reading_keys is not None:
            self._reading_keys.cancel()
        await self.stop_listening()
        if self._inspector is not None:
            await self._inspector.close()
        left = await self.front.drain(seconds)
        await self._runner.cleanup()
        self._runner = None
        self._capturing.close()
        return left

    async def _keep_reading_keys(self, reload: Callable[[], Settings]) -> None:
        seen = _signature(user_config_path())
        while True:
            await asyncio.sleep(_KEYS_SECONDS)
            now = await asyncio.to_thread(_signature, user_config_path())
            if now == seen:
                continue
            seen = now
            try:
                changed = (await asyncio.to_thread(reload)).gateway
                self.front.guard.change(changed)
            except (ConfigError, OSError) as error:
                self._log.say("error", "keys not read", problem=getattr(error, "key", "") or type(error).__name__)
            else:
                self._log.say("info", "keys read", keys=len(changed.keys))


async def serve(server: GatewayServer, told: Callable[[str], None], *, until_eof: bool = False) -> int:
    """Serve until a signal comes; return the exit code. ``told`` gets the messages for a person."""
    first, second = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (second if first.is_set() else first).set()

    # A terminal that is closed says so more than once, so a hang-up never counts as the second signal.
    with _signals(stop, hung_up=first.set):
        await server.start()
        going = f"going to {server.gateway.routes.shown}"
        pages = f"; the inspector is at {server.address}{INSPECTOR_PATH}/" if server.has_inspector else ""
        told(f"listening on {server.address}, {going}; summaries by {server.gateway.summaries.told}{pages}")
        telling = asyncio.create_task(_tell_unreachable(server.gateway, told))
        if until_eof:
            _watch_input(stop)
        await first.wait()
        telling.cancel()
        if server.front.leave():
            told(f"stopping; a balancer gets {LEAVE_SECONDS:g} seconds to send requests elsewhere")
            with suppress(TimeoutError):
                await asyncio.wait_for(second.wait(), LEAVE_SECONDS)
        await server.stop_listening()
        under_way = server.front.metrics.in_flight
        if under_way:
            told(f"stopping; {_requests(under_way)} under way may take up to {DRAIN_SECONDS} more seconds")
        draining = asyncio.create_task(server.stop(DRAIN_SECONDS))
        at_once = asyncio.create_task(second.wait())
        await asyncio.wait([draining, at_once], return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            draining.cancel()
            return 130
        at_once.cancel()
        if left := draining.result():
            told(f"{_requests(left)} cut off")
            return 1
    return 0


async def _tell_unreachable(gateway: Gateway, told: Callable[[str], None]) -> None:
    """Tell a person which upstreams, or proxies on the way to them, take no connections now."""
    for route in {route.shown: route for route in gateway.routes.all}.values():
        url = URL(route.base_url)
        first = gateway.relay.network.proxy_for(url) or url
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(first.host, first.port)
            writer.close()
        except OSError as error:
            told(f"{failure(route.shown, error)}; requests for it will be answered with 502 until it is there")


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return the signature by which a change of a file is noticed; None if there is no file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


def _requests(number: int) -> str:
    return f"{number:,} request{'' if number == 1 else 's'}"


@contextmanager
def _signals(stop: Callable[[], None], hung_up: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    names: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: stop, signal.SIGTERM: stop}
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        names[signal.SIGHUP] = hung_up
    before = {name: signal.getsignal(name) for name in names}
    for name, heard in names.items():
        try:
            loop.add_signal_handler(name, heard)
        except NotImplementedError:  # Windows
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(stop))
    try:
        yield
    finally:
        for name in names:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(name)
            signal.signal(name, before[name])


def _watch_input(stop: Callable[[], None]) -> None:
    """Stop when standard input ends: then the process at its other end is gone."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        loop.call_soon_threadsafe(stop)

    threading.Thread(target=wait, name="everlong-input", daemon=True).start()


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket; if that fails, the error says in words what is in the way."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ConfigError(
            f"gateway.host is {host}, which is no address of this machine: {error.strerror or error}; name another "
            "with --host",
            key="gateway.host",
        ) from error
    made = socket.socket(kind, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise ConfigError(_bind_sentence(host, port, error), key="gateway.port") from error
    return made


def _bind_sentence(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use, maybe by another gateway; choose another with --port, or 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights than this program has; choose one above 1023 with --port"
    return f"the gateway cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --host"


def _check_no_circle(routes: Routes, host: str, port: int) -> None:
    for route in routes.all:
        there = urlsplit(route.base_url)
        is_here = there.hostname == host or (is_loopback(there.hostname or "") and is_loopback(host))
        if port and there.port == port and is_here:
            raise ConfigError(
                f"the upstream {route.shown} is this gateway itself; name the API's own address with --upstream",
                key="gateway.upstream",
            )


class _Runner(web.AppRunner):
    """A runner whose connections report broken requests in the shape of an API."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        options = {name: value for name, value in self._kwargs.items() if name != "handler_cancellation"}
        _raise_limit(4 * MOST_CONNECTIONS)
        return _Server(
            partial(_shaped, made.request_handler),
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **options,
        )


def _raise_limit(files: int) -> None:
    """Let this process open so many files, if the system does: a request takes one here and one upstream."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - there is none on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _shaped(
    handle: Callable[[Any], Awaitable[web.StreamResponse]], request: web.BaseRequest
) -> web.StreamResponse:
    """Return the application's answer; its own refusals in the shape of an API."""
    try:
        return await handle(request)
    except web.HTTPException as error:
        return refusal(request, Refused(error.status, error.reason, close=True))


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("_head_bytes",)

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        read_in_steps(transport)
        super().connection_made(transport)
        open_now: list[Any] = self._manager.connections if self._manager is not None else []
        if len(open_now) > MOST_CONNECTIONS:
            for idle in (one for one in open_now if one.is_waiting):
                idle.force_close()
                break

    @property
    def is_waiting(self) -> bool:
        """True if there is no whole head of a request."""
        return self._waiter is not None and not self._waiter.done()

    def data_received(self, data: bytes) -> None:
        """Take bytes; hang up on a client whose head does not end."""
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self.is_waiting else 0
        if self._head_bytes > _MOST_HEAD:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to bytes that are no request."""
        del message
        self.logger.error("no request", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionResetError("the answer had begun already")
        said = "the gateway failed" if status >= 500 else "this is no HTTP request that can be read"
        response = web.json_response(OPENAI.error(status, said), status=status)
        response.force_close()
        return response


class HostedGateway:
    """A gateway in a thread, from ``start`` to ``close``, with a database that it opens and closes."""

    def __init__(
        self,
        settings: Settings,
        routes: Routes,
        open_database: Callable[[], Database],
        log: GatewayLog | None = None,
        *,
        has_inspector: bool = False,
    ) -> None:
        self.address = ""
        self._settings = settings
        self._routes = routes
        self._open = open_database
        self._log = log
        self._has_inspector = has_inspector
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="everlong-gateway", daemon=True)

    def start(self) -> Self:
        """Listen; raises the error that prevents it."""
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        return self

    def close(self) -> None:
        """Finish the work under way, and stop."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with closing(self._open()) as database:
                asyncio.run(self._serve(database))
        except BaseException as error:  # noqa: BLE001 - told to whoever starts it
            self._problem = error
        finally:
            self._ready.set()

    async def _serve(self, database: Database) -> None:
        self._loop = asyncio.get_running_loop()
        server = GatewayServer(self._settings, self._routes, database, log=self._log, has_inspector=self._has_inspector)
        await server.start()
        self.address = server.address
        self._ready.set()
        await self._stop.wait()
        await server.stop(DRAIN_SECONDS)


_SWITCH_SECONDS = 0.0005
"""Seconds a storing thread may hold the GIL before it yields."""
_GARBAGE = (20_000, 20, 20)
"""Thresholds of the garbage collector: requests leave hardly any garbage, and each run costs all of them time."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""The option numbers of `mallopt` in the GNU C library."""
_LARGE_BYTES = 1_000_000
_ARENAS = 2


def tune() -> None:
    """Tune this process for serving; everything that is loaded by now stays in memory."""
    _give_memory_back()
    sys.setswitchinterval(min(_SWITCH_SECONDS, sys.getswitchinterval()))
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)


def _give_memory_back() -> None:
    """Have the C library return large blocks to the system as soon as they are freed.

    By itself it learns from every large body that such blocks are usual, and keeps them.
    """
    if sys.platform != "linux":
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
        set_option(_ARENA_MAX, _ARENAS)
