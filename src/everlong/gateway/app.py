"""The gateway's endpoints: the two that carry conversations, those around them, and all others, which are passed on."""

from __future__ import annotations

import asyncio
import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from aiohttp import web
from sqlalchemy import text

from everlong.errors import StoreError
from everlong.gateway.auth import Guard
from everlong.gateway.bypass import opted_out
from everlong.gateway.client_compaction import COMPACT_PATH
from everlong.gateway.counting import Counting, has_no_count
from everlong.gateway.dialects import ANTHROPIC, OPENAI
from everlong.gateway.front import Front, dialect_of
from everlong.gateway.limits import Limits, Refused
from everlong.gateway.metrics import CONTENT_TYPE
from everlong.gateway.probe import SERVICE
from everlong.gateway.proof import QUESTION, prove, secret
from everlong.gateway.quiet import server_logger
from everlong.gateway.raw import Broken, read_body
from everlong.gateway.relay import MAX_HEADER_BYTES, answered, forwarded_headers
from everlong.gateway.structure import check_model, checked_structure, is_heavy
from everlong.gateway.through import passed_through, safe_target, whole_answer

if TYPE_CHECKING:
    from everlong.gateway.account import Account
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.service import Gateway

__all__ = ["SERVER_OPTIONS", "make_app", "make_front"]

_MODELS_SECONDS = 2.5
"""Some clients wait three seconds for the list of models."""
_COUNT_SECONDS = 20.0
_READY_SECONDS = 2.0
_VERSION = version("everlong")  # which is looked up on the disk
_FREE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_NAMED_PATH = re.compile(r"/(?:v\d+/)?(?:responses|conversations|chat/completions)/([^/]+)")

SERVER_OPTIONS: dict[str, Any] = {
    "handler_cancellation": True,  # a client that hangs up cancels what was asked for it
    "auto_decompress": False,  # bodies go on as they came
    "logger": server_logger(),
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
}
"""How the application has to be run."""


def make_front(gateway: Gateway) -> Front:
    """The way in for a gateway, as its settings say; without a log."""
    settings = gateway.settings.gateway
    limits = Limits(settings.body_megabytes * 1_000_000)
    return Front(Guard(settings), limits, gateway.metrics, body_seconds=settings.body_seconds)


def make_app(gateway: Gateway, front: Front | None = None, counting: Counting | None = None) -> web.Application:
    """A web application around a gateway."""
    front = front or make_front(gateway)
    keys = gateway.settings.gateway.keys.values()
    largest = max([front.limits.most_bytes, *(1_000_000 * (key.body_megabytes or 0) for key in keys)])
    app = web.Application(client_max_size=largest)
    endpoints = _Endpoints(gateway, front, counting or Counting())
    route, add = front.endpoint, app.router
    add.add_post("/v1/chat/completions", route("chat", endpoints.chat))
    add.add_post("/v1/messages", route("messages", endpoints.messages))
    add.add_post("/v1/messages/count_tokens", route("count_tokens", endpoints.count_tokens))
    add.add_get("/v1/models", route("models", endpoints.models), allow_head=False)
    add.add_post("/v1/responses", route("responses", endpoints.responses))
    add.add_get("/v1/responses", route("other", endpoints.upgrade), allow_head=False)
    add.add_post(COMPACT_PATH, route("responses", endpoints.responses))
    add.add_route("HEAD", "/", route("health", endpoints.hello, is_open=True))
    add.add_route("HEAD", "/api/hello", route("health", endpoints.hello, is_open=True))
    for path, name, handler, is_open in (
        ("/healthz", "health", endpoints.health, True),
        ("/readyz", "health", endpoints.ready, True),
        ("/metrics", "metrics", endpoints.metrics, False),
    ):
        add.add_get(path, route(name, handler, is_open=is_open))
        add.add_route("*", path, route(name, endpoints.not_allowed, is_open=True))
    add.add_route("*", r"/{path:[\s\S]*}", route("other", endpoints.other))
    front.metrics.gauge("everlong_store_queue", "Writes that wait for the store.", lambda: gateway.waiting)
    front.metrics.gauge("everlong_conversations", "Conversations in memory.", lambda: gateway.conversations)
    app.on_startup.append(lambda _: gateway.start())
    app.on_cleanup.append(lambda _: gateway.close())
    return app


class _Endpoints:
    def __init__(self, gateway: Gateway, front: Front, counting: Counting) -> None:
        self._gateway = gateway
        self._front = front
        self._counting = counting
        self._secret = secret(create=True)
        gateway.learns(self._counting.learn)

    # -- conversations -------------------------------------------------------------------------------------------------

    async def chat(self, request: web.Request, account: Account) -> web.StreamResponse:
        return await self._converse(request, OPENAI, account)

    async def messages(self, request: web.Request, account: Account) -> web.StreamResponse:
        return await self._converse(request, ANTHROPIC, account)

    async def responses(self, request: web.Request, account: Account) -> web.StreamResponse:
        return await self._gateway.respond(request, account.tenant)

    async def upgrade(self, request: web.Request, account: Account) -> web.StreamResponse:
        """Refuse a WebSocket at once, so that clients fall back to HTTP."""
        if request.headers.get("Upgrade", "").strip().lower() == "websocket":
            raise Refused(426, "the gateway speaks HTTP here, and no WebSocket", close=True)
        return await self.other(request, account)

    async def _converse(self, request: web.Request, dialect: Dialect, account: Account) -> web.StreamResponse:
        return await self._gateway.converse(request, dialect, account.tenant)

    # -- around them ---------------------------------------------------------------------------------------------------

    async def models(self, request: web.Request, account: Account) -> web.StreamResponse:
        route = self._gateway.routes.default(dialect_of(request).name)
        upstream, data = await whole_answer(self._gateway.relay, request, account, route, b"", _MODELS_SECONDS)
        return answered(upstream, data, {})

    async def count_tokens(self, request: web.Request, account: Account) -> web.StreamResponse:
        """What the upstream counts in what would be sent to it; where it has no such endpoint, our own count."""
        body = await request.read()
        await checked_structure(body, self._gateway.settings.gateway.body_values)
        try:
            read = (
                await asyncio.to_thread(read_body, body, "messages") if is_heavy(body) else read_body(body, "messages")
            )
            account.model = str(read.field("model") or "")
            check_model(account.model)
        except Broken:
            if self._gateway.routes.is_split:
                raise Refused(400, "this request cannot be read, so nobody can tell which upstream it is for") from None
            return await self.other(request, account)  # the upstream says what is wrong with it
        route = self._gateway.routes.find(ANTHROPIC.name, account.model)
        account.opted_out = opted_out(request.headers)
        if account.opted_out != "off":
            body = await self._gateway.by_view(body, ANTHROPIC, account.tenant)
        if not self._counting.lacks(route.base_url):
            upstream, data = await whole_answer(self._gateway.relay, request, account, route, body, _COUNT_SECONDS)
            if not has_no_count(upstream.status, data, upstream.headers.get("Content-Encoding", "")):
                return answered(upstream, data, {})
            self._counting.lacking(route.base_url)
        try:
            count = await self._counting.count(ANTHROPIC, body)
        except Broken as error:
            raise Refused(400, f"this request cannot be counted: {error}") from error
        return web.json_response({"input_tokens": count})

    async def other(self, request: web.Request, account: Account) -> web.StreamResponse:
        """Pass on what is not ours; a key of the gateway's opens only what the gateway knows, unless it may more."""
        safe_target(request)
        caller = account.caller
        if caller is not None and caller.spoken and caller.limits is not None and not caller.limits.other_paths:
            sent = forwarded_headers(request.headers.items(), is_read=False)
            if not any(name in sent for name in {"Authorization", "x-api-key"} - caller.spoken):
                raise Refused(
                    403,
                    f"this key of the gateway does not open {request.path}; send a key for the upstream as well, or "
                    f"have gateway.keys.{caller.tenant}.other_paths set to true",
                )
        if caller is not None and caller.spoken and (named := _NAMED_PATH.match(request.path)) is not None:
            await self._gateway.check_name(caller.tenant, named[1])  # the upstream knows no tenants
        if account.charge is not None and request.method not in _FREE_METHODS:
            raise Refused(
                403,
                f"this key may spend so many US dollars a day, and what {request.path} costs cannot be told; only "
                f"gateway.keys.{account.tenant} without dollars_per_day opens it",
            )
        route = self._gateway.routes.default(dialect_of(request).name)
        return await passed_through(self._gateway.relay, request, account, route, await request.read())

    # -- the gateway itself --------------------------------------------------------------------------------------------

    async def hello(self, request: web.Request, account: Account) -> web.Response:
        del request, account
        return web.Response()

    async def health(self, request: web.Request, account: Account) -> web.Response:
        del account
        about = {
            "status": "ok",
            "service": SERVICE,
            "version": _VERSION,
            "needs_key": not self._front.guard.is_open,
            "official": self._gateway.routes.official,
        }
        question, transport = request.headers.get(QUESTION), request.transport
        if question is not None and self._secret is not None and transport is not None:
            about["proof"] = prove(self._secret, question, transport.get_extra_info("sockname")[:2])
        return web.json_response(about)

    async def ready(self, request: web.Request, account: Account) -> web.Response:
        """Whether requests should be sent here: the database answers, they can be kept, and nobody has said stop."""
        del request, account
        if self._front.is_draining:
            return web.json_response({"status": "not ready", "problem": "draining"}, status=503)
        problem = await self._database_problem() or await self._gateway.keeping_problem()
        if problem and self._gateway.settings.gateway.when_full == "refuse":
            return web.json_response({"status": "not ready", "problem": problem}, status=503)
        return web.json_response({"status": "ready", **({"problem": problem} if problem else {})})

    async def _database_problem(self) -> str:
        database = self._gateway.database

        def look() -> None:
            with database.translating(), database.read() as connection:
                connection.execute(text("SELECT 1"))

        try:
            async with asyncio.timeout(_READY_SECONDS):
                await asyncio.to_thread(look)
        except (StoreError, OSError):
            return "the database cannot be reached"
        except TimeoutError:
            return "the database does not answer"
        return ""

    async def metrics(self, request: web.Request, account: Account) -> web.Response:
        del request, account
        return web.Response(body=self._front.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})

    async def not_allowed(self, request: web.Request, account: Account) -> web.Response:
        del account
        raise Refused(405, f"{request.path} is read with GET")
