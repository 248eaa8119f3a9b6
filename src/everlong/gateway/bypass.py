"""Requests whose client asked the gateway to stay out of the way, by the header ``x-everlong``.

With ``off`` a request goes on as it came. With ``no-store`` it goes on by the view in force, where its conversation is
in memory, and with cache markers. Neither is stored or compacted; what both cost is counted all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Literal

from aiohttp import ClientError, web

from everlong.gateway.account import REQUEST_ID, account_of
from everlong.gateway.auth import Refused
from everlong.gateway.body import (
    BrokenBody,
    check_model,
    check_structure_apart,
    draft_of,
    is_heavy,
    parse_json,
    read_body,
)
from everlong.gateway.bounds import unpack
from everlong.gateway.encodings import Unreadable, encoding_of, is_compressed
from everlong.gateway.formats import OPENAI, Dialect
from everlong.gateway.stream import Tapped, tap_for
from everlong.gateway.upstream import (
    ClientGone,
    Relay,
    comes_whole,
    failure,
    forwarded_headers,
    stream_response,
    target_of,
    whole_response,
)

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.gateway.account import RequestAccount
    from everlong.gateway.budget import Budget
    from everlong.gateway.cache_markers import CacheMarkers
    from everlong.gateway.routing import Route, Routes
    from everlong.gateway.stream import AnswerTap
    from everlong.providers.base import Usage

__all__ = ["HEADER", "Bypass", "OptOut", "Shape", "opted_out"]

HEADER = "x-everlong"
"""The header by which a client opts out; it is not sent upstream."""

OptOut = Literal["", "off", "no-store"]
Check = Callable[[bytes | None], Awaitable[None]]
Shape = Callable[[bytes], Awaitable[bytes]]
"""A function that puts a body into the form of its view, and leaves no trace."""


def opted_out(headers: Mapping[str, str]) -> OptOut:
    """Return the opt-out of a request; `Refused` if the gateway does not know it."""
    given = headers.get(HEADER)
    if given is None:
        return ""
    match given.strip().lower():
        case "off":
            return "off"
        case "no-store":
            return "no-store"
    raise Refused(400, f"the header {HEADER} is {given[:100]!r}, but must be off or no-store")


class Bypass:
    """The way of requests past the store."""

    def __init__(
        self,
        relay: Relay,
        routes: Routes,
        marking: CacheMarkers,
        cost: Callable[[str, Usage], float],
        budget: Budget,
    ) -> None:
        self._relay = relay
        self._routes = routes
        self._marking = marking
        self._cost = cost
        self._budget = budget

    async def pass_on(
        self,
        request: web.Request,
        api: str,
        tapped: Tapped,
        choice: OptOut,
        check: Check,
        shape: Shape | None = None,
    ) -> web.StreamResponse:
        """Pass a request on.

        Args:
            request: what the client sent.
            api: the API that it speaks.
            tapped: reads its answers.
            choice: what it is to be spared.
            check: refuses what may not go on with the gateway's own key, by its words.
            shape: with ``no-store``, puts its body into the form of its view.
        """
        account, body = account_of(request), await request.read()
        encoding = encoding_of(request.headers)
        is_packed = is_compressed(body, encoding)
        try:
            words = await unpack(body, encoding, account.held)
            values = await check_structure_apart(words)
            is_slow = is_heavy(words, values=values)
            told = await asyncio.to_thread(parse_json, words) if is_slow else parse_json(words)
            account.model = str(told.get("model") or "") if isinstance(told, dict) else ""
            check_model(account.model)
            is_read = True
        except (BrokenBody, Unreadable):
            words, is_read = body, False  # the upstream says what is wrong with it
        if is_read:
            route = self._routes.find(api, account.model)
        else:
            account.model, route = await self._routes.find_for(api, None)
        account.opted_out, account.api, account.provider = choice, api, route.provider
        sent = words if shape is None or choice == "off" else await self._shape(words, shape, account.model, route)
        headers = forwarded_headers(request.headers.items())
        if sent is words:
            sent = body
        elif is_packed:
            headers.popall("Content-Encoding", None)
        if route.authorize(headers, account.spoken) and account.spoken:
            await check(words if is_read else None)
        if account.charge is not None:
            told_as = words if sent is body else sent
            spoken = tapped if isinstance(tapped, Dialect) else OPENAI
            await self._budget.reserve(account.charge, told_as if is_read else None, spoken, account.model, route)
        try:
            upstream = await self._relay.send("POST", route.url(target_of(request)), headers, sent)
            if account.charge is not None:
                account.charge.answered(upstream)
            return await self._answer(request, account, tapped, upstream)
        except ClientGone:
            return web.Response(status=499)  # to nobody
        except (ClientError, TimeoutError, OSError) as error:
            raise Refused(502, failure(route.shown, error)) from error

    async def _shape(self, body: bytes, shape: Shape, model: str, route: Route) -> bytes:
        shaped = await shape(body)
        try:
            read = await asyncio.to_thread(read_body, shaped, "messages")
        except BrokenBody:
            return body
        draft = draft_of(shaped, read, [entry.end for entry in read.entries])
        marked = self._marking.marked_once(draft, model, route.cached_as)
        return body if marked == body else marked

    async def _answer(
        self, request: web.Request, account: RequestAccount, tapped: Tapped, upstream: ClientResponse
    ) -> web.StreamResponse:
        tap, extra = tap_for(tapped, upstream, account.held), {REQUEST_ID: account.id}
        if account.charge is not None:
            account.charge.said = tap.unread
        if await comes_whole(upstream):
            data = await upstream.read()
            await tap.take(data)
            await self._count(account, tap)
            return whole_response(upstream, data, extra)

        async def before_end() -> None:
            if account.usage is None:
                await self._count(account, tap)

        return await stream_response(request, upstream, tap.take, before_end, extra)

    async def _count(self, account: RequestAccount, tap: AnswerTap) -> None:
        reply = await tap.reply()
        if reply is not None and reply.usage.prompt_tokens:
            account.usage = reply.usage
            account.cost = self._cost(account.model, reply.usage)
            if account.charge is not None:
                account.charge.told(account.cost)
