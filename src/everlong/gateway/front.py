"""The way that every request takes, whatever it is for: an id, who sent it, what they may use, its body, its account.

Whatever goes wrong here or behind it becomes an answer in the shape of the API that the client speaks. What endpoints
do is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from everlong.gateway.account import ACCOUNT, REQUEST_ID, Account, request_id
from everlong.gateway.auth import Guard, Guesses
from everlong.gateway.budget import Charge
from everlong.gateway.dialects import ANTHROPIC, OPENAI
from everlong.gateway.limits import Limits, Refused
from everlong.gateway.logs import Log
from everlong.gateway.metrics import Metrics
from everlong.gateway.relay import misnamed_header

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.tracing import Tracing

__all__ = ["Front", "Handler", "dialect_of", "refusal"]

Handler: TypeAlias = Callable[[web.Request, Account], Awaitable[web.StreamResponse]]

_HUNG_UP = 499
"""The status in the books of a request whose client has gone; nobody is sent it."""


class Front:
    """Takes requests in, and keeps account of them."""

    def __init__(
        self,
        guard: Guard,
        limits: Limits,
        metrics: Metrics | None = None,
        log: Log | None = None,
        tracing: Tracing | None = None,
        *,
        body_seconds: float = 120.0,
    ) -> None:
        self.guard = guard
        self.limits = limits
        self.metrics = metrics or Metrics()
        self.log = log or Log(None)
        self._tracing = tracing
        self._body_seconds = body_seconds
        self._guesses = Guesses()
        self.is_draining = False
        self._idle: asyncio.Event | None = None

    def endpoint(
        self, name: str, handler: Handler, *, is_open: bool = False
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A handler for the web application; an open one needs no key, and counts towards no limit."""

        async def handle(request: web.Request) -> web.StreamResponse:
            account = request[ACCOUNT] = _account(request, name)
            self.metrics.in_flight += 1
            try:
                response = await self._handled(request, account, handler, is_open=is_open)
                account.status = response.status
                account.sent = _length(response)
                if not response.prepared:
                    response.headers[REQUEST_ID] = account.id
            except asyncio.CancelledError:
                account.status = _HUNG_UP
                raise
            except ConnectionError as error:  # the answer had begun; the connection ends
                account.status, account.problem = account.status or 502, type(error).__name__
                raise
            else:
                return response
            finally:
                self._over(account)

        return handle

    async def drained(self, seconds: float) -> int:
        """Take nothing more in, and wait until all is done; how many requests are not, when the time is over."""
        self.is_draining = True
        self._idle = asyncio.Event()
        if self.metrics.in_flight:
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                pass
        return self.metrics.in_flight

    async def _handled(
        self, request: web.Request, account: Account, handler: Handler, *, is_open: bool
    ) -> web.StreamResponse:
        try:
            self._check_headers(request)
            if is_open:
                return await handler(request, account)
            return await self._let_in(request, account, handler)
        except Refused as refused:
            return refusal(request, refused)
        except web.HTTPRequestEntityTooLarge:
            return refusal(request, self._too_large(self.limits.most_bytes))
        except (web.HTTPException, ConnectionError, asyncio.CancelledError):
            raise
        except web.RequestPayloadError:
            return refusal(request, Refused(400, "the request's body broke off or cannot be read", close=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer that it can read
            account.problem = _place(error)
            return refusal(request, Refused(500, "the gateway failed; its log has a line with this request's id"))

    def _check_headers(self, request: web.Request) -> None:
        """Refuse a request that was sent to another host, or would have headers left out that decide about it."""
        self.guard.check_host(request.headers.get("Host"))
        if (name := misnamed_header(request.headers.items())) is not None:
            raise Refused(400, f"the header {name} is none of one connection, but Connection names it", close=True)

    async def _let_in(self, request: web.Request, account: Account, handler: Handler) -> web.StreamResponse:
        if self.is_draining:
            raise Refused(503, "the gateway is about to stop; try again", 1, close=True)
        caller = self.guard.admit(request.headers)
        if not self.guard.is_open:
            self._guesses.check(request.remote or "", caller, self.guard.tried(request.headers))
        if caller is None:
            raise Refused(401, "the gateway wants a key of its own: x-everlong-key, or as the API's key")
        account.caller = caller
        if caller.has_key_in(account.id):
            account.id = request_id(None)
        if caller.has_key_in(request.raw_path):  # which logs and upstreams would see
            account.path = "/"
            raise Refused(400, "a key of the gateway stands in the address; send it in a header only", close=True)
        self.limits.enter(caller)
        if caller.limits is not None and caller.limits.dollars_per_day is not None:
            account.charge = Charge(caller.tenant, caller.limits.dollars_per_day)
        try:
            if request.body_exists:
                account.received = len(await self._body(request, self.limits.body_limit(caller)))
            return await handler(request, account)
        finally:
            self.limits.leave(caller)
            if account.charge is not None:
                # A client that hangs up must not keep what it has used from being counted.
                account.cost = await asyncio.shield(asyncio.ensure_future(account.charge.close()))

    async def _body(self, request: web.Request, most: int) -> bytes:
        """The whole body; it stays with the request."""
        if (request.content_length or 0) > most:
            raise self._too_large(most)
        if request.content.is_eof():
            body = await request.read()
        else:
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await request.read()
            except TimeoutError as error:
                raise Refused(
                    408, f"the request took longer than {self._body_seconds:g} seconds to come", close=True
                ) from error
        if len(body) > most:
            raise self._too_large(most)
        return body

    @staticmethod
    def _too_large(most: int) -> Refused:
        return Refused(413, f"the request is larger than {most:,} bytes, which is the most here", close=True)

    def _over(self, account: Account) -> None:
        self.metrics.in_flight -= 1
        self.metrics.finished(account)
        self.log.request(account)
        if self._tracing is not None:
            self._tracing.told(account)
        if self._idle is not None and self.metrics.in_flight <= 0:
            self._idle.set()


_ANTHROPIC_PATHS = ("/v1/messages",)
_OPENAI_PATHS = ("/v1/chat/", "/v1/responses", "/v1/completions", "/v1/embeddings")


def dialect_of(request: web.BaseRequest) -> Dialect:
    """Return the API that a client speaks: the one whose path it is, else the one whose headers it sends."""
    if request.path.startswith(_ANTHROPIC_PATHS):
        return ANTHROPIC
    if request.path.startswith(_OPENAI_PATHS):
        return OPENAI
    headers = request.headers
    is_anthropic = "anthropic-version" in headers or "anthropic-beta" in headers
    return ANTHROPIC if is_anthropic or ("x-api-key" in headers and "Authorization" not in headers) else OPENAI


def _account(request: web.Request, name: str) -> Account:
    headers = request.headers
    return Account(
        request_id(headers.get("x-request-id")),
        request.method,
        request.path,
        name,
        traceparent=headers.get("traceparent", ""),
    )


def refusal(request: web.BaseRequest, refused: Refused) -> web.Response:
    """What a client is told whose request is not served."""
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


def _place(error: BaseException) -> str:
    """What broke and where, without its message, which may quote a request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    code = trace.tb_frame.f_code
    return f"{type(error).__name__} in {code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
