"""The gateway's routes, and the checks before each of them: host, key, limits, size."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from aiohttp import ClientError, web
from sqlalchemy import text
from yarl import URL

from everlong import __version__
from everlong.errors import StoreError
from everlong.gateway.auth import MOST_BODY_BYTES, QUESTION, SERVICE, Guard, Guesses, KeyLimits, Refused, prove, secret
from everlong.gateway.body import check_model, check_structure_apart
from everlong.gateway.bounds import BodyMemory, HeldMemory, receive
from everlong.gateway.budget import Charge
from everlong.gateway.formats import ANTHROPIC, FOLDER_ROUTE, OPENAI, RESPONSES, folder_in_path
from everlong.gateway.inspector_link import INSPECTOR_PATH
from everlong.gateway.requests import REQUEST_ID, opted_out, request_id
from everlong.gateway.responses_api import COMPACT_PATH
from everlong.gateway.telemetry import CONTENT_TYPE, GatewayLog, Metrics, RequestAccount
from everlong.gateway.upstream import (
    BUFFER_BYTES,
    MAX_HEADER_BYTES,
    ClientGone,
    Relay,
    check_connection,
    comes_whole,
    failure,
    forwarded_headers,
    stream_response,
    whole_of,
    whole_response,
)
from everlong.wire.event_stream import MOST_ANSWER

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.gateway.formats import Dialect
    from everlong.gateway.gateway import Gateway
    from everlong.gateway.inspector_link import InspectorLink
    from everlong.gateway.routing import Route

__all__ = [
    "SERVER_OPTIONS",
    "Front",
    "Handler",
    "dialect_of",
    "fetch_answer",
    "make_app",
    "pass_through",
    "refusal",
    "safe_target",
    "without_folder",
]

Handler: TypeAlias = Callable[[web.Request, RequestAccount], Awaitable[web.StreamResponse]]

_HUNG_UP = 499
"""The status in the log for a request whose client has hung up; it is never sent."""


class Front:
    """The entrance: it lets requests in and keeps account of them."""

    def __init__(
        self,
        guard: Guard,
        limits: KeyLimits,
        metrics: Metrics | None = None,
        log: GatewayLog | None = None,
    ) -> None:
        self.guard = guard
        self.limits = limits
        self.metrics = metrics or Metrics()
        self.log = log or GatewayLog(None)
        self._guesses = Guesses()
        self._memory = BodyMemory(limits.most_bytes)
        self.is_leaving = False
        self.asked_ready = -math.inf
        """When a balancer last asked whether this gateway is ready."""
        self._idle: asyncio.Event | None = None

    def endpoint(
        self, name: str, handler: Handler, *, is_open: bool = False
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return a handler for the web application; one that ``is_open`` needs no key and counts towards no limit."""

        async def handle(request: web.Request) -> web.StreamResponse:
            request, folder, program = without_folder(request)
            ident, held = request_id(request.headers.get("x-request-id")), HeldMemory(self._memory)
            account = RequestAccount(
                ident, request.method, request.path, name, folder=folder, program=program, held=held
            )
            self.metrics.in_flight += 1
            try:
                response = await self._handle(request, account, handler, is_open=is_open)
                account.status = response.status
                account.sent = _length(response)
                if not response.prepared:
                    response.headers[REQUEST_ID] = account.id
                    if request.writer.output_size and request.transport is not None:
                        request.transport.close()  # in the middle of another answer, of which this would seem a part
            except asyncio.CancelledError:
                account.status = _HUNG_UP
                raise
            except ConnectionError as error:  # the answer had begun; the connection ends
                account.status, account.problem = account.status or 502, type(error).__name__
                raise
            else:
                return response
            finally:
                account.seconds = time.perf_counter() - account.begun
                self.metrics.in_flight -= 1
                self.metrics.finished(account)
                self.log.request(account)
                if self._idle is not None and self.metrics.in_flight <= 0:
                    self._idle.set()

        return handle

    def leave(self) -> bool:
        """Be ready no more, and have clients close their connections; return whether a balancer has to hear of it."""
        self.is_leaving = True
        return time.monotonic() - self.asked_ready < _BALANCER_SECONDS

    async def close_connection(self, _: web.BaseRequest, response: web.StreamResponse) -> None:
        """End the connection after an answer where the gateway is about to stop."""
        if self.is_leaving:
            response.force_close()
            response.headers["Connection"] = "close"

    async def drain(self, seconds: float) -> int:
        """Wait until all requests are done; return how many are not when the time is over."""
        self.leave()
        self._idle = asyncio.Event()
        if self.metrics.in_flight:
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                pass
        return self.metrics.in_flight

    async def _handle(
        self, request: web.Request, account: RequestAccount, handler: Handler, *, is_open: bool
    ) -> web.StreamResponse:
        try:
            self.guard.check_host(request.headers.get("Host"))
            check_connection(request.headers.items())
            if is_open:
                return await handler(request, account)
            return await self._admit(request, account, handler)
        except Refused as refused:
            return refusal(request, refused)
        except (web.HTTPException, ConnectionError, asyncio.CancelledError):
            raise
        except web.RequestPayloadError:
            return refusal(request, Refused(400, "the request's body broke off or cannot be read", close=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer that it can read
            account.problem = _error_place(error)
            return refusal(request, Refused(500, "the gateway failed; its log has a line with this request's id"))

    async def _admit(self, request: web.Request, account: RequestAccount, handler: Handler) -> web.StreamResponse:
        caller = self.guard.admit(request.headers)
        if not self.guard.is_open:
            self._guesses.check(request.remote or "", caller, self.guard.tried(request.headers))
        if caller is None:
            raise Refused(401, "the gateway wants a key of its own: x-everlong-key, or as the API's key")
        account.caller, limits = caller, caller.limits
        if caller.has_key_in(account.id):
            account.id = request_id(None)
        if caller.has_key_in(request.raw_path):  # which logs and upstreams would see
            account.path = "/"
            raise Refused(400, "a key of the gateway stands in the address; send it in a header only", close=True)
        if limits is not None:
            self.limits.enter(caller.tenant, limits)
            if limits.dollars_per_day is not None:
                account.charge = Charge(caller.tenant, limits.dollars_per_day)
        try:
            if request.body_exists:
                account.held.tenant = caller.tenant
                account.received = len(await receive(request, account.held))
            return await handler(request, account)
        finally:
            account.held.release()
            if limits is not None:
                self.limits.leave(caller.tenant)
            if account.charge is not None:
                # A client that hangs up must not keep what it has used from being counted.
                account.cost = await asyncio.shield(asyncio.ensure_future(account.charge.close()))


_ANTHROPIC_PATHS = ("/v1/messages",)
_OPENAI_PATHS = ("/v1/chat/", "/v1/responses", "/v1/completions", "/v1/embeddings")


def dialect_of(request: web.BaseRequest) -> Dialect:
    """Return the dialect whose errors and upstream a request gets, by path or headers; Responses counts as OpenAI."""
    if request.path.startswith(_ANTHROPIC_PATHS):
        return ANTHROPIC
    if request.path.startswith(_OPENAI_PATHS):
        return OPENAI
    headers = request.headers
    is_anthropic = "anthropic-version" in headers or "anthropic-beta" in headers
    return ANTHROPIC if is_anthropic or ("x-api-key" in headers and "Authorization" not in headers) else OPENAI


def without_folder(request: web.Request) -> tuple[web.Request, str | None, str | None]:
    """Return a request with the path that it has at its API, and the folder and program that its own path names."""
    name = request.match_info.get("folder")
    if name is None:
        return request, None, None
    prefix = f"/folder/{name}"
    spelled = request.raw_path if request.raw_path.startswith(prefix) else request.path_qs
    target = spelled.removeprefix(prefix)
    url = URL(target if target[:1] == "/" else f"/{target}", encoded=True)
    return request.clone(rel_url=url), *folder_in_path(name)


def refusal(request: web.BaseRequest, refused: Refused) -> web.Response:
    """Return the answer to a request that is refused."""
    response = web.json_response(dialect_of(request).error(refused.status, refused.message), status=refused.status)
    if refused.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, int(-(-refused.retry_after // 1))))
    if refused.close:
        response.force_close()
    return response


def _length(response: web.StreamResponse) -> int:
    if isinstance(response, web.Response) and isinstance(response.body, bytes | bytearray):
        return len(response.body)
    return response.body_length


def _error_place(error: BaseException) -> str:
    """Return the class and place of an error, without its message, which may quote a request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    code = trace.tb_frame.f_code
    return f"{type(error).__name__} in {code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"


_DOTS = re.compile(r"(^|[/\\])\.\.?([/\\]|$)")


def safe_target(request: web.BaseRequest) -> str:
    """Return the path and query of a request; `Refused` if they lead outside of the API."""
    target = request.raw_path
    if not target.startswith("/"):
        target = request.path_qs
    path = target.partition("?")[0]
    once = unquote(path)
    if not target.startswith("/") or _DOTS.search(once) or _DOTS.search(unquote(once)) or not once.isprintable():
        raise Refused(400, "this path is none that the gateway passes on")
    return target


async def fetch_answer(
    relay: Relay, request: web.Request, account: RequestAccount, route: Route, body: bytes, seconds: float
) -> tuple[ClientResponse, bytes]:
    """Return the upstream's answer to a request; `Refused` if it takes too long."""
    try:
        async with asyncio.timeout(seconds):
            upstream = await _send(relay, request, account, route, body)
            read = await whole_of(upstream, MOST_ANSWER)
            if not read.is_all or read.is_cut:
                upstream.close()
                problem = "broke off" if read.is_cut else f"is larger than {MOST_ANSWER:,} bytes"
                raise Refused(502, f"the answer of the upstream {route.shown} {problem}")
            return upstream, read.data
    except TimeoutError as error:
        raise Refused(504, f"the upstream {route.shown} did not answer within {seconds:g} seconds") from error
    except (ClientError, OSError) as error:
        raise _unreachable(route, error) from error


async def pass_through(
    relay: Relay, request: web.Request, account: RequestAccount, route: Route, body: bytes
) -> web.StreamResponse:
    """Pass a request on, and its answer back chunk by chunk."""
    try:
        upstream = await _send(relay, request, account, route, body)
    except (ClientError, TimeoutError, OSError) as error:
        raise _unreachable(route, error) from error
    extra = {REQUEST_ID: account.id}
    if request.method == "HEAD" or await comes_whole(upstream):
        return whole_response(upstream, await upstream.read(), extra, is_head=request.method == "HEAD")
    try:
        return await stream_response(request, upstream, None, _nothing, extra)
    except ClientGone as gone:
        raise ConnectionResetError("the client has hung up") from gone
    finally:
        upstream.release()


async def _send(
    relay: Relay, request: web.Request, account: RequestAccount, route: Route, body: bytes
) -> ClientResponse:
    headers = forwarded_headers(request.headers.items(), is_read=False)
    route.authorize(headers, account.caller.spoken)
    upstream = await relay.send(request.method, route.url(safe_target(request)), headers, body or None)
    route.check_key(upstream, headers, account.caller.spoken)
    return upstream


async def _nothing() -> None:
    return


def _unreachable(route: Route, error: BaseException) -> Refused:
    return Refused(502, failure(route.shown, error))


_MODELS_SECONDS = 2.5
"""Seconds to wait for the list of models; some clients wait three."""
_COUNT_SECONDS = 20.0
_READY_SECONDS = 2.0
_BALANCER_SECONDS = 15.0
"""Seconds after which who asked whether a gateway is ready counts as gone."""
_FREE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_NAMED_PATH = re.compile(r"/+(?:responses|conversations|chat/+completions)[^\w/]*[/\\]+([^/]+)", re.IGNORECASE)

SERVER_OPTIONS: dict[str, Any] = {
    "handler_cancellation": True,  # a client that hangs up cancels what was asked for it
    "auto_decompress": False,  # bodies go on as they came
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
    "read_bufsize": BUFFER_BYTES,
}
"""Options with which the application has to be run."""


def make_app(gateway: Gateway, front: Front | None = None, inspector: InspectorLink | None = None) -> web.Application:
    """Return a web application around a gateway; without an entrance of its own, it gets one without a log."""
    front = front or Front(Guard(gateway.settings.gateway), KeyLimits(MOST_BODY_BYTES), gateway.metrics)
    app = web.Application(client_max_size=front.limits.most_bytes)
    endpoints = _Endpoints(gateway, front)
    route, add = front.endpoint, app.router
    for prefix in ("", FOLDER_ROUTE):
        add.add_post(f"{prefix}/v1/chat/completions", route("chat", partial(gateway.converse, OPENAI)))
        add.add_post(f"{prefix}/v1/messages", route("messages", partial(gateway.converse, ANTHROPIC)))
        add.add_post(f"{prefix}/v1/messages/count_tokens", route("count_tokens", endpoints.count_tokens))
        add.add_get(f"{prefix}/v1/models", route("models", endpoints.models), allow_head=False)
        add.add_post(f"{prefix}/v1/responses", route("responses", partial(gateway.converse, RESPONSES)))
        add.add_get(f"{prefix}/v1/responses", route("other", endpoints.upgrade), allow_head=False)
        add.add_post(f"{prefix}{COMPACT_PATH}", route("responses", partial(gateway.converse, RESPONSES)))
        for path in ("/", "/api/hello"):
            add.add_route("HEAD", f"{prefix}{path}", route("health", endpoints.hello, is_open=True))
    add.add_route("HEAD", FOLDER_ROUTE, route("health", endpoints.hello, is_open=True))
    for path, name, handler, is_open in (
        ("/healthz", "health", endpoints.health, True),
        ("/readyz", "health", endpoints.ready, True),
        ("/metrics", "metrics", endpoints.metrics, False),
    ):
        add.add_get(path, route(name, handler, is_open=is_open))
        add.add_route("*", path, route(name, endpoints.not_allowed, is_open=True))
    if inspector is not None:  # it knows keys that a browser asks for, so it lets its readers in itself
        for path in (INSPECTOR_PATH, INSPECTOR_PATH + r"/{path:[\s\S]*}"):
            for method in ("GET", "POST"):
                add.add_route(method, path, route("inspector", inspector.handle, is_open=True))
        add.add_get("/", route("inspector", endpoints.to_inspector, is_open=True), allow_head=False)
    add.add_route("*", FOLDER_ROUTE + r"{path:/[\s\S]*}", route("other", endpoints.other))
    add.add_route("*", r"/{path:[\s\S]*}", route("other", endpoints.other))
    front.metrics.gauge("everlong_store_queue", "Writes that wait for the store.", lambda: gateway.waiting)
    journal = gateway.journal
    front.metrics.gauge("everlong_journal_entries", "Entries that wait in the journal.", lambda: journal.waiting)
    oldest = "Seconds that the oldest entry of the journal has waited since it could be stored."
    front.metrics.gauge("everlong_journal_oldest_seconds", oldest, lambda: journal.oldest)
    front.metrics.gauge("everlong_conversations", "Conversations in memory.", lambda: gateway.conversations)
    app.on_response_prepare.append(front.close_connection)
    app.on_startup.append(lambda _: gateway.start())
    app.on_cleanup.append(lambda _: gateway.close())
    return app


class _Endpoints:
    def __init__(self, gateway: Gateway, front: Front) -> None:
        self._gateway = gateway
        self._front = front
        self._secret = secret(create=True)
        self._looking: asyncio.Future[None] | None = None
        """The newest look at the database, for everybody who asks meanwhile."""

    async def upgrade(self, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        """Refuse a WebSocket at once, so that clients fall back to HTTP."""
        if request.headers.get("Upgrade", "").strip().lower() == "websocket":
            raise Refused(426, "the gateway speaks HTTP here, and no WebSocket", close=True)
        return await self.other(request, account)

    async def models(self, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        route = self._gateway.routes.default[dialect_of(request).name]
        upstream, data = await fetch_answer(self._gateway.relay, request, account, route, b"", _MODELS_SECONDS)
        return whole_response(upstream, data, {})

    async def count_tokens(self, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        """Answer with the upstream's count of the body as it would be sent."""
        body = await request.read()
        await check_structure_apart(body)
        account.model, route = await self._gateway.routes.find_for(ANTHROPIC.name, body)
        check_model(account.model)
        account.opted_out = opted_out(request.headers)
        if not account.opted_out:
            body = await self._gateway.by_view(body, ANTHROPIC, account.caller.tenant)
        upstream, data = await fetch_answer(self._gateway.relay, request, account, route, body, _COUNT_SECONDS)
        return whole_response(upstream, data, {})

    async def other(self, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        """Pass on requests to other paths; a key of the gateway opens only the known paths unless it may more."""
        safe_target(request)
        caller = account.caller
        if caller.spoken and caller.limits is not None and not caller.limits.other_paths:
            sent = forwarded_headers(request.headers.items(), is_read=False)
            if not any(name in sent for name in {"Authorization", "x-api-key"} - caller.spoken):
                raise Refused(
                    403,
                    f"this key of the gateway does not open {request.path}; send a key for the upstream as well, or "
                    f"have gateway.keys.{caller.tenant}.other_paths set to true",
                )
        if caller.spoken and (named := _NAMED_PATH.search(request.path)) is not None:
            await self._gateway.responses.check_name(caller.tenant, named[1])  # the upstream knows no tenants
        if caller.spoken and request.body_exists and "responses" in request.path.lower():  # spelled in another way
            await self._gateway.responses.check_names(caller.tenant, await request.read())
        if account.charge is not None and request.method not in _FREE_METHODS:
            raise Refused(
                403,
                f"this key may spend so many US dollars a day, and what {request.path} costs cannot be told; only "
                f"gateway.keys.{caller.tenant} without dollars_per_day opens it",
            )
        route = self._gateway.routes.default[dialect_of(request).name]
        return await pass_through(self._gateway.relay, request, account, route, await request.read())

    # -- the gateway itself --------------------------------------------------------------------------------------------

    async def hello(self, request: web.Request, account: RequestAccount) -> web.Response:
        del request, account
        return web.Response()

    async def to_inspector(self, request: web.Request, account: RequestAccount) -> web.Response:
        del request, account
        return web.Response(status=302, headers={"Location": f"{INSPECTOR_PATH}/"})

    async def health(self, request: web.Request, account: RequestAccount) -> web.Response:
        del account
        about = {
            "status": "ok",
            "service": SERVICE,
            "version": __version__,
            "needs_key": not self._front.guard.is_open,
            "official": self._gateway.routes.official,
        }
        question, transport = request.headers.get(QUESTION), request.transport
        if question is not None and self._secret is not None and transport is not None:
            about["proof"] = prove(self._secret, question, transport.get_extra_info("sockname")[:2])
        return web.json_response(about)

    async def ready(self, request: web.Request, account: RequestAccount) -> web.Response:
        """Tell whether requests should be sent here: they can be kept, and no stop was asked.

        The journal keeps them while the database is away: a balancer would find no gateway left, as all share it.
        """
        del request, account
        self._front.asked_ready = time.monotonic()
        if self._front.is_leaving:
            return web.json_response({"status": "not ready", "problem": "draining"}, status=503)
        problem = await self._gateway.keeping_problem()
        if problem and self._gateway.settings.gateway.when_full == "refuse":
            return web.json_response({"status": "not ready", "problem": problem}, status=503)
        problem = problem or await self._database_problem()
        return web.json_response({"status": "ready", **({"problem": problem} if problem else {})})

    async def _database_problem(self) -> str:
        database = self._gateway.database

        def look() -> None:
            with database.translating(), database.read() as connection:
                connection.execute(text("SELECT 1"))

        if self._looking is None or self._looking.done():  # one that hangs takes one thread; clients need the others
            self._looking = asyncio.ensure_future(asyncio.to_thread(look))
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, if nobody waits
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await asyncio.shield(self._looking)
        except TimeoutError:
            return "the database does not answer"
        except (StoreError, OSError):
            return "the database cannot be reached"
        return ""

    async def metrics(self, request: web.Request, account: RequestAccount) -> web.Response:
        del request, account
        return web.Response(body=self._front.metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})

    async def not_allowed(self, request: web.Request, account: RequestAccount) -> web.Response:
        del account
        raise Refused(405, f"{request.path} is read with GET")
