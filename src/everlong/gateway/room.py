"""Keep conversations inside the window: ahead of time where there is time, in line where a request would not fit.

When a compaction is due is decided by `everlong.context.pace`. One that is made ahead begins when an answer has come
and holds from the next request on that finds it, so the bytes of a conversation change only there. Requests that come
meanwhile go on under the old view. One that would not fit, or was refused as too long, waits for it a while; then it is
compacted without a model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.context import ContextCompressor
from everlong.context.pace import Waiting
from everlong.errors import ContextOverflow, EverlongError, ProviderError
from everlong.gateway.passing import Passing, header_text
from everlong.gateway.summaries import Summaries, spent_by
from everlong.gateway.windows import Size, Windows, tokens_in
from everlong.store.compact import see
from everlong.store.history import Occasion
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.lines import Applied
    from everlong.gateway.metrics import Metrics
    from everlong.gateway.visits import Visit
    from everlong.providers.base import Usage

__all__ = ["Room"]

_log = logging.getLogger("everlong.gateway")

_SHARES = (0.7, 0.45, 0.25)
"""What a request is cut to that was refused as too long more than once."""
_PLENTY = 0.8
_CAREFUL = 1.1
"""Our own count may be too low by this."""
_LEAP = 0.1
"""Where a request seems to have grown by more than this share of the window, its words are counted."""
_AHEAD = 0.05
"""By this share of the window a compaction made ahead comes before it must."""
_WAIT_SECONDS = 20.0
"""So long a request that does not fit waits for a compaction that is under way."""
_KEPT_SECONDS = 300.0
_LONG_KEPT_SECONDS = 3_600.0
"""So long providers keep a prompt in their cache, and so long where a client asks for an hour."""


class Room:
    """Makes room for the requests of one gateway."""

    def __init__(
        self,
        settings: Settings,
        windows: Windows,
        workers: ThreadPoolExecutor,
        summaries: Summaries,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings.compression
        self._is_on = settings.compression.enabled and settings.gateway.mode == "active"
        self.windows = windows
        self._workers = workers
        self._summaries = summaries
        self._metrics = metrics
        self._clock = clock
        self._ahead: dict[int, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Wait a while for what is under way."""
        if self._ahead:
            await asyncio.wait(self._ahead.values(), timeout=10)

    async def make(self, passing: Passing, visit: Visit) -> None:
        """Compact a request before it is sent: if it would not fit, or if it is due and is written anew in any case."""
        if not self._is_on or visit.is_unwieldy:
            return
        line = visit.line
        size = await self._size(passing, visit)
        is_due = size.is_too_large or (size.is_considered and self._is_cold(visit) and self._is_due(visit, size, True))
        line.sent_at = self._clock()
        if not is_due:
            return
        await passing.stored(visit)
        await self._shrunk(passing, visit, "preflight", size)
        after = await self._size(passing, visit)
        if after.is_too_large:
            await self._compact(passing, visit, "preflight", after, target=int(_PLENTY * after.pace.room))

    async def answered(self, passing: Passing, visit: Visit, usage: Usage, sent: int) -> None:
        """Take in what the API counted in a body of so many bytes, and compact ahead if the next one should be less."""
        line = visit.line
        line.reported = (sent, usage.prompt_tokens)
        if not self._is_on or visit.is_unwieldy or passing.dialect.compacts_upstream(visit.read):
            return
        size = self._sized(passing, visit, usage.prompt_tokens + usage.output_tokens)
        self._waiting(visit, size).sent(usage.prompt_tokens, size.pace, size.prices)
        ident = line.branch.id
        if size.is_considered and ident not in self._ahead and self._is_due(visit, size, False):
            self._begin(passing, visit, size)

    async def shorten(self, passing: Passing, visit: Visit, error: ProviderError, attempt: int, sent: int) -> bool:
        """Make a request of so many bytes that was refused as too long shorter; False where that does not help."""
        if not self._is_on or visit.is_unwieldy:
            return False
        await passing.stored(visit)
        if isinstance(error, ContextOverflow):
            self.windows.learn(visit.model, passing.route.provider, error)
            if error.prompt_tokens:
                visit.line.reported = (sent, error.prompt_tokens)
        size = self._sized(passing, visit, tokens_in(visit.line, sent))
        if attempt == 0:
            await self._shrunk(passing, visit, "overflow", size)
        else:
            target = int(min(size.tokens, size.pace.room) * _SHARES[attempt - 1])
            await self._compact(passing, visit, "overflow", size, target=target)
        return len(visit.sent(passing.dialect)) < visit.drafted

    # -- how large, and when -------------------------------------------------------------------------------------------

    async def _size(self, passing: Passing, visit: Visit) -> Size:
        """Return how large a request is; counted by its words where its bytes say little, as at first."""
        body = visit.sent(passing.dialect)
        size = self._sized(passing, visit, tokens_in(visit.line, len(body)))
        reported = visit.line.reported
        is_leap = reported is not None and size.tokens - reported[1] > _LEAP * size.window
        if not size.is_considered or (reported is not None and not is_leap):
            return size
        counted = await asyncio.get_running_loop().run_in_executor(self._workers, _counted, passing, visit, body)
        return self._sized(passing, visit, min(size.tokens, counted))

    def _sized(self, passing: Passing, visit: Visit, tokens: int) -> Size:
        answer = passing.dialect.answer_tokens(visit.read)
        return self.windows.size(visit.line, visit.model, passing.route.provider, tokens, answer)

    def _waiting(self, visit: Visit, size: Size) -> Waiting:
        """Return what has happened in a conversation since its last compaction, whoever made that."""
        line = visit.line
        view = None if line.view is None else line.view.view_id
        if line.waiting is None or line.waiting_under != view:
            line.waiting, line.waiting_under = Waiting(left=None if view is None else size.tokens), view
        return line.waiting

    def _is_due(self, visit: Visit, size: Size, is_cold: bool) -> bool:
        waiting, asks, ahead = self._waiting(visit, size), self._summaries.asks_model, int(_AHEAD * size.window)
        reason = waiting.reason(size.tokens, size.pace, size.prices, asks_model=asks, is_cold=is_cold, ahead=ahead)
        return reason is None

    def _is_cold(self, visit: Visit) -> bool:
        """Return whether the provider has let go of the conversation since its last request."""
        idle = self._clock() - visit.line.sent_at
        if not visit.line.sent_at or idle <= _KEPT_SECONDS:
            return False
        return idle > _LONG_KEPT_SECONDS or b'"1h"' not in visit.body

    # -- compacting ----------------------------------------------------------------------------------------------------

    def _begin(self, passing: Passing, visit: Visit, size: Size, reason: str = "threshold") -> asyncio.Task[None]:
        """Begin a compaction that nobody has to wait for."""
        ident = visit.line.branch.id
        work = self._made_ahead(passing, visit, size, reason, visit.line.view)
        task = self._ahead[ident] = asyncio.create_task(work)
        task.add_done_callback(partial(self._over, ident))
        return task

    async def _made_ahead(self, passing: Passing, visit: Visit, size: Size, reason: str, under: Applied | None) -> None:
        await passing.stored(visit)
        if visit.line.view != under:
            return  # it was compacted while the request was under way
        left = size.window - size.tokens
        is_waited_for = reason != "threshold"
        summarizer = self._summaries.now() if is_waited_for else self._summaries.ahead(passing, left)
        await self._compact(passing, visit, reason, size, summarizer)

    def _over(self, ident: int, task: asyncio.Task[None]) -> None:
        del task
        self._ahead.pop(ident, None)

    async def _shrunk(self, passing: Passing, visit: Visit, reason: str, size: Size) -> None:
        """Compact a request that has to be shorter now; without a model where one takes too long."""
        under_way = self._ahead.get(visit.line.branch.id)
        if under_way is None and self._summaries.now() is not None:
            under_way = self._begin(passing, visit, size, reason)
        if under_way is not None:
            await asyncio.wait([under_way], timeout=_WAIT_SECONDS)
            await self._caught_up(passing, visit)
        if len(visit.sent(passing.dialect)) >= (visit.drafted or len(visit.body)):
            await self._compact(passing, visit, reason, size)

    async def _caught_up(self, passing: Passing, visit: Visit) -> None:
        """Put the newest view into a request."""
        work = partial(passing.visits.keeper.catch_up, visit.line)
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, work)
        except EverlongError as error:
            passing.warning = header_text(f"not compacted: {error}")

    async def _compact(
        self,
        passing: Passing,
        visit: Visit,
        reason: str,
        size: Size,
        summarizer: Summarizer | None = None,
        *,
        target: int | None = None,
    ) -> None:
        line, keeper = visit.line, passing.visits.keeper
        occasion = Occasion(reason, line.session, visit.model, str(size.window))

        def work() -> str:
            if keeper.catch_up(line) and target is None:
                return "unchanged"  # it was compacted while this request came
            engine = self._engine(passing, visit, size, summarizer)
            options: dict[str, Any] = {"current_tokens": size.tokens, "force": reason == "overflow"}
            options["spent"] = partial(spent_by, summarizer)
            if target is not None:
                options["target_tokens"] = max(1, target - engine.overhead_tokens)
            if reason != "threshold":  # whoever needs it now gives way to nobody who compacts the same conversation
                options["lease_seconds"] = None
            return keeper.compacted(line, engine, occasion, **options).outcome

        passing.account.compactions.append(reason)
        outcome = "failed"
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(self._workers, work)
        except EverlongError as error:
            passing.warning = header_text(f"not compacted: {error}")
        except Exception as error:  # noqa: BLE001 - the request goes on as well as it can
            passing.warning = header_text(f"not compacted: {type(error).__name__}")
            _log.error("a conversation could not be compacted: %s", type(error).__name__)
        self._metrics.compacted(reason, outcome)

    def _engine(self, passing: Passing, visit: Visit, size: Size, summarizer: Summarizer | None) -> ContextCompressor:
        """Return an engine that knows what the whole request has, in the tokens of its model."""
        engine = ContextCompressor(size.window, settings=self._settings, summarizer=summarizer, model=visit.model)
        engine.answer_tokens, engine.prices = passing.dialect.answer_tokens(visit.read), size.prices
        tools = visit.read.field("tools")
        messages = see(passing.visits.keeper.store, visit.line.branch).messages
        engine.calibrate(messages, size.tokens, tools if isinstance(tools, list) else None)
        return engine


def _counted(passing: Passing, visit: Visit, body: bytes) -> int:
    """Count the tokens of a request by its words, a little more than they are; what was reported counts as it is."""
    from everlong.gateway.counting import read_request  # noqa: PLC0415 - seldom needed

    counter = MessageCounter(counter_for(visit.model))
    if visit.line.reported is not None and visit.new is not None:
        return visit.line.reported[1] + int(counter.total(visit.new.added.messages) * _CAREFUL)
    _, messages, tools = read_request(passing.dialect, body)
    return int(counter.total(messages, tools) * _CAREFUL)
