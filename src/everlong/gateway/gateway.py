"""The gateway's one job: take a request, keep its conversation inside the window, pass it on, store what came of it.

Everything of ours that can fail fails aside: then the request goes on as well as it can, with a header that says so.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import ClientError, web

from everlong.context.policy import OVERFLOW_TRIES
from everlong.errors import ContextOverflow, EverlongError, ProviderError, RequestTooLarge, StoreError, SummarizerError
from everlong.gateway.auth import Refused
from everlong.gateway.body import (
    BrokenBody,
    Overgrown,
    Unreadable,
    checked_structure,
    draft_of,
    dumped,
    encoding_of,
    is_heavy,
    meant,
    plain,
    read_body,
    unpacked,
)
from everlong.gateway.budget import Budget, Charge
from everlong.gateway.bypass import Bypass, opted_out
from everlong.gateway.cache_markers import CacheWatch, Marking, Sent
from everlong.gateway.compaction import Room
from everlong.gateway.conversations import Shelf
from everlong.gateway.engines import Engines, GatewayPlugins
from everlong.gateway.formats import RESPONSES, Dialect, hint_of, is_stateless, sender_of
from everlong.gateway.journal import OPEN, Spool, Spooled
from everlong.gateway.recall import (
    TOOLS,
    HiddenTool,
    RecallLookup,
    all_looked_up,
    can_hide,
    can_offer,
    has_tools,
    offered,
)
from everlong.gateway.recorder import ConversationRecorder, EndedRequest, Finishing
from everlong.gateway.requests import AGAIN_SECONDS, AWAY_SECONDS, MostNew, Passing, Visit, Visits, header_text
from everlong.gateway.response_recorder import ResponseKeeper, Responses
from everlong.gateway.responses_api import (
    COMPACT_PATH,
    ClientCompaction,
    Responder,
    asks_compaction,
    check_readable,
    compacted_answer,
    holds_compaction,
    is_compaction,
    response_answer,
    response_events,
    unfolded,
)
from everlong.gateway.stream import Answering, read_beginning, tap_for
from everlong.gateway.summaries import Earlier, Summaries, earlier_request, spent_by
from everlong.gateway.telemetry import Metrics
from everlong.gateway.upkeep import GatewayUpkeep, journal_folder
from everlong.gateway.upstream import (
    ClientGone,
    Network,
    Relay,
    answered,
    cut_off,
    failure,
    forwarded_headers,
    is_whole,
    streamed,
    target_of,
    whole_of,
)
from everlong.gateway.window import Windows, tokens_of
from everlong.gateway.writer import Writer
from everlong.providers.failures import classify_answer
from everlong.store import Store
from everlong.store.leases import take
from everlong.store.opening import redacted_message
from everlong.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aiohttp import ClientResponse

    from everlong.caching.blocks import Layout
    from everlong.caching.misses import Miss
    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.body import Draft
    from everlong.gateway.routing import Routes
    from everlong.providers.base import Reply
    from everlong.store.database import Database

__all__ = ["Gateway"]

_log = logging.getLogger("everlong.gateway")

_PROBE_SECONDS = 2.0
_CLIENT_SECONDS = 120.0
"""So long a conversation's own model may take for a summary that its client asks for."""
_LEAST_ENTRIES = 2
"""Of a request that asks for a compaction: something to compact, and the item that asks."""
_EXPIRY_SECONDS = 60.0
_PEEK_STATUS = frozenset({400, 413, 422, 500})


class _RequestHead(NamedTuple):
    """What was read of an answer before it is passed back: the beginning of a stream, or all of a refusal."""

    data: bytes = b""
    error: ProviderError | None = None
    is_cut: bool = False


class Gateway:
    """Conversations of many clients on their way to models."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        routes: Routes,
        *,
        summarizer: Callable[[], Summarizer | None] | None = None,
        spool: Path | None = None,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.database = database
        self.metrics = Metrics()
        self.relay = Relay(Network(settings.gateway.ca_bundle))
        self._writer = Writer(database)
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="everlong-compact")
        windows = Windows(settings)
        self.budget = Budget(database, windows)
        self.summaries = Summaries(settings, self._send_aside, windows, summarizer)
        self._plugins = GatewayPlugins(settings)
        self.engines = Engines(settings, self._plugins)
        self._room = Room(
            settings, windows, self._workers, self.summaries, self.metrics, self._earlier, plugins=self._plugins
        )
        self._client_compaction = ClientCompaction(settings)
        self._spool = Spool(spool or journal_folder())
        self._upkeep = GatewayUpkeep(self._spool, self._store_of, lambda: self._writer.waiting > 0)
        self._finishing = Finishing(self._writer, refuses=settings.gateway.when_full == "refuse")
        self._responder = Responder(
            self.relay,
            routes,
            self._responses_of,
            self._finishing,
            self._room.windows.cost,
            self.budget,
            settings.gateway.new_blocks,
        )
        self._marking = Marking(settings.prompt_caching)
        self._bypass = Bypass(
            self.relay, routes, self._marking, self._room.windows.cost, settings.gateway.body_values, self.budget
        )
        self._watch = CacheWatch()
        self._is_audit = settings.gateway.mode == "audit"
        self._shelf = Shelf()
        self._visits: dict[tuple[str, str], Visits] = {}
        self._learn: Callable[[Dialect, bytes, str, int], None] | None = None
        self._expiring: asyncio.Task[None] | None = None

    def learns(self, learn: Callable[[Dialect, bytes, str, int], None]) -> None:
        """Have somebody told of what was sent, for which model, and how many tokens the upstream counted in it."""
        self._learn = learn

    @property
    def way(self) -> str:
        """How requests get to their upstreams, for people: the proxies, and that they are not changed."""
        found = (self.relay.network.shown_proxy(route.base_url) for route in self.routes.all)
        proxies = ", ".join(dict.fromkeys(proxy for proxy in found if proxy))
        way = f" by way of the proxy {proxies}" if proxies else ""
        return f"{way}; audit: requests are passed on as they come" if self._is_audit else way

    @property
    def waiting(self) -> int:
        """Writes that wait for the store."""
        return self._writer.waiting

    @property
    def conversations(self) -> int:
        """Conversations in memory."""
        return sum(len(visits.lines) for visits in self._visits.values())

    async def start(self) -> None:
        """Get ready."""
        await self.relay.start()
        self._upkeep.start()
        if self.engines.is_on:
            self._expiring = asyncio.create_task(self._expire())

    async def close(self) -> None:
        """Finish what is under way, and let go of everything."""
        if self._expiring is not None:
            self._expiring.cancel()
        await self._upkeep.close()
        await self._room.close()
        await self._finishing.close()
        await self.relay.close()
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self.engines.close)
        await asyncio.to_thread(self._plugins.close)
        self._spool.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _expire(self) -> None:
        """End the engines of conversations that have expired, now and then."""
        while True:
            await asyncio.sleep(_EXPIRY_SECONDS)
            await asyncio.to_thread(self.engines.expire)

    # -- a request -----------------------------------------------------------------------------------------------------

    async def converse(self, request: web.Request, dialect: Dialect, tenant: str) -> web.StreamResponse:
        """Pass on a request that carries a conversation."""
        if choice := opted_out(request.headers):
            shape = None if self._is_audit else partial(self.by_view, dialect=dialect, tenant=tenant)
            return await self._bypass.pass_on(request, dialect.name, dialect, choice, check_readable, shape)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _too_large(request, dialect)
        return await self._conversed(request, dialect, tenant, body)

    async def _conversed(
        self, request: web.Request, dialect: Dialect, tenant: str, body: bytes, *, is_rewritten: bool = False
    ) -> web.StreamResponse:
        visits = self._visits_of(tenant, dialect)
        passing = Passing(request, dialect, self.routes.default(dialect.api), body, visits, is_rewritten=is_rewritten)
        await self._enter(passing)
        passing.account.api, passing.account.provider = dialect.api, passing.route.provider
        await self._note(passing)
        try:
            return await self._passed_on(passing)
        except ClientGone:
            self._abandon(passing)
            return web.Response(status=499)  # to nobody
        except Refused as refused:
            await self._finish(passing, EndedRequest(error=f"status {refused.status}"))
            raise
        except (ClientError, TimeoutError, OSError) as error:
            said = failure(passing.route.shown, error)
            await self._finish(passing, EndedRequest(error=said))
            return web.json_response(dialect.error(502, said), status=502)
        except asyncio.CancelledError:
            self._abandon(passing)
            raise
        except Exception as error:
            await self._finish(passing, EndedRequest(error=f"the gateway failed: {type(error).__name__}"))
            raise
        finally:
            passing.answering = None  # the two name each other, and garbage is looked for seldom

    async def respond(self, request: web.Request, tenant: str) -> web.StreamResponse:
        """Pass on a request of the Responses API: kept inside the window, unless the upstream has its conversation."""
        if choice := opted_out(request.headers):
            check = partial(self._responder.check_names, tenant)
            return await self._bypass.pass_on(request, RESPONSES.api, RESPONSES, choice, check)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _too_large(request, RESPONSES)
        try:
            words = await unpacked(body, encoding_of(request.headers), request.client_max_size)
        except Unreadable:
            return await self._responder.respond(request, tenant, body, None)
        await checked_structure(words, self.settings.gateway.body_values)
        is_slow = is_heavy(words) or holds_compaction(words)
        whole, is_own = await asyncio.to_thread(_unfolded, words) if is_slow else _unfolded(words)
        if whole is not words:
            await checked_structure(whole, self.settings.gateway.body_values)
        if not is_own:
            return await self._responder.respond(request, tenant, body, words)
        if whole is words:
            return await self._conversed(request, RESPONSES, tenant, body)
        return await self._conversed(request, RESPONSES, tenant, whole, is_rewritten=True)

    async def check_name(self, tenant: str, name: str) -> None:
        """Refuse a response or conversation that is not one of a tenant's."""
        await self._responder.check_name(tenant, name)

    async def by_view(self, body: bytes, dialect: Dialect, tenant: str) -> bytes:
        """A body as it would be sent if it were a request: by the view in force, where one is in memory."""
        visits = self._visits.get((tenant, dialect.name))
        try:
            return body if visits is None or self._is_audit else await visits.peek(body)
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a client makes up is for the upstream to judge
            _log.warning("a body could not be put into the form of its view: %s", type(error).__name__)
            return body

    async def _enter(self, passing: Passing) -> None:
        """Find the conversation of a request; whatever is wrong with it is for the upstream to say."""
        request, dialect = passing.request, passing.dialect
        body: bytes | None = None
        try:
            body = await unpacked(passing.body, passing.encoding, request.client_max_size)
            passing.visit = await passing.visits.enter(body, sender_of(request.headers))
            passing.account.model = passing.visit.model
            passing.route = self.routes.find(dialect.api, passing.visit.model)
        except Overgrown as error:
            raise Refused(413, str(error), close=True) from error
        except (BrokenBody, Unreadable):
            passing.is_unread = True
        except Refused:
            raise
        except (EverlongError, OSError) as error:
            passing.warning, passing.is_unstored = header_text(f"not stored: {error}"), _is_of_store(error)
        except Exception as error:  # noqa: BLE001 - nothing that fails here may keep a request from its model
            passing.warning = header_text(f"not stored: {type(error).__name__}")
            _log.error("a request could not be read: %s", type(error).__name__)
        if passing.visit is not None:
            return
        # What kept it from being taken in, such as a database that is away, does not change where it may go.
        passing.account.model, passing.route = await self.routes.find_for(dialect.api, body)

    async def _enter_again(self, passing: Passing) -> Visit | None:
        """Find the conversation of a request that has to be shorter and came while the database was away."""
        until = asyncio.get_running_loop().time() + AWAY_SECONDS
        while passing.visit is None and passing.is_unstored and asyncio.get_running_loop().time() < until:
            passing.warning, passing.is_unstored = "", False
            await self._enter(passing)
            if passing.visit is None:
                await asyncio.sleep(AGAIN_SECONDS)
        if passing.visit is not None:
            await self._note(passing)
            if passing.noted is not None:
                self._spool.done(passing.noted)  # it is noted as a part of its conversation now
                passing.noted = None
        return passing.visit

    async def _passed_on(self, passing: Passing) -> web.StreamResponse:
        if passing.visit is None and (answer := await self._passed_as_it_came(passing)) is not None:
            return answer
        visit = passing.visit
        assert visit is not None  # noqa: S101 - it was found, or there is an answer
        is_ours = not self._is_audit and not passing.dialect.compacts_upstream(visit.read)
        is_asked = passing.dialect is RESPONSES and asks_compaction(passing.request.path, visit.read)
        is_asked = is_asked and not self._is_audit
        if is_ours and not is_asked:
            if self.engines.is_on:
                passing.engine = await self._room.engine_of(self.engines, passing, visit)
            await self._room.make(passing, visit)
        if is_asked:
            is_known = self._client_compaction.is_known_to(passing.route, passing.request.path)
            if not is_known:
                return await self._compacted(passing, visit, is_unknown=is_known is False)
        for attempt in range(OVERFLOW_TRIES + 1):
            sent = passing.sent_body = self._outgoing(passing, visit)
            upstream = await self._send(passing, sent)
            head = await self._head_of(passing, upstream)
            error = head.error if is_ours and attempt < OVERFLOW_TRIES else None
            if error is not None and await self._shortened(passing, visit, error, attempt, len(sent)):
                upstream.close()
                continue
            return await self._passed_back(passing, sent, upstream, head)
        raise AssertionError("unreachable")

    async def _passed_as_it_came(self, passing: Passing) -> web.StreamResponse | None:
        """Pass on a request whose conversation is not known; None where it has to be shorter, and is known by now."""
        upstream = await self._send(passing, passing.body)
        head = await self._head_of(passing, upstream)
        is_too_long = isinstance(head.error, ContextOverflow | RequestTooLarge)
        can_help = is_too_long and passing.is_unstored and not self._is_audit
        visit = await self._enter_again(passing) if can_help else None
        if visit is None:
            return await self._passed_back(passing, passing.body, upstream, head)
        upstream.close()
        if isinstance(head.error, ContextOverflow):
            self._room.windows.learn(visit.model, passing.route.provider, head.error)
        return None

    async def _shortened(self, passing: Passing, visit: Visit, error: ProviderError, attempt: int, sent: int) -> bool:
        """Make a request shorter that was refused as too long; False where it was not, or where that does not help.

        An upstream that does not say how long a request may be leaves us with a window that is not its own, by which
        there may be nothing to do; then the request is cut to a share of what it is.
        """
        if not isinstance(error, ContextOverflow | RequestTooLarge):
            return False
        if await self._room.shorten(passing, visit, error, attempt, sent):
            return True
        return attempt == 0 and await self._room.shorten(passing, visit, error, 1, sent)

    async def _head_of(self, passing: Passing, upstream: ClientResponse) -> _RequestHead:
        """Read as much of an answer as tells whether it is a refusal."""
        visit = passing.visit
        if upstream.status == 200:
            return _RequestHead(*await read_beginning(upstream)) if passing.dialect is RESPONSES else _RequestHead()
        if visit is not None and visit.line.cache is not None:
            visit.line.cache.forget()
        if not is_whole(upstream):
            return _RequestHead()
        data, is_cut = await whole_of(upstream)
        error = classify_answer(upstream.status, data) if upstream.status in _PEEK_STATUS else None
        return _RequestHead(data, error, is_cut)

    async def _passed_back(
        self, passing: Passing, sent: bytes, upstream: ClientResponse, head: _RequestHead
    ) -> web.StreamResponse:
        if upstream.status == 200:
            return await self._answering(passing, sent).answer(upstream, head.data)
        finish = partial(self._refused, passing, upstream)
        if not is_whole(upstream):
            return await streamed(passing.request, upstream, lambda _: False, finish, passing.extra)
        await finish()
        if head.is_cut:
            return await cut_off(passing.request, upstream, head.data, passing.extra)
        return answered(upstream, head.data, passing.extra)

    async def _compacted(self, passing: Passing, visit: Visit, *, is_unknown: bool) -> web.StreamResponse:
        """Answer a client that asks for a compaction: with what the upstream makes, or with one of ours."""
        if not is_unknown:
            upstream = await self._send(passing, self._outgoing(passing, visit))
            data, is_cut = await whole_of(upstream)
            path = passing.request.path
            if upstream.status == 200 and not is_cut:
                tap = tap_for(passing.dialect, upstream)
                tap(data)
                reply = tap.reply()
                is_known = reply is not None and is_compaction(reply.raw)
                self._client_compaction.learn(passing.route, path, is_known=is_known)
                if is_known:
                    await self._finish(passing, EndedRequest(reply))
                    return answered(upstream, data, passing.extra)
            elif self._client_compaction.is_unknown(upstream.status, data):
                self._client_compaction.learn(passing.route, path, is_known=False)
            elif not isinstance(classify_answer(upstream.status, data), ContextOverflow):
                await self._refused(passing, upstream)
                return answered(upstream, data, passing.extra)
        return await self._own_compaction(passing, visit)

    async def _own_compaction(self, passing: Passing, visit: Visit) -> web.StreamResponse:
        model = visit.model
        window = self._room.windows.window(model, passing.route.provider)
        summarizer = self._summarizer_for_client(passing, visit, window)
        work = partial(self._client_compaction.make, visit.sent(passing.dialect), window, model, summarizer)
        made = await self._room.called(work)
        passing.account.compactions.append("client")
        passing.account.cost = spent_by(summarizer) or 0.0
        self.metrics.compacted("client", "compacted")
        await self._finish(passing, EndedRequest(made.reply, cost=passing.account.cost))
        if passing.request.path == COMPACT_PATH:
            return web.json_response(compacted_answer(made.item), headers=passing.extra)
        answer = response_answer(made.item, model)
        if not visit.read.field("stream"):
            return web.json_response(answer, headers=passing.extra)
        headers = {**passing.extra, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return web.Response(body=response_events(answer), headers=headers)

    def _summarizer_for_client(self, passing: Passing, visit: Visit, window: int) -> Summarizer | None:
        """Return who writes the summary that a client asks for; its conversation's own model as far as that fits."""
        if not self.summaries.is_own or passing.request.path == COMPACT_PATH:  # where no model answers
            return self.summaries.configured()
        draft = visit.draft(passing.dialect)
        if len(draft.ends) < _LEAST_ENTRIES:
            return None
        asked = self._as_sent(passing, visit, draft.cut(len(draft.ends) - 1))  # without the trigger
        room = window - tokens_of(visit.line, len(asked.body))
        return self.summaries.now(passing, asked, room, _CLIENT_SECONDS)

    async def _refused(self, passing: Passing, upstream: ClientResponse) -> None:
        await self._finish(passing, EndedRequest(error=f"status {upstream.status}"))

    async def _send(self, passing: Passing, body: bytes, charge: Charge | None = None) -> ClientResponse:
        visit = passing.visit
        headers = forwarded_headers(passing.request.headers.items())
        if body is not passing.body or passing.is_rewritten:
            headers.popall("Content-Encoding", None)  # it was unpacked
        is_lent = passing.route.authorize(headers, passing.account.spoken)
        has_key = "Authorization" in headers or "x-api-key" in headers
        if passing.is_unread and passing.account.spoken and (is_lent or not has_key):
            await check_readable(None)
        charge = passing.account.charge if charge is None else charge
        if charge is not None:
            words = None if visit is None else visit.body if body is passing.body else body
            await self.budget.reserve(charge, words, passing.dialect, passing.account.model, passing.route.provider)
        upstream = await self.relay.send("POST", passing.route.url(target_of(passing.request)), headers, body)
        if charge is not None:
            charge.answered(upstream)
        return upstream

    async def _send_aside(self, passing: Passing, body: bytes) -> ClientResponse:
        """Send a request on behalf of another one, for a summary; it is charged by itself."""
        given = passing.account.charge
        charge = None if given is None else Charge(given.tenant, given.most)
        passing.aside = charge
        try:
            return await self._send(passing, body, charge)
        except Refused as refused:
            raise SummarizerError(refused.message) from refused

    def _outgoing(self, passing: Passing, visit: Visit) -> bytes:
        """The bytes that go upstream: the client's own, with the view in force, with markers where it has none."""
        if self._is_audit:
            return self._untouched(passing, visit)
        draft = visit.draft(passing.dialect)
        visit.drafted = len(draft.body)
        shown = visit.line.view
        view = shown.view_id if shown is not None and shown.covers <= len(visit.line.ends) else None
        tools = _hidden_tools(passing, draft, is_compacted=view is not None)
        passing.hidden = frozenset(tool.name for tool in tools)
        if tools:
            draft = offered(passing.dialect, draft, tools)
        provider, store = passing.route.cached_as, passing.visits.keeper.store
        marks = passing.dialect.takes_markers
        sent = self._marking.marked(visit.line, draft, visit.model, provider, store.tenant) if marks else draft.body
        passing.sent = _sent(passing, visit, draft, sent, view)
        return passing.body if sent == visit.body else sent

    def _earlier(self, passing: Passing, visit: Visit) -> Earlier | None:
        """Return the request before this one, as it was sent: what its conversation's own model has in its cache."""
        dialect = passing.dialect
        found = earlier_request(dialect, visit.draft(dialect), visit.line.lead)
        if found is None:
            return None
        return self._as_sent(passing, visit, *found)

    def _as_sent(
        self, passing: Passing, visit: Visit, draft: Draft, marker: Mapping[str, Any] | None = None
    ) -> Earlier:
        """Return a part of a request with all that the gateway adds to it, as it lies in the provider's cache."""
        dialect = passing.dialect
        if passing.route.recalls and can_offer(dialect, draft, is_compacted=visit.line.view is not None):
            draft = offered(dialect, draft)
        if not dialect.takes_markers:
            return Earlier(draft.body)
        return Earlier(self._marking.marked_once(draft, visit.model, passing.route.cached_as), marker)

    def _untouched(self, passing: Passing, visit: Visit) -> bytes:
        """Return the client's own bytes, as in audit mode."""
        draft = draft_of(visit.body, visit.read, visit.line.ends)
        passing.sent = _sent(passing, visit, draft, visit.body, None)
        return passing.body

    def _answering(self, passing: Passing, sent: bytes) -> Answering:
        visit = passing.visit
        if visit is None or not passing.hidden:
            look_up = None
        else:
            line, store = visit.line, passing.visits.keeper.store

            async def look_up(lookups: list[RecallLookup], tokens: int, sent: bytes) -> dict[str, str]:
                await passing.stored(visit)
                room = await self._room.left_for_lookups(passing, visit, tokens, sent)
                call = None if passing.engine is None else passing.engine.call
                counter = counter_for(visit.model)
                return await self._room.called(partial(all_looked_up, store, line.branch, lookups, room, counter, call))

        passing.answering = Answering(
            passing.request,
            passing.dialect,
            sent,
            lambda: passing.extra,
            lambda ended: self._finish(passing, ended, len(sent)),
            look_up,
            lambda body: self._send(passing, body),
            hidden=passing.hidden,
        )
        if passing.account.charge is not None:
            passing.account.charge.said = passing.answering.partial
        return passing.answering

    # -- the store -----------------------------------------------------------------------------------------------------

    async def _finish(self, passing: Passing, ended: EndedRequest, sent: int = 0) -> None:
        """Store what became of a request, before its last byte goes to the client."""
        if passing.is_over:  # clients hang up as soon as they have the last event
            return
        passing.is_over = True
        visit = passing.visit
        if visit is None:
            if passing.is_unstored:
                self._spool_whole(passing, ended)
            return
        account = passing.account
        account.session, account.branch = visit.line.session, visit.line.branch.id
        if ended.reply is not None and ended.reply.usage.prompt_tokens:
            usage, cost = ended.reply.usage, partial(self._room.windows.cost, visit.model, passing.route.provider)
            account.usage = ended.used
            await self._room.answered(passing, visit, ended.sent_tokens, usage.output_tokens, sent)
            costs = [cost(one) for one in (*ended.before, usage)]
            account.cost = sum(costs)
            if account.charge is not None:
                account.charge.told(*costs)
            account.miss = self._missed(passing, visit, ended.reply)
            ended = replace(ended, cost=account.cost, miss=account.miss, is_audited=self._is_audit)
            if self._learn is not None and visit.line.view is None:
                self._learn(passing.dialect, visit.body, visit.model, ended.sent_tokens)
        self._room.heard(passing, visit, ended, sent)
        if problem := await self._finishing.finish(passing.visits, visit, ended):
            passing.warning = header_text(problem)

    def _missed(self, passing: Passing, visit: Visit, reply: Reply) -> Miss | None:
        """Return why a request did not read what the one before it had left in the provider's cache."""
        tenant, branch = passing.visits.keeper.store.tenant, str(visit.line.branch.id)
        answering, sent = passing.answering, passing.sent
        if sent is None or answering is None:
            return None
        if answering.sent not in (sent.body, passing.body):
            self._watch.forget(tenant, branch)  # it went on with look-ups that its client does not repeat
            return None
        return self._watch.compare(tenant, branch, sent, reply)

    async def _note(self, passing: Passing) -> None:
        """Have a request in the journal or in the database before it goes upstream; `Refused` where neither has it."""
        visit, problem = passing.visit, ""
        if visit is not None:
            problem = await self._finishing.note(passing.visits, visit, passing.account)
        elif passing.is_unstored:
            try:
                passing.noted = self._spool.put_request(
                    self._whole_entry(passing, EndedRequest())._replace(status=OPEN)
                )
            except OSError as error:
                problem = self._finishing.unkept(error, passing.account)
        if problem:
            passing.warning = header_text(problem)

    async def keeping_problem(self) -> str:
        """Return why a request could not be kept now; nothing where the journal or the database takes one."""
        if self._spool.can_write():
            self._finishing.has_unkept = False
            return ""
        if self._finishing.has_unkept:  # a trial is small, and may find room where no request does
            return "neither the journal nor the database had room for a request"
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._writer.submit(lambda: take(self.database, "readiness", 0.0))
        except (EverlongError, OSError, TimeoutError):
            return "neither the journal nor the database can be written"
        return ""

    def _spool_whole(self, passing: Passing, ended: EndedRequest) -> None:
        """Keep what came of a request of a conversation that could not even be looked up."""
        entry, noted = self._whole_entry(passing, ended), passing.noted
        try:
            self._spool.keep(self._spool.put(entry), entry)
        except OSError as error:
            kept = "kept in memory until there is room" if self._spool.hold(entry, noted) else "lost"
            _log.error("an answer is neither in the journal nor in the database: %s", type(error).__name__)
            passing.warning = header_text(f"{kept}: {error}")
        else:
            if noted is not None:
                self._spool.done(noted)

    def _whole_entry(self, passing: Passing, ended: EndedRequest) -> Spooled:
        store = passing.visits.keeper.store
        body = meant(plain(passing.body, passing.encoding))
        return Spooled(
            tenant=store.tenant,
            api=passing.dialect.name,
            body=dumped(store.cleaned(body)).decode(),
            at=None,
            messages=[],
            model=str(body.get("model") or "") or None,
            hint=hint_of(passing.request.headers),
            reply=None if ended.message is None else store.cleaned(ended.message),
            usage=ended.usage,
            status=ended.status,
            error=ended.error,
            began=passing.account.started,
            cost=ended.cost,
            sender=sender_of(passing.request.headers),
        )

    def _abandon(self, passing: Passing) -> None:
        """The client has hung up."""
        partial = None if passing.answering is None else passing.answering.partial()
        ended = EndedRequest(error="the client hung up", is_cut=True, partial=partial)
        self._finishing.do(self._finish(passing, ended))

    def _store_of(self, tenant: str) -> Store:
        return Store(self.database, tenant, redact=redacted_message if self.settings.store.redact else None)

    def _responses_of(self, tenant: str) -> Responses:
        return Responses(ResponseKeeper(self._store_of(tenant)), self._writer, self._spool)

    def _visits_of(self, tenant: str, dialect: Dialect) -> Visits:
        key = (tenant, dialect.name)
        if key not in self._visits:
            keeper = ConversationRecorder(self._store_of(tenant), dialect)
            most = MostNew(self.settings.gateway.body_values, self.settings.gateway.new_blocks)
            self._visits[key] = Visits(keeper, self._writer, self._spool, self._shelf, most)
        return self._visits[key]


def _sent(passing: Passing, visit: Visit, draft: Draft, body: bytes, view: int | None) -> Sent:
    layout: Layout = "anthropic" if passing.dialect.name == "anthropic" else "openai"
    provider, lead, is_items = passing.route.cached_as, visit.line.lead, passing.dialect is RESPONSES
    return Sent(draft, body, visit.model, provider, layout, lead, view, visit.began, is_items)


def _is_of_store(error: Exception) -> bool:
    """Return whether a request was not stored for a reason of the database, and so belongs into the journal."""
    return isinstance(error, StoreError | OSError)


def _hidden_tools(passing: Passing, draft: Draft, *, is_compacted: bool) -> list[HiddenTool]:
    """Return the tools of the gateway's own for a request: those to look things up, and those of an engine.

    A client that has a tool of that name keeps its own.
    """
    tools: list[HiddenTool] = []
    if passing.route.recalls and can_offer(passing.dialect, draft, is_compacted=is_compacted):
        tools += TOOLS
    if passing.engine is not None and can_hide(passing.dialect, draft):
        own = meant(draft.body[slice(*draft.fields["tools"])]) if has_tools(draft) else None
        taken = {tool.name for tool in tools} | _named(own)
        tools += [tool for tool in passing.engine.tools if tool.name not in taken]
    return tools


def _named(tools: Any) -> set[str]:
    """Return the names of a client's tools."""
    entries = [one for one in tools if isinstance(one, dict)] if isinstance(tools, list) else []
    functions = [one["function"] if isinstance(one.get("function"), dict) else one for one in entries]
    return {str(one.get("name")) for one in functions}


def _unfolded(words: bytes) -> tuple[bytes, bool]:
    """Return a request of the Responses API with our compactions opened, and whether it brings its conversation."""
    with suppress(BrokenBody):
        try:
            read_body(words, RESPONSES.list_name)
        except Overgrown as error:
            raise Refused(413, str(error), close=True) from error
    whole = unfolded(words)
    return whole, is_stateless(whole)


def _too_large(request: web.Request, dialect: Dialect) -> web.Response:
    said = f"the request is larger than {request.client_max_size:,} bytes, which is all that this gateway takes"
    return web.json_response(dialect.error(413, said), status=413)
