"""Passing requests of the Responses API on and their answers back, while what is said is stored.

What goes through is not changed. Whatever fails beside it is told in a header, and keeps nobody from an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import ClientError, web

from everlong.gateway.account import REQUEST_ID, account_of
from everlong.gateway.dialects import OPENAI
from everlong.gateway.hints import sender_of
from everlong.gateway.items import RESPONSES
from everlong.gateway.keeper import Ended, too_much_new
from everlong.gateway.limits import Refused
from everlong.gateway.passing import WARNING, header_text
from everlong.gateway.raw import Broken, meant, read_fields
from everlong.gateway.relay import (
    ClientGone,
    Relay,
    answered,
    comes_whole,
    failure,
    forwarded_headers,
    streamed,
    target_of,
)
from everlong.gateway.responses import Call, Responses, read_asked
from everlong.gateway.structure import check_model, is_heavy
from everlong.gateway.taps import tap_for
from everlong.model import parts_of

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.gateway.account import Account
    from everlong.gateway.budget import Budget
    from everlong.gateway.finishing import Finishing
    from everlong.gateway.items import Asked
    from everlong.gateway.routing import Route, Routes
    from everlong.gateway.taps import StreamTap, WholeTap
    from everlong.providers.base import Usage

__all__ = ["Responder", "check_readable"]

_log = logging.getLogger("everlong.gateway")


async def check_readable(words: bytes | None) -> None:
    """Refuse a request that upstreams may read in another way than we do; its words are None where nobody can."""
    try:
        if words is not None:
            await asyncio.to_thread(read_fields, words)
            return
    except Broken:
        pass
    raise Refused(400, "this request cannot be read, so it does not go on with the gateway's own key")


def _named_in(words: bytes) -> list[str]:
    """Return the names of what a request goes on from; `Broken` where upstreams may read it in another way."""
    fields = read_fields(words)
    request = {name: meant(words[slice(*place)]) for name, place in fields.items()}
    names = [request.get("previous_response_id"), request.get("conversation")]
    items = request.get("input")
    named = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    names += [item.get("id") for item in named if item.get("type") == "item_reference" or item.keys() == {"id"}]
    return [str(name.get("id") if isinstance(name, dict) else name) for name in names if name]


class Responder:
    """Requests of the Responses API, of all tenants."""

    def __init__(
        self,
        relay: Relay,
        routes: Routes,
        responses_of: Callable[[str], Responses],
        finishing: Finishing,
        cost: Callable[[str, str, Usage], float],
        budget: Budget,
        most_new: int,
    ) -> None:
        self._relay = relay
        self._routes = routes
        self._responses_of = responses_of
        self._finishing = finishing
        self._cost = cost
        self._budget = budget
        self._most_new = most_new
        self._tenants: dict[str, Responses] = {}

    def _responses(self, tenant: str) -> Responses:
        if tenant not in self._tenants:
            self._tenants[tenant] = self._responses_of(tenant)
        return self._tenants[tenant]

    async def respond(self, request: web.Request, tenant: str, body: bytes, words: bytes | None) -> web.StreamResponse:
        """Pass one on: a body, and its words without an encoding, where they can be read."""
        known = self._responses(tenant)
        call = None if words is None else await self._entered(request, words, known)
        model, route = await self._upstream_of(call, words)
        headers = forwarded_headers(request.headers.items())
        account = account_of(request)
        account.api, account.provider = "openai", route.provider
        account.model = model
        if route.authorize(headers, account.spoken) and account.spoken:
            try:
                await self.check_names(tenant, words)
            except Refused as refused:
                await self._finish(known, call, Ended(error=f"status {refused.status}"))
                raise
        try:
            if account.charge is not None:
                await self._budget.reserve(account.charge, words, RESPONSES, account.model, route.provider)
        except Refused as refused:
            await self._finish(known, call, Ended(error=f"status {refused.status}"))
            raise
        if call is not None:
            call.warning = header_text(await self._finishing.note(known, call, account))
        try:
            upstream = await self._relay.send("POST", route.url(target_of(request)), headers, body)
            if account.charge is not None:
                account.charge.answered(upstream)
            return await self._answer(request, upstream, known, call)
        except ClientGone:
            self._abandon(known, call)
            return web.Response(status=499)  # to nobody
        except asyncio.CancelledError:
            self._abandon(known, call)
            raise
        except (ClientError, TimeoutError, OSError) as error:
            said = failure(route.shown, error)
            extra = await self._finish(known, call, Ended(error=said))
            return web.json_response(OPENAI.error(502, said), status=502, headers=extra)

    async def _upstream_of(self, call: Call | None, words: bytes | None) -> tuple[str, Route]:
        """Return the model of a request, and where it goes."""
        if call is None:
            return await self._routes.find_for("openai", words)
        return call.asked.model, self._routes.find("openai", call.asked.model)

    async def check_name(self, tenant: str, name: str) -> None:
        """Refuse a response or conversation that is not one of a tenant's: the upstream knows no tenants."""
        await self._check_owned(self._responses(tenant), [name])

    async def check_names(self, tenant: str, words: bytes | None) -> None:
        """Refuse a request that goes on from what another tenant may have said, under the key that all share."""
        await check_readable(words)
        assert words is not None  # noqa: S101 - refused before
        await self._check_owned(self._responses(tenant), await asyncio.to_thread(_named_in, words))

    async def _check_owned(self, known: Responses, names: list[str]) -> None:
        for name in names:
            if not await asyncio.to_thread(known.owns, name):
                raise Refused(404, f"there is no response, conversation or item {name[:100]!r} of this key")

    async def _entered(self, request: web.Request, words: bytes, known: Responses) -> Call | None:
        try:
            said = await asyncio.to_thread(read_asked, words) if is_heavy(words) else read_asked(words)
            check_model(said.model)
            await self._check_new(said, known)
            return known.enter(said, sender_of(request.headers))
        except Broken:
            return None  # the upstream says what is wrong with it
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - nothing that fails here may keep a request from its model
            _log.error("a request could not be read: %s", type(error).__name__)
            return None

    async def _check_new(self, said: Asked, known: Responses) -> None:
        """Refuse a request with more new blocks than others can wait for."""
        blocks = sum(max(1, len(parts_of(message))) for message in said.messages)
        if blocks > self._most_new and await asyncio.to_thread(known.count_new, said) > self._most_new:
            raise too_much_new(self._most_new)

    async def _answer(
        self, request: web.Request, upstream: ClientResponse, known: Responses, call: Call | None
    ) -> web.StreamResponse:
        tap, account = tap_for(RESPONSES, upstream), account_of(request)
        if call is not None:
            call.tap = tap
        if account.charge is not None:
            account.charge.said = tap.partial
        if await comes_whole(upstream):
            data = await upstream.read()
            tap(data)
            ended = self._ended(account, tap, upstream.status)
            return answered(upstream, data, await self._finish(known, call, ended))
        is_finished = False

        async def before_end() -> None:
            nonlocal is_finished
            if not is_finished:
                is_finished = True
                await self._finish(known, call, self._ended(account, tap, upstream.status))

        told = {WARNING: call.warning} if call is not None and call.warning else {}
        return await streamed(request, upstream, tap, before_end, {REQUEST_ID: account.id, **told})

    def _ended(self, account: Account, tap: StreamTap | WholeTap, status: int) -> Ended:
        """How a request ended, with what it has used and cost on its account."""
        if status != 200:
            return Ended(error=f"status {status}")
        reply = tap.reply()
        if reply is None:
            return Ended(error=tap.otherwise, partial=tap.partial())
        account.usage = reply.usage
        account.cost = self._cost(account.model, account.provider, reply.usage)
        if account.charge is not None and reply.usage.total_tokens:
            account.charge.told(account.cost)
        return Ended(reply, cost=account.cost)

    async def _finish(self, known: Responses, call: Call | None, ended: Ended) -> dict[str, str]:
        """Have written down what became of a request, the first time that something is told.

        Returns a header that says what went wrong with that, where something did.
        """
        if call is None or call.is_over:
            return {}
        call.is_over = True
        try:
            problem = await self._finishing.finish(known, call, ended)
        except Exception as error:  # noqa: BLE001 - an answer that is there is passed on, whatever fails here
            _log.error("a turn could not be stored: %s", type(error).__name__)
            problem = f"not stored: {type(error).__name__}"
        return {WARNING: header_text(problem)} if problem else {}

    def _abandon(self, known: Responses, call: Call | None) -> None:
        """The client has hung up."""
        partial = None if call is None or call.tap is None else call.tap.partial()
        ended = Ended(error="the client hung up", is_cut=True, partial=partial)
        self._finishing.do(self._finish(known, call, ended))
