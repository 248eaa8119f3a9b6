"""A gateway inside of another program: started in a thread, stopped with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aiohttp import web

from everlong.config.gateway_settings import GatewaySettings
from everlong.gateway.account import Account, request_id
from everlong.gateway.app import SERVER_OPTIONS
from everlong.gateway.auth import Guard
from everlong.gateway.front import dialect_of, refusal
from everlong.gateway.limits import Refused
from everlong.gateway.logs import Log
from everlong.gateway.network import Network
from everlong.gateway.relay import Relay
from everlong.gateway.server import GatewayServer, bound_socket
from everlong.gateway.through import passed_through

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.gateway.routing import Routes
    from everlong.store.database import Database

__all__ = ["HostedGateway", "HostedRelay"]


_SPOKEN_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
"""Paths of conversations, which go where their model's go."""


class _Hosted:
    """Runs an event loop in a thread, from ``start`` to ``close``."""

    def __init__(self) -> None:
        self.address = ""
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="everlong-gateway", daemon=True)

    def start(self) -> Self:
        """Listen; raises what stands in the way."""
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        return self

    def close(self) -> None:
        """Finish what is under way, and stop."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - told to whoever starts it
            self._problem = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._begin()
        self._ready.set()
        await self._stop.wait()
        await self._end()

    async def _begin(self) -> None:
        raise NotImplementedError

    async def _end(self) -> None:
        raise NotImplementedError


class HostedGateway(_Hosted):
    """A gateway in a thread.

    Args:
        settings: all of them.
        routes: where requests go.
        open_database: opens the store's database; it is closed with the gateway.
        log: where lines go.
    """

    def __init__(
        self, settings: Settings, routes: Routes, open_database: Callable[[], Database], log: Log | None = None
    ) -> None:
        super().__init__()
        self._settings = settings
        self._routes = routes
        self._open = open_database
        self._log = log
        self._database: Database | None = None
        self._server: GatewayServer | None = None

    async def _begin(self) -> None:
        self._database = self._open()
        try:
            self._server = GatewayServer(self._settings, self._routes, self._database, log=self._log)
            await self._server.start()
        except BaseException:
            self._database.close()
            raise
        self.address = self._server.address

    async def _end(self) -> None:
        assert self._server is not None  # noqa: S101 - it has begun
        assert self._database is not None  # noqa: S101 - as above
        try:
            await self._server.stop(self._settings.gateway.drain_seconds)
        finally:
            self._database.close()


class HostedRelay(_Hosted):
    """Passes everything on as it is, where there was a gateway and none can be had any more."""

    def __init__(self, routes: Routes, host: str, port: int) -> None:
        super().__init__()
        self._routes = routes
        self._host, self._port = host, port
        self._relay = Relay(Network(routes.ca_bundle))
        self._guard = Guard(GatewaySettings())
        self._runner: web.AppRunner | None = None

    async def _begin(self) -> None:
        bound = bound_socket(self._host, self._port)
        app = web.Application(client_max_size=1 << 40)
        app.router.add_route("*", "/{path:.*}", self._passed)
        await self._relay.start()
        self._runner = web.AppRunner(app, **SERVER_OPTIONS, access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, bound).start()
        self.address = f"http://{self._host}:{bound.getsockname()[1]}"

    async def _end(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        await self._relay.close()

    async def _passed(self, request: web.Request) -> web.StreamResponse:
        api = dialect_of(request).name
        try:
            self._guard.check_host(request.headers.get("Host"))
            route, body = self._routes.default(api), await request.read()
            if body and request.path.startswith(_SPOKEN_PATHS):
                _, route = await self._routes.find_for(api, body)
            return await passed_through(self._relay, request, Account(request_id(None)), route, body)
        except Refused as refused:
            return refusal(request, refused)
