"""The gateway's one job: take a request, keep its conversation inside the window, pass it on, store what came of it.

Everything of ours that can fail fails aside: then the request goes on as well as it can, with a header that says so.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import ClientError, web

from everlong.context import ContextCompressor
from everlong.errors import ConfigError, ContextOverflow, EverlongError, ProviderError, RequestTooLarge
from everlong.gateway.answering import Answering
from everlong.gateway.dialects import Dialect
from everlong.gateway.keeper import Ended, Keeper
from everlong.gateway.marking import marked
from everlong.gateway.raw import Broken
from everlong.gateway.recalling import Lookup, looked_up, offered
from everlong.gateway.relay import Relay, answered, forwarded_headers
from everlong.gateway.visits import Visit, Visits
from everlong.gateway.windows import Windows
from everlong.gateway.writing import Writer
from everlong.providers.auxiliary import summarizer_for
from everlong.providers.failures import classify_answer
from everlong.store import Store
from everlong.store.history import Occasion

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientResponse

    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.routing import Route, Routes
    from everlong.store.database import Database

__all__ = ["Gateway"]

WARNING = "x-everlong-warning"
_TRIES = 3
"""So often a request that the upstream finds too long is made shorter and sent again."""
_SHARES = (0.7, 0.45, 0.25)
_PLENTY = 0.8
_PEEK_STATUS = frozenset({400, 413, 422, 500})


@dataclass(slots=True)
class _Passing:
    """A request on its way through."""

    request: web.Request
    dialect: Dialect
    route: Route
    body: bytes
    visits: Visits
    visit: Visit | None = None
    warning: str = ""

    @property
    def extra(self) -> dict[str, str]:
        """Headers of our own on the answer."""
        return {WARNING: self.warning} if self.warning else {}


class Gateway:
    """Conversations of many clients on their way to models."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        routes: Routes,
        *,
        summarizer: Callable[[], Summarizer | None] | None = None,
    ) -> None:
        self.settings = settings
        self.windows = Windows(settings)
        self._routes = routes
        self._database = database
        self._summarizer = summarizer or (lambda: _auxiliary(settings))
        self._relay = Relay()
        self._writer = Writer(database)
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="everlong-compact")
        self._visits: dict[tuple[str, str], Visits] = {}
        self._background: dict[int, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Get ready."""
        await self._relay.start()

    async def close(self) -> None:
        """Finish what is under way, and let go of everything."""
        if self._background:
            await asyncio.wait(self._background.values(), timeout=10)
        await self._relay.close()
        await asyncio.to_thread(self._writer.close)
        self._workers.shutdown(wait=False, cancel_futures=True)

    # -- a request -----------------------------------------------------------------------------------------------------

    async def converse(self, request: web.Request, dialect: Dialect, tenant: str) -> web.StreamResponse:
        """Pass on a request that carries a conversation."""
        body = await request.read()
        visits = self._visits_of(tenant, dialect)
        passing = _Passing(request, dialect, self._routes.default(dialect.name), body, visits)
        try:
            passing.visit = await visits.enter(body, hint_of(request))
            passing.route = self._routes.find(dialect.name, passing.visit.model)
        except Broken:
            pass  # not a conversation; the upstream says what is wrong with it
        except (EverlongError, OSError) as error:
            passing.warning = _header_text(f"not stored: {error}")
        try:
            return await self._passed_on(passing)
        except (ClientError, TimeoutError, OSError) as error:
            await self._finish(passing, Ended(error=str(error) or type(error).__name__))
            said = f"the upstream {passing.route.shown} could not be reached: {str(error) or type(error).__name__}"
            return web.json_response(dialect.error(502, said), status=502)
        except asyncio.CancelledError:
            self._abandon(passing)
            raise

    async def _passed_on(self, passing: _Passing) -> web.StreamResponse:
        visit = passing.visit
        if visit is not None:
            await self._make_room(passing, visit)
        for attempt in range(_TRIES + 1):
            sent = passing.body if visit is None else self._outgoing(passing, visit)
            upstream = await self._send(passing, sent)
            if upstream.status == 200:
                return await self._answering(passing, sent).answer(upstream)
            data = await upstream.read()
            if visit is not None and visit.line.cache is not None:
                visit.line.cache.forget()
            if visit is not None and attempt < _TRIES and upstream.status in _PEEK_STATUS:
                error = classify_answer(upstream.status, data)
                if isinstance(error, ContextOverflow | RequestTooLarge) and await self._shorten(
                    passing, visit, error, attempt, len(sent)
                ):
                    continue
            await self._finish(passing, Ended(error=f"status {upstream.status}"))
            return answered(upstream, data, passing.extra)
        raise AssertionError("unreachable")

    async def _send(self, passing: _Passing, body: bytes) -> ClientResponse:
        headers = forwarded_headers(passing.request.headers.items())
        passing.route.authorize(headers)
        return await self._relay.send("POST", passing.route.url(passing.request.path_qs), headers, body)

    def _outgoing(self, passing: _Passing, visit: Visit) -> bytes:
        """The bytes that go upstream: the client's own, with the view in force, with markers where it has none."""
        provider = passing.route.provider
        if provider == "custom" and passing.dialect.name == "anthropic":
            provider = "anthropic"  # whoever speaks this API takes its markers
        sent = visit.sent(passing.dialect)
        if passing.route.recalls:
            sent = offered(passing.dialect, sent)
        return marked(visit.line, sent, visit.model, provider, self.settings.prompt_caching)

    def _answering(self, passing: _Passing, sent: bytes) -> Answering:
        visit = passing.visit
        if visit is None or not passing.route.recalls:
            look_up = None
        else:
            line, store = visit.line, passing.visits.keeper.store

            async def look_up(lookups: list[Lookup]) -> dict[str, str]:
                await self._settled(passing, visit)
                work = partial(_all_looked_up, store, line.session, lookups)
                return await asyncio.get_running_loop().run_in_executor(self._workers, work)

        return Answering(
            passing.request,
            passing.dialect,
            sent,
            lambda: passing.extra,
            lambda ended: self._finish(passing, ended, len(sent)),
            look_up,
            lambda body: self._send(passing, body),
        )

    # -- the window ----------------------------------------------------------------------------------------------------

    async def _make_room(self, passing: _Passing, visit: Visit) -> None:
        """Compact before the request is sent, if it would not fit; soon, if it will not fit soon."""
        if not self.settings.compression.enabled:
            return
        dialect, route = passing.dialect, passing.route
        size = self.windows.size(
            visit.line, len(visit.sent(dialect)), visit.model, route.provider, dialect.answer_tokens(visit.read)
        )
        if size.is_too_large:
            await self._settled(passing, visit)
            await self._compact(passing, visit, "preflight", size.window)
            after = self.windows.size(
                visit.line, len(visit.sent(dialect)), visit.model, route.provider, dialect.answer_tokens(visit.read)
            )
            if after.is_too_large:
                await self._compact(passing, visit, "preflight", size.window, int(_PLENTY * size.room))
        elif size.is_due and visit.line.branch.id not in self._background:
            task = asyncio.create_task(self._ahead(passing, visit, size.window))
            self._background[visit.line.branch.id] = task
            task.add_done_callback(partial(self._over, visit.line.branch.id))

    async def _ahead(self, passing: _Passing, visit: Visit, window: int) -> None:
        """Compact while the answer comes; the view holds from the next request on."""
        await self._settled(passing, visit)
        await self._compact(passing, visit, "threshold", window)

    async def _shorten(self, passing: _Passing, visit: Visit, error: ProviderError, attempt: int, sent: int) -> bool:
        """Make a request that was refused as too long shorter; False where that does not help."""
        await self._settled(passing, visit)
        if isinstance(error, ContextOverflow):
            self.windows.learn(visit.model, passing.route.provider, error)
            if error.prompt_tokens:
                visit.line.reported = (sent, error.prompt_tokens)
        size = self.windows.size(
            visit.line, sent, visit.model, passing.route.provider, passing.dialect.answer_tokens(visit.read)
        )
        target = None if attempt == 0 else int(min(size.tokens, size.room) * _SHARES[attempt - 1])
        await self._compact(passing, visit, "overflow", size.window, target)
        return len(visit.sent(passing.dialect)) < sent

    async def _compact(
        self, passing: _Passing, visit: Visit, reason: str, window: int, target: int | None = None
    ) -> None:
        line, keeper = visit.line, passing.visits.keeper
        occasion = Occasion(reason, line.session, visit.model, str(window))

        def work() -> None:
            engine = ContextCompressor(
                window, settings=self.settings.compression, summarizer=self._summarizer(), model=visit.model
            )
            options = {"force": True} | ({} if target is None else {"target_tokens": target})
            keeper.compacted(line, engine, occasion, **options)

        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, work)
        except EverlongError as error:
            passing.warning = _header_text(f"not compacted: {error}")

    # -- the store -----------------------------------------------------------------------------------------------------

    async def _settled(self, passing: _Passing, visit: Visit) -> None:
        """Wait until a request is stored."""
        await asyncio.wait([passing.visits.begin(visit)])

    async def _finish(self, passing: _Passing, ended: Ended, sent: int = 0) -> None:
        """Store what became of a request, before its last byte goes to the client."""
        visit = passing.visit
        if visit is None:
            return
        if ended.reply is not None and ended.reply.usage.prompt_tokens:
            visit.line.reported = (sent, ended.reply.usage.prompt_tokens)
        try:
            await passing.visits.finish(visit, ended)
        except (EverlongError, OSError) as problem:
            passing.warning = _header_text(f"not stored: {problem}")

    def _abandon(self, passing: _Passing) -> None:
        """The client has hung up."""
        task = asyncio.get_running_loop().create_task(
            self._finish(passing, Ended(error="the client hung up", is_cut=True))
        )
        self._background[id(task)] = task
        task.add_done_callback(partial(self._over, id(task)))

    def _over(self, ident: int, task: asyncio.Task[None]) -> None:
        del task
        self._background.pop(ident, None)

    def _visits_of(self, tenant: str, dialect: Dialect) -> Visits:
        key = (tenant, dialect.name)
        if key not in self._visits:
            keeper = Keeper(Store(self._database, tenant), dialect)
            self._visits[key] = Visits(keeper, self._writer)
        return self._visits[key]


def hint_of(request: web.Request) -> str | None:
    """The name by which a client knows its conversation."""
    headers = request.headers
    own = headers.get("x-everlong-session")
    if own:
        return own[:200]
    claude = headers.get("x-claude-code-session-id")
    if claude:
        agent = headers.get("x-claude-code-agent-id", "")
        return f"{claude}/{agent}"[:200]
    for name in ("thread-id", "session-id", "x-session-affinity"):
        if value := headers.get(name):
            return value[:200]
    return None


def _all_looked_up(store: Store, session: str | None, lookups: list[Lookup]) -> dict[str, str]:
    return {one.id: looked_up(store, session, one) for one in lookups}


def _auxiliary(settings: Settings) -> Summarizer | None:
    """Whoever the settings name writes summaries, with its own key; nobody where that leads to nothing."""
    try:
        return summarizer_for(settings)
    except (ConfigError, ProviderError):
        return None


def _header_text(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")[:300]
