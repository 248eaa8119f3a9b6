"""Paths that carry no conversation, passed on to the upstream as they are."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aiohttp import ClientError, web

from everlong.gateway.account import REQUEST_ID
from everlong.gateway.limits import Refused
from everlong.gateway.relay import ClientGone, Relay, answered, comes_whole, failure, forwarded_headers, streamed

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.gateway.account import Account
    from everlong.gateway.routing import Route

__all__ = ["passed_through", "safe_target", "whole_answer"]

_DOTS = re.compile(r"(^|[/\\])\.\.?([/\\]|$)")


def safe_target(request: web.BaseRequest) -> str:
    """The path and the query that a client asks for; `Refused` where they would lead elsewhere."""
    target = request.raw_path
    if not target.startswith("/"):
        target = request.path_qs
    path = target.partition("?")[0]
    once = unquote(path)
    if not target.startswith("/") or _DOTS.search(once) or _DOTS.search(unquote(once)) or not once.isprintable():
        raise Refused(400, "this path is none that the gateway passes on")
    return target


async def whole_answer(
    relay: Relay, request: web.Request, account: Account, route: Route, body: bytes, seconds: float
) -> tuple[ClientResponse, bytes]:
    """The upstream's answer to a request, which has to come within some seconds."""
    try:
        async with asyncio.timeout(seconds):
            upstream = await _sent(relay, request, account, route, body)
            return upstream, await upstream.read()
    except TimeoutError as error:
        raise Refused(504, f"the upstream {route.shown} did not answer within {seconds:g} seconds") from error
    except (ClientError, OSError) as error:
        raise _unreachable(route, error) from error


async def passed_through(
    relay: Relay, request: web.Request, account: Account, route: Route, body: bytes
) -> web.StreamResponse:
    """Pass a request on, and its answer back chunk by chunk."""
    try:
        upstream = await _sent(relay, request, account, route, body)
    except (ClientError, TimeoutError, OSError) as error:
        raise _unreachable(route, error) from error
    extra = {REQUEST_ID: account.id}
    if request.method == "HEAD" or await comes_whole(upstream):
        return answered(upstream, await upstream.read(), extra, is_head=request.method == "HEAD")
    try:
        return await streamed(request, upstream, lambda _: False, _nothing, extra)
    except ClientGone as gone:
        raise ConnectionResetError("the client has hung up") from gone
    finally:
        upstream.release()


async def _sent(relay: Relay, request: web.Request, account: Account, route: Route, body: bytes) -> ClientResponse:
    headers = forwarded_headers(request.headers.items(), is_read=False)
    route.authorize(headers, account.spoken)
    return await relay.send(request.method, route.url(safe_target(request)), headers, body or None)


async def _nothing() -> None:
    return


def _unreachable(route: Route, error: BaseException) -> Refused:
    return Refused(502, failure(route.shown, error))
