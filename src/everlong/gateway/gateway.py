"""The gateway: takes a request, keeps its conversation inside the window, passes it on, and records the turn.

One chat request goes `Gateway.converse` → `_find_conversation` → `_pass_on` → `_make_body` (view, hidden tools, cache
markers) → `_send` → `stream.Answering` → `_finish`. If something of the gateway's own fails, the request
still goes on as well as it can, with a header that says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError, web

from everlong.agent.tools.hidden_tools import RecallLookup, lacks_room, look_up_all
from everlong.caching.misses import CachedPrompt, Miss, find_miss
from everlong.caching.rules import cache_rules, is_claude, model_rules, provider_of
from everlong.context.policy import OVERFLOW_TRIES
from everlong.errors import ContextOverflow, EverlongError, ProviderError, RequestTooLarge, SummarizerError
from everlong.gateway.auth import Refused
from everlong.gateway.body import (
    BrokenBody,
    Overgrown,
    check_model,
    check_structure_apart,
    is_heavy,
    read_body,
)
from everlong.gateway.bounds import Unreadable, encoding_of, is_light, plain, unpack
from everlong.gateway.budget import Budget, Charge
from everlong.gateway.compaction import ConversationCompactor
from everlong.gateway.conversations import ConversationMemory
from everlong.gateway.formats import OPENAI, RESPONSES, Dialect, is_stateless, sender_of
from everlong.gateway.journal import Journal
from everlong.gateway.prompt_caching import CacheMarkers, cached_prompt
from everlong.gateway.recall import can_offer, choose_tools, offer_tools
from everlong.gateway.recorder import NEW_BLOCKS, ConversationRecorder, ResponseRecorder
from everlong.gateway.requests import (
    RelayedRequest,
    TenantConversations,
    header_text,
    opted_out,
)
from everlong.gateway.responses_api import (
    COMPACT_PATH,
    ClientCompaction,
    Responses,
    asks_compaction,
    check_readable,
    compacted_answer,
    holds_compaction,
    is_compaction,
    response_answer,
    response_events,
    unfold_compactions,
)
from everlong.gateway.stream import Answering, read_beginning, tap_for
from everlong.gateway.summaries import Earlier, Summaries, earlier_request
from everlong.gateway.telemetry import Metrics
from everlong.gateway.turn_queue import Backlog, ConversationTurn, EndedRequest
from everlong.gateway.upkeep import GatewayUpkeep, journal_folder
from everlong.gateway.upstream import (
    ClientGone,
    ReadAnswer,
    Relay,
    failure,
    forwarded_headers,
    is_whole,
    stream_response,
    target_of,
    whole_of,
    whole_response,
)
from everlong.gateway.window import Windows, count_request, tokens_of
from everlong.gateway.writer import StoreWriter, Writer
from everlong.providers.base import Usage
from everlong.providers.embeddings import usable_embedder
from everlong.providers.failures import classify_answer
from everlong.store import Store
from everlong.store.store import redacted_message
from everlong.tokens import MessageCounter, counter_for
from everlong.wire.event_stream import MOST_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from pathlib import Path

    from aiohttp import ClientResponse

    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.body import Draft
    from everlong.gateway.routing import Routes
    from everlong.gateway.telemetry import RequestAccount
    from everlong.store.database import Database

__all__ = ["Gateway"]

_log = logging.getLogger("everlong.gateway")

_PROBE_SECONDS = 2.0
_STALLED_SECONDS = 60.0
"""Seconds without a stored turn, though some wait, after which the gateway is not ready."""
_CLIENT_SECONDS = 120.0
"""Seconds that a conversation's own model may take for a summary that its client asks for."""
_LEAST_ENTRIES = 2
"""Entries of the smallest request for a compaction: something to compact, and the item that asks."""
_MOST_OPENINGS = 2_000
_THREADS = 32
"""Threads for what takes longer than a moment: so many that large bodies keep no small request waiting for one."""
_PEEK_STATUS = frozenset({400, 413, 422, 500})
_MOST_REFUSAL = 100_000
"""Bytes of a refusal that is read."""


class Gateway:
    """The relay between many clients and their models."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        routes: Routes,
        *,
        summarizer: Callable[[], Summarizer | None] | None = None,
        journal: Path | None = None,
        writer: StoreWriter | None = None,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.database = database
        self._embedder = usable_embedder(settings, _log.warning)
        self.metrics = Metrics()
        self.relay = Relay()
        self._writer = Writer(database) if writer is None else writer
        windows = Windows(settings)
        self.budget = Budget(database, windows)
        self.summaries = Summaries(settings, self._send_aside, windows, self.budget, summarizer)
        self._compactor = ConversationCompactor(settings, windows, self.summaries, self.metrics, self._earlier)
        self._client_compaction = ClientCompaction(settings)
        self.journal = Journal(journal or journal_folder(), database.backend.where)
        """The turns that are not in the database yet."""
        self._upkeep = GatewayUpkeep(self.journal, self._store_of, self._writer)
        refuses = settings.gateway.when_full == "refuse"
        self._backlog = Backlog(self._writer, self.journal, self._upkeep.wake, refuses=refuses)
        self.responses = Responses(lambda tenant: ResponseRecorder(self._store_of(tenant)), NEW_BLOCKS)
        self._marking = CacheMarkers(settings.prompt_caching)
        self._openings: OrderedDict[tuple[str, Hashable, Hashable], CachedPrompt] = OrderedDict()
        """By tenant, first question and reply, the newest answered request that went on from them."""
        self._memory = ConversationMemory()
        self._usage_refused: set[str] = set()
        """Addresses of upstreams that refuse to be asked for the usage of a stream."""
        self._conversations: dict[tuple[str, str], TenantConversations] = {}

    @property
    def waiting(self) -> int:
        """Writes waiting for the store."""
        return self._writer.waiting

    @property
    def conversations(self) -> int:
        """Number of conversations in memory."""
        return len(self._memory.kept)

    async def start(self) -> None:
        """Open the connections and start the upkeep."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="everlong"))
        await self._writer.start()  # first, because it can fail
        await asyncio.to_thread(self._compactor.windows.load)
        await self.relay.start()
        self._upkeep.start()

    async def close(self) -> None:
        """Finish the work under way, and release everything."""
        await self._compactor.close()
        await self._backlog.close()
        await self._upkeep.close()
        await self.relay.close()
        await self._writer.close()
        self.journal.close()

    # -- a request -----------------------------------------------------------------------------------------------------

    async def converse(self, dialect: Dialect, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        """Find the conversation of a request, pass it on, and record how it ended."""
        relayed = await self._receive(dialect, request, account)
        if account.charge is not None:
            await self._check_budget(relayed, account.charge)
        if opted_out(request.headers):
            await self._stay_out(relayed)
        else:
            await self._find_conversation(relayed)
        account.api, account.provider = dialect.api, relayed.route.provider
        turn = relayed.turn or relayed.whole
        if turn is not None and (problem := await self._backlog.note(turn, account)):
            relayed.warning = header_text(problem)
        try:
            return await self._pass_on(relayed)
        except ClientGone:
            self._abandon(relayed)
            return web.Response(status=499)  # to nobody
        except Refused as refused:
            is_unpaid = relayed.abandon is None
            await self._finish(relayed, EndedRequest(error=f"status {refused.status}", is_refused=is_unpaid))
            raise
        except (ClientError, TimeoutError, OSError) as error:
            said = failure(relayed.route.shown, error)
            await self._finish(relayed, EndedRequest(error=said))
            return web.json_response(dialect.error(502, said), status=502)
        except asyncio.CancelledError:
            self._abandon(relayed)
            raise
        except Exception as error:
            await self._finish(relayed, EndedRequest(error=f"the gateway failed: {type(error).__name__}"))
            raise
        finally:
            relayed.abandon = None  # which names it, and garbage is looked for seldom

    async def _receive(self, dialect: Dialect, request: web.Request, account: RequestAccount) -> RelayedRequest:
        """Return a request as it came, with the conversations to which its own belongs."""
        tenant = account.caller.tenant
        conversations = self._conversations.get((tenant, dialect.name))
        if conversations is None:
            recorder = ConversationRecorder(self._store_of(tenant), dialect)
            conversations = TenantConversations(
                recorder, self._compactor.windows.of(tenant), self._writer, self.journal, self._memory, NEW_BLOCKS
            )
            self._conversations[tenant, dialect.name] = conversations
        body, route = await request.read(), self.routes.default[dialect.api]
        relayed = RelayedRequest(request, account, tenant, dialect, route, body, conversations, conversations.windows)
        if dialect is RESPONSES:
            relayed.is_named = not opted_out(request.headers) and not await _carries_conversation(relayed)
        return relayed

    async def by_view(self, body: bytes, dialect: Dialect, tenant: str) -> bytes:
        """Return a body as it would be sent if it were a request: under the view in force, if that is in memory."""
        conversations = self._conversations.get((tenant, dialect.name))
        try:
            return body if conversations is None else await conversations.peek(body)
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a client makes up is for the upstream to judge
            _log.warning("a body could not be put into the form of its view: %s", type(error).__name__)
            return body

    async def _check_budget(self, relayed: RelayedRequest, charge: Charge) -> None:
        """Refuse a request that may cost more than its key may spend, before anything of it is stored."""
        await self._find_route(relayed)
        given = relayed.words, relayed.dialect, relayed.account.model, relayed.route
        await self.budget.reserve(charge, *given, only_checks=True)

    async def _find_route(self, relayed: RelayedRequest) -> None:
        """Find the model and the route of a request without its conversation."""
        account = relayed.account
        with suppress(Unreadable):  # the upstream says what is wrong with it
            relayed.words = relayed.words or await unpack(relayed.body, relayed.encoding, account.held)
            await check_structure_apart(relayed.words)
        account.model, relayed.route = await self.routes.find_for(relayed.dialect.api, relayed.words)
        check_model(account.model)

    async def _stay_out(self, relayed: RelayedRequest) -> None:
        """Prepare a request whose client opted out: it goes on as it came, and nothing of it is stored."""
        relayed.account.opted_out = True
        await self._find_route(relayed)
        relayed.is_unread = not relayed.account.model

    async def _find_conversation(self, relayed: RelayedRequest) -> None:
        """Find the conversation and the route of a request; if the request is broken, the upstream tells the client."""
        dialect, account = relayed.dialect, relayed.account
        sender = sender_of(relayed.request.headers, account.folder, account.program)
        try:
            if relayed.words is None:
                relayed.words = await unpack(relayed.body, relayed.encoding, account.held)
            if relayed.is_named:
                relayed.whole = await self.responses.read(relayed.tenant, relayed.words, sender)
                account.model, relayed.route = relayed.whole.model, self.routes.find(dialect.api, relayed.whole.model)
                return
            is_small = partial(self._is_small, relayed)
            relayed.turn = await relayed.conversations.enter(relayed.words, sender, is_small)
            account.model, account.program = relayed.turn.model, sender.client
            relayed.route = self.routes.find(dialect.api, relayed.turn.model)
        except Overgrown as error:
            raise Refused(413, str(error), close=True) from error
        except (BrokenBody, Unreadable) as error:
            relayed.is_unread, relayed.warning = not relayed.is_named, header_text(f"not stored: {error}")
            _log.warning("a request is passed on and not stored: its body cannot be read")
        except Refused:
            raise
        except (EverlongError, OSError) as error:
            relayed.warning = header_text(f"not stored: {error}")
        except Exception as error:  # noqa: BLE001 - nothing that fails here may keep a request from its model
            relayed.warning = header_text(f"not stored: {type(error).__name__}")
            _log.error("a request could not be read: %s", type(error).__name__)
        if relayed.turn is not None:
            return
        # Whatever went wrong, such as a database that is away, does not change where the request may go.
        account.model, relayed.route = await self.routes.find_for(dialect.api, relayed.words)

    def _is_small(self, relayed: RelayedRequest, model: str, size: int) -> bool:
        """Return whether a request is far from any compaction, however dense its words are."""
        provider = self.routes.find(relayed.dialect.api, model).provider
        return relayed.windows.is_small(model, provider, size)

    async def _pass_on(self, relayed: RelayedRequest) -> web.StreamResponse:
        """Send a request upstream, shortened if necessary, and pass the answer back."""
        turn = relayed.turn
        if turn is None:
            upstream = await self._send(relayed, relayed.body)
            return await self._pass_back(relayed, relayed.body, upstream, await self._read_head(relayed, upstream))
        is_ours = not relayed.dialect.compacts_upstream(turn.read)
        path = relayed.request.path
        if relayed.dialect is RESPONSES and asks_compaction(path, turn.read):
            is_known = self._client_compaction.is_known_to(relayed.tenant, relayed.route, path)
            if not is_known:
                return await self._answer_compaction(relayed, turn, is_unknown=is_known is False)
        elif is_ours:
            await self._compactor.make_room(relayed, turn)
        for attempt in range(OVERFLOW_TRIES + 1):
            sent = relayed.sent_body = self._make_body(relayed, turn)
            upstream = await self._send(relayed, sent)
            head = await self._read_head(relayed, upstream)
            if relayed.hides_usage and "stream_options" in str(head.error):
                upstream.close()
                self._usage_refused.add(relayed.route.base_url)
                sent = relayed.sent_body = self._make_body(relayed, turn)
                upstream = await self._send(relayed, sent)
                head = await self._read_head(relayed, upstream)
                if head.error is not None:  # it may have quoted the client's own words
                    self._usage_refused.discard(relayed.route.base_url)
            error = head.error if is_ours and attempt < OVERFLOW_TRIES else None
            if error is not None and await self._shorten(relayed, turn, error, attempt, len(sent)):
                upstream.close()
                continue
            return await self._pass_back(relayed, sent, upstream, head)
        raise AssertionError("unreachable")

    async def _shorten(
        self, relayed: RelayedRequest, turn: ConversationTurn, error: ProviderError, attempt: int, sent: int
    ) -> bool:
        """Shorten a request that was refused as too long; False if it was refused for another reason, or cannot be.

        If the upstream does not name its limit, the request may already fit the window that we assume; then it is cut
        to a share of its length.
        """
        if not isinstance(error, ContextOverflow | RequestTooLarge):
            return False
        if await self._compactor.shorten(relayed, turn, error, attempt, sent):
            return True
        return attempt == 0 and await self._compactor.shorten(relayed, turn, error, 1, sent)

    async def _read_head(self, relayed: RelayedRequest, upstream: ClientResponse) -> ReadAnswer:
        """Read enough of an answer to tell whether it is a refusal: the beginning of a stream, or a whole refusal."""
        turn = relayed.turn
        if upstream.status == 200:
            reads_ahead = relayed.dialect is RESPONSES and turn is not None
            return await read_beginning(upstream) if reads_ahead else ReadAnswer()
        if turn is not None and turn.conversation.cache is not None:
            turn.conversation.cache.forget()
        if not is_whole(upstream):
            return ReadAnswer()
        head = await whole_of(upstream, _MOST_REFUSAL)
        if head.is_all and upstream.status in _PEEK_STATUS:
            with suppress(Unreadable):
                said = plain(head.data, encoding_of(upstream.headers), _MOST_REFUSAL)
                return head._replace(error=classify_answer(upstream.status, said))
        return head

    async def _pass_back(
        self, relayed: RelayedRequest, sent: bytes, upstream: ClientResponse, head: ReadAnswer
    ) -> web.StreamResponse:
        if upstream.status == 200:
            return await self._make_answering(relayed, sent).answer(upstream, head.data)
        finish = partial(self._finish_refused, relayed, upstream)
        if not is_whole(upstream) or head.is_cut or not head.is_all:
            return await stream_response(relayed.request, upstream, None, finish, relayed.extra, head.data)
        await finish()
        return whole_response(upstream, head.data, relayed.extra)

    async def _answer_compaction(
        self, relayed: RelayedRequest, turn: ConversationTurn, *, is_unknown: bool
    ) -> web.StreamResponse:
        """Answer a client that asks for a compaction: with the upstream's, or with one of our own."""
        if not is_unknown:
            upstream = await self._send(relayed, self._make_body(relayed, turn))
            data, is_cut, is_all, _ = await whole_of(upstream, MOST_ANSWER)
            path = relayed.request.path
            if not is_all:
                return await self._make_answering(relayed, relayed.body).answer(upstream, data)
            if upstream.status == 200 and not is_cut:
                tap = tap_for(relayed.dialect, upstream, relayed.account.held)
                await tap.take(data)
                reply = await tap.reply()
                is_known = reply is not None and is_compaction(reply.raw)
                self._client_compaction.learn(relayed.tenant, relayed.route, path, is_known=is_known)
                if is_known:
                    await self._finish(relayed, EndedRequest(reply))
                    return whole_response(upstream, data, relayed.extra)
            elif self._client_compaction.is_unknown(upstream.status, data):
                self._client_compaction.learn(relayed.tenant, relayed.route, path, is_known=False)
            elif not isinstance(classify_answer(upstream.status, data), ContextOverflow):
                await self._finish_refused(relayed, upstream)
                return whole_response(upstream, data, relayed.extra)
        return await self._compact_for_client(relayed, turn)

    async def _compact_for_client(self, relayed: RelayedRequest, turn: ConversationTurn) -> web.StreamResponse:
        model = turn.model
        window = relayed.windows.known(model, relayed.route.provider).window
        summarizer = self._summarizer_for_client(relayed, turn, window)
        work = partial(self._client_compaction.make, turn.sent(relayed.dialect), window, model, summarizer)
        made = await self._compactor.patient.run(relayed.tenant, work)
        relayed.account.compactions.append("client")
        self.metrics.compacted("client", "compacted")
        await self._finish(relayed, EndedRequest(made.reply))
        await self._compactor.keep_receipts(relayed, turn, summarizer)
        if relayed.request.path == COMPACT_PATH:
            return web.json_response(compacted_answer(made.item), headers=relayed.extra)
        answer = response_answer(made.item, model)
        if not turn.read.field("stream"):
            return web.json_response(answer, headers=relayed.extra)
        headers = {**relayed.extra, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return web.Response(body=response_events(answer), headers=headers)

    def _summarizer_for_client(self, relayed: RelayedRequest, turn: ConversationTurn, window: int) -> Summarizer | None:
        """Return the writer of a summary that a client asks for: if possible, the conversation's own model."""
        if not self.summaries.is_own or relayed.request.path == COMPACT_PATH:  # where no model answers
            return self.summaries.configured()
        draft = turn.draft(relayed.dialect)
        if len(draft.ends) < _LEAST_ENTRIES:
            return None
        asked = self._as_sent(relayed, turn, draft.cut(len(draft.ends) - 1))  # without the trigger
        room = window - tokens_of(turn.conversation, len(asked.body))
        return self.summaries.now(relayed, asked, room, _CLIENT_SECONDS)

    async def _finish_refused(self, relayed: RelayedRequest, upstream: ClientResponse) -> None:
        await self._finish(relayed, EndedRequest(error=f"status {upstream.status}", is_refused=upstream.status >= 400))

    async def _send(self, relayed: RelayedRequest, body: bytes, charge: Charge | None = None) -> ClientResponse:
        headers = forwarded_headers(relayed.request.headers.items())
        if body is not relayed.body or relayed.is_rewritten:
            headers.popall("Content-Encoding", None)  # it was unpacked
        if relayed.hides_usage:
            headers["Accept-Encoding"] = "identity"  # so that the usage can be taken out of the stream
        is_lent = relayed.route.authorize(headers, relayed.account.caller.spoken)
        has_key = "Authorization" in headers or "x-api-key" in headers
        if relayed.turn is None and relayed.account.caller.spoken and (is_lent or (relayed.is_unread and not has_key)):
            await self._check_lent(relayed)
        charge = relayed.account.charge if charge is None else charge
        if charge is not None:
            words = relayed.words if body is relayed.body else body
            await self.budget.reserve(charge, words, relayed.dialect, relayed.account.model, relayed.route)
        upstream = await self.relay.send("POST", relayed.route.url(target_of(relayed.request)), headers, body)
        if charge is not None:
            charge.answered(upstream)
        relayed.route.check_key(upstream, headers, relayed.account.caller.spoken)
        return upstream

    async def _check_lent(self, relayed: RelayedRequest) -> None:
        """Refuse a request with a key that all share if nobody can read it, or if it names what is another tenant's."""
        words = None if relayed.is_unread else relayed.words
        if relayed.dialect is RESPONSES:
            await self.responses.check_names(relayed.tenant, words)
        else:
            await check_readable(words)

    async def _send_aside(self, relayed: RelayedRequest, body: bytes, charge: Charge | None) -> ClientResponse:
        """Send a request for a summary on behalf of another request."""
        try:
            return await self._send(relayed, body, charge)
        except Refused as refused:
            raise SummarizerError(refused.message) from refused

    def _make_body(self, relayed: RelayedRequest, turn: ConversationTurn) -> bytes:
        """Return the bytes that go upstream: the client's, with the view in force, hidden tools and cache markers."""
        draft = turn.draft(relayed.dialect)
        turn.drafted = len(draft.body)
        view = None if turn.view is None else turn.view.view_id
        recalling = self._compactor.recall_tools(relayed)
        tools = recalling and choose_tools(relayed.dialect, draft, recalling, is_compacted=view is not None)
        relayed.hidden = frozenset(tool.name for tool in tools)
        if tools:
            draft = offer_tools(relayed.dialect, draft, tools)
        draft = self._compactor.lower_answer(relayed, turn, draft)
        asked = draft if relayed.route.base_url in self._usage_refused else relayed.dialect.ask_usage(draft)
        relayed.hides_usage, draft = asked is not draft, asked
        body = draft.body
        if relayed.dialect.takes_markers and is_claude(turn.model):
            body = self._marking.marked(turn.conversation, draft, turn.model, relayed.route.cached_as)
        relayed.draft, relayed.view = draft, view
        return relayed.body if body == turn.body else body

    def _earlier(self, relayed: RelayedRequest, turn: ConversationTurn) -> Earlier | None:
        """Return the request before this one as it lies in the provider's cache; None for a first request."""
        dialect = relayed.dialect
        found = earlier_request(dialect, turn.draft(dialect), turn.conversation.lead)
        if found is None:
            return None
        return self._as_sent(relayed, turn, *found)

    def _as_sent(
        self, relayed: RelayedRequest, turn: ConversationTurn, draft: Draft, marker: Mapping[str, Any] | None = None
    ) -> Earlier:
        """Return the beginning of a request with the gateway's additions, as it is in the provider's cache."""
        dialect = relayed.dialect
        tools = self._compactor.recall_tools(relayed)
        if tools and can_offer(dialect, draft, is_compacted=turn.conversation.view is not None):
            draft = offer_tools(dialect, draft, tools)
        draft = self._compactor.lower_answer(relayed, turn, draft)
        if not dialect.takes_markers:
            return Earlier(draft.body)
        return Earlier(self._marking.marked_once(draft, turn.model, relayed.route.cached_as), marker)

    def _make_answering(self, relayed: RelayedRequest, sent: bytes) -> Answering:
        turn = relayed.turn
        if turn is None or not relayed.hidden:
            look_up = None
        else:
            conversation, store, first = turn.conversation, relayed.conversations.recorder.store, turn.drafted
            newest = first

            async def look_up(
                lookups: list[RecallLookup], tokens: int, sent: bytes
            ) -> tuple[dict[str, str], bytes | None]:
                nonlocal newest
                await relayed.wait_until_stored(turn)
                tokens = tokens or await asyncio.to_thread(count_request, relayed.dialect, sent)
                room = self._compactor.left_for_lookups(relayed, turn, tokens)
                is_lossless = self._compactor.is_lossless
                call = partial(self._compactor.call_lossless, relayed, turn) if is_lossless else None
                counter = counter_for(turn.model)
                window = relayed.windows.known(turn.model, relayed.route.provider).window
                search = partial(look_up_all, store, conversation.branch, lookups)
                run = partial(self._compactor.patient.run, relayed.tenant)
                found = await run(partial(search, room, counter, call, window))
                if not lacks_room(found):
                    return found, None
                own = int(tokens * newest / len(sent))
                freed = await self._compactor.free_for_lookups(relayed, turn, own, newest)
                if not freed:
                    return found, None
                body, newest = self._make_body(relayed, turn), turn.drafted
                turn.drafted = first  # as the tokens of the first answer count it
                return await run(partial(search, room + freed, counter, call, window)), body

        finish = partial(self._finish, relayed, sent=len(sent))
        relayed.answered = sent
        answering = Answering(relayed, finish, partial(self._send, relayed), look_up)
        relayed.abandon = answering.abandon
        if relayed.account.charge is not None:
            relayed.account.charge.said = answering.unread
        return answering

    # -- the store -----------------------------------------------------------------------------------------------------

    async def _finish(self, relayed: RelayedRequest, ended: EndedRequest, sent: int = 0) -> None:
        """Record the turn of a request, before its last byte goes to the client."""
        if relayed.is_over:  # clients hang up as soon as they have the last event
            return
        relayed.is_over = True
        ended = await self._counted(relayed, ended)
        turn, account, reply, is_estimated = relayed.turn, relayed.account, ended.reply, ended.is_estimated
        if reply is not None and reply.usage.prompt_tokens:
            cost = self._compactor.windows.cost
            account.note_usage(cost, *ended.before, reply.usage, is_estimated=is_estimated)
            ended = replace(ended, cost=account.cost)
        if relayed.dialect is RESPONSES and (names := (turn or relayed.whole)):
            self.responses.note(relayed.tenant, names.names(ended))
        if turn is None:
            if relayed.whole is not None and (problem := await self._backlog.finish(relayed.whole, ended)):
                relayed.warning = header_text(problem)
            return
        if turn.conversation.is_placed:
            account.session, account.branch = turn.conversation.session, turn.conversation.branch.id
        if reply is not None and account.usage is not None and not is_estimated:
            await self._compactor.note_answer(relayed, turn, ended.sent_tokens, reply.usage.output_tokens, sent)
            account.miss = self._find_miss(relayed, turn, reply.usage)
            ended = replace(ended, miss=account.miss)
        elif reply is not None:
            self._compactor.note_uncounted(relayed, turn, sent)
        if problem := await self._backlog.finish(turn, ended):
            relayed.warning = header_text(problem)

    async def _counted(self, relayed: RelayedRequest, ended: EndedRequest) -> EndedRequest:
        """Return the end of a request with our own count of its tokens if the upstream told none."""
        reply, sent = ended.reply, relayed.answered
        if reply is None or reply.usage.prompt_tokens or relayed.abandon is None or relayed.turn is None:
            return ended
        if sent is relayed.body and relayed.words is not None:
            sent = relayed.words
        counter = counter_for(relayed.account.model)

        def count() -> Usage:
            return Usage(count_request(relayed.dialect, sent), MessageCounter(counter).count(reply.message))

        # An exact counter may have to load its vocabulary first.
        is_slow = counter.exact or ended.is_large or not is_light(sent) or is_heavy(sent)
        usage = await asyncio.to_thread(count) if is_slow else count()
        return replace(ended, reply=replace(reply, usage=usage), is_estimated=True)

    def _find_miss(self, relayed: RelayedRequest, turn: ConversationTurn, usage: Usage) -> Miss | None:
        """Return what a request missed in the provider's cache, and remember it for the next one of its conversation.

        A fork is compared with the newest request that begins with the same question and reply.
        """
        conversation, before = turn.conversation, turn.conversation.cached
        conversation.cached = None
        if relayed.draft is None or relayed.answered is not relayed.sent_body:
            return None  # the client does not repeat the look-ups that it went on with
        rules = cache_rules(provider_of(relayed.route.cached_as, model=turn.model), turn.model)
        now = conversation.cached = cached_prompt(relayed, turn, relayed.draft, usage, rules)
        if len(now.history) > _LEAST_ENTRIES:
            opening = relayed.tenant, now.history[0], now.history[1]
            newest = self._openings.pop(opening, None)
            before = before or newest
            self._openings[opening] = now
            if len(self._openings) > _MOST_OPENINGS:
                self._openings.popitem(last=False)
        return None if before is None else find_miss(before, now, rules, model_rules(turn.model))

    async def keeping_problem(self) -> str:
        """Return why a request could not be kept now; an empty text if the journal or the database would take it."""
        if (stalled := self.journal.stalled) > _STALLED_SECONDS:
            return f"nothing was stored for {stalled:.0f} seconds, though {self.journal.waiting} entries wait for it"
        if self.journal.can_write():
            self._backlog.has_unkept = False
            return ""
        if self._backlog.has_unkept:  # a trial is small, and may find room where no request does
            return "neither the journal nor the database had room for a request"
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._writer.submit(partial(ConversationRecorder(self._store_of("local"), OPENAI).check_writable))
        except (EverlongError, OSError, TimeoutError):
            return "neither the journal nor the database can be written"
        return ""

    def _abandon(self, relayed: RelayedRequest) -> None:
        """Record the turn of a client that has hung up."""
        hung_up = EndedRequest(error="the client hung up", is_cut=True)
        self._backlog.do(self._finish(relayed, hung_up) if relayed.abandon is None else relayed.abandon())

    def look_up_views(self, tenant: str) -> None:
        """Have the next requests of a tenant sent under the views that are in force in the store now."""
        for (name, _), conversations in self._conversations.items():
            if name == tenant:
                conversations.look_up_views()

    def _store_of(self, tenant: str) -> Store:
        redact = redacted_message if self.settings.store.redact else None
        return Store(self.database, tenant, redact=redact, embedder=self._embedder)


async def _carries_conversation(relayed: RelayedRequest) -> bool:
    """Return whether a request of the Responses API carries its conversation; our compactions in it are unpacked."""
    try:
        words = relayed.words = await unpack(relayed.body, relayed.encoding, relayed.account.held)
    except Unreadable:
        return False
    values = await check_structure_apart(words)
    is_slow = is_heavy(words, values=values) or holds_compaction(words)
    whole, is_own = await asyncio.to_thread(_unfold, words) if is_slow else _unfold(words)
    if is_own and whole is not words:
        await check_structure_apart(whole)
        relayed.body, relayed.words, relayed.is_rewritten = whole, whole, True
    return is_own


def _unfold(words: bytes) -> tuple[bytes, bool]:
    """Return a request of the Responses API with our compactions unpacked, and whether it carries its conversation."""
    with suppress(BrokenBody):
        try:
            read_body(words, RESPONSES.list_name)
        except Overgrown as error:
            raise Refused(413, str(error), close=True) from error
    whole = unfold_compactions(words)
    return whole, is_stateless(whole)
