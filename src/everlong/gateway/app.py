"""The gateway's endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from everlong.gateway.dialects import ANTHROPIC, OPENAI
from everlong.gateway.quiet import server_logger
from everlong.gateway.relay import MAX_HEADER_BYTES

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.service import Gateway

__all__ = ["SERVER_OPTIONS", "make_app"]

MAX_BODY_BYTES = 64_000_000
"""Takes a history of three million tokens."""

SERVER_OPTIONS: dict[str, Any] = {
    "handler_cancellation": True,  # a client that hangs up cancels what was asked for it
    "auto_decompress": False,  # bodies go on as they came
    "logger": server_logger(),
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
}
"""How the application has to be run."""


def make_app(gateway: Gateway) -> web.Application:
    """A web application around a gateway."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    endpoints = _Endpoints(gateway)
    app.router.add_post("/v1/chat/completions", endpoints.chat)
    app.router.add_post("/v1/messages", endpoints.messages)
    app.router.add_post("/v1/responses", endpoints.responses)
    app.router.add_get("/healthz", endpoints.health)
    app.on_startup.append(lambda _: gateway.start())
    app.on_cleanup.append(lambda _: gateway.close())
    return app


class _Endpoints:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._converse(request, OPENAI)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        return await self._converse(request, ANTHROPIC)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        return await self._gateway.respond(request, "local")

    async def _converse(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        return await self._gateway.converse(request, dialect, "local")

    async def health(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"status": "ok"})
