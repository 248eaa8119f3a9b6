"""The server on a port of its own: streamable HTTP, one address, every request let in by a key or from this machine.

Who may come in is decided by a `Door` that the caller hands in; the command line hands in the gateway's keys. A session
belongs to the tenant that began it: for any other key it does not exist.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from everlong.mcp.server import HistoryServer

__all__ = ["PATH", "Door", "DoorClosed", "bind", "serve_http", "tenant_of"]

PATH = "/mcp"
_TENANT = "everlong.tenant"
_BODY_BYTES = 1_000_000
_IDLE_SECONDS = 1_800.0
_MOST_SESSIONS = 1_000
_DRAIN_SECONDS = 3


class DoorClosed(Exception):  # noqa: N818 - reads as the fact that it states
    """A request that is not let in: the status and the words of its answer."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class Door(Protocol):
    """Decides who is let in."""

    def enter(self, headers: Mapping[str, str], address: str, *, is_call: bool) -> str:
        """Return the tenant of a request; raise `DoorClosed` for others. A call has to leave."""

    def leave(self, tenant: str) -> None:
        """Note that a call is over."""


def tenant_of(request: Any) -> str:
    """Return the tenant of a request that was let in; raises `KeyError` for any other."""
    return str(request.scope[_TENANT])


class _DoorMiddleware:
    """The door before an application."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_call = scope["method"] == "POST"
        client = scope.get("client")
        try:
            tenant = self._door.enter(Headers(scope=scope), client[0] if client else "", is_call=is_call)
        except DoorClosed as closed:
            wait = {"Retry-After": str(max(1, round(closed.retry_after)))} if closed.retry_after else {}
            await JSONResponse({"error": {"message": closed.message}}, closed.status, wait)(scope, receive, send)
            return
        try:
            owner = AuthenticatedUser(AccessToken(token="", client_id=tenant, scopes=[]))
            await self._app({**scope, _TENANT: tenant, "user": owner}, receive, send)
        finally:
            if is_call:
                self._door.leave(tenant)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `ConfigError` where the address cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"nothing can listen on {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from error


async def serve_http(server: HistoryServer, listening: socket.socket, door: Door, say: Callable[[str], None]) -> None:
    """Serve until a signal ends the process; requests under way get a moment to end."""
    host, port = listening.getsockname()[:2]
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=_BODY_BYTES,
        session_idle_timeout=_IDLE_SECONDS,
        max_sessions=_MOST_SESSIONS,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the door does that
    )
    config = uvicorn.Config(
        _DoorMiddleware(app, door),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    shown = f"[{host}]" if ":" in host else host
    say(f"serving MCP at http://{shown}:{port}{PATH}")
    await uvicorn.Server(config).serve(sockets=[listening])
