"""Keep conversations inside the window: ahead of time where there is time, in line where a request would not fit.

When a compaction is due is decided by `everlong.context.policy`. One that is made ahead begins when an answer has come.
While its summary is being written, requests go on under the old view; then the conversation is compacted as far as it
has come by now, so that what came meanwhile is not sent anew. That takes a moment, for which requests wait. A request
that would not fit, or was refused as too long, waits longer for it, or for one that is begun then; after that it is
compacted without a model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.context import ContextCompressor
from everlong.context.policy import HYGIENE_MESSAGES, Habits, Waiting, overflow_target
from everlong.errors import ContextOverflow, EverlongError, ProviderError, TargetUnreachable
from everlong.gateway.requests import AWAY_SECONDS, Passing, header_text
from everlong.gateway.summaries import Earlier, Summaries, spent_by
from everlong.gateway.window import RequestSize, Windows, tokens_in, tokens_of
from everlong.plugins.guard import GuardedEngine, compressors_in
from everlong.store.compaction import Occasion, see
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.conversations import Applied, LiveConversation
    from everlong.gateway.engines import Engines, GatewayPlugins, HostedEngine
    from everlong.gateway.recorder import ConversationRecorder, EndedRequest
    from everlong.gateway.requests import Visit
    from everlong.gateway.telemetry import Metrics
    from everlong.model import Message
    from everlong.store import Compacted

__all__ = ["Room"]

T = TypeVar("T")

_log = logging.getLogger("everlong.gateway")

_PATIENT_TRIES = 2
"""So often one that was refused waits for a model's summary: first by the window that is known, then by a share."""
_PLENTY = 0.8
_FULL = 0.98
"""More of the window than this is never filled on purpose."""
_CAREFUL = 1.1
"""Our own count may be too low by this."""
_LEAP = 0.1
"""Where a request seems to have grown by more than this share of the window, its words are counted."""
_AHEAD = 0.05
"""By this share of the window a compaction made ahead comes before it must."""
_AT_ONCE = 32
"""So many summaries are waited for at the same time, of all conversations together."""
_WAIT_SECONDS = 20.0
"""So long a request that does not fit waits for a compaction that is under way."""
_OWN_SHARE = 0.9
"""Of that time a conversation's own model may take this share, so that what follows is within it."""
_MOMENT_SECONDS = 1.0
"""So long any request waits for a compaction whose summary is written."""
_MOST_MADE = 10_000
_KEPT_SECONDS = 300.0
_LONG_KEPT_SECONDS = 3_600.0
"""So long providers keep a prompt in their cache, and so long where a client asks for an hour."""


class Room:
    """Makes room for the requests of one gateway."""

    def __init__(  # noqa: PLR0913 - each is one part of the gateway
        self,
        settings: Settings,
        windows: Windows,
        workers: ThreadPoolExecutor,
        summaries: Summaries,
        metrics: Metrics,
        earlier: Callable[[Passing, Visit], Earlier | None],
        *,
        clock: Callable[[], float] = time.monotonic,
        plugins: GatewayPlugins | None = None,
    ) -> None:
        self._settings = settings.compression
        self._is_on = settings.compression.enabled and settings.gateway.mode == "active"
        self._adapts = self._is_on and settings.compression.threshold == "auto"
        self.windows = windows
        self._workers = workers
        self._summaries = summaries
        self._metrics = metrics
        self._earlier = earlier
        self._clock = clock
        self._plugins = plugins if plugins is not None and plugins.are_wanted else None
        self._patient = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="everlong-summaries")
        self._ahead: dict[int, asyncio.Task[None]] = {}
        self._hearing: set[asyncio.Task[None]] = set()
        self._nearly_done: dict[int, asyncio.Task[Any]] = {}
        """By conversation, compactions whose summary is written and whose view is not in force yet."""
        self._made: set[int] = set()
        """The conversations that were compacted ahead and have not sent a request since."""

    async def close(self) -> None:
        """Wait a while for what is under way."""
        if under_way := {*self._ahead.values(), *self._hearing}:
            await asyncio.wait(under_way, timeout=10)
        self._patient.shutdown(wait=False, cancel_futures=True)

    async def make(self, passing: Passing, visit: Visit) -> None:
        """Compact a request before it is sent: if it would not fit, or if it is due and is written anew in any case.

        An engine of the user's choice is asked whether it is due.
        """
        if (not self._is_on and passing.engine is None) or visit.is_unwieldy:
            return
        line = visit.line
        if self._adapts:
            line.habits = line.habits or Habits()
            line.habits.hear(_new_messages(passing, visit))
        if (nearly_done := self._nearly_done.get(line.branch.id)) is not None:
            await asyncio.wait([nearly_done], timeout=_MOMENT_SECONDS)
        if line.branch.id in self._made:
            self._made.discard(line.branch.id)
            await self._caught_up(passing, visit)
        size = await self._size(passing, visit)
        is_due = size.is_too_large and line.messages >= HYGIENE_MESSAGES
        if passing.engine is not None and line.branch.id not in self._ahead:
            is_due = await self._by_engine(passing, partial(_asked_before, passing, visit, size)) or is_due
        elif passing.engine is None and size.is_considered and self._is_cold(visit):
            is_due = is_due or self._is_due(visit, size, True)
        line.sent_at = self._clock()
        if not is_due or not self._is_on:
            return
        await passing.stored(visit)
        await self._shrunk(passing, visit, "preflight", size)
        after = await self._size(passing, visit)
        if after.is_too_large:
            await self._compact(passing, visit, "preflight", after, target=int(_PLENTY * after.pace.room))

    async def answered(self, passing: Passing, visit: Visit, tokens: int, output: int, sent: int) -> None:
        """Take in what the API counted in a body of so many bytes, and compact ahead if the next one should be less.

        Args:
            passing: the request.
            visit: its conversation.
            tokens: what the API counted in the prompt.
            output: what it counted in the answer.
            sent: bytes of the body.
        """
        line = visit.line
        if line.habits is not None:
            line.habits.note(tokens, line.reported[1] if line.reported is not None else 0, self._clock())
        line.reported = (sent, tokens)
        is_left_alone = passing.engine is not None or visit.is_unwieldy
        if not self._is_on or is_left_alone or passing.dialect.compacts_upstream(visit.read):
            return
        size = self._sized(passing, visit, tokens + output)
        self._waiting(visit, size).sent(tokens, size.pace, size.prices)
        ident = line.branch.id
        if size.is_considered and ident not in self._ahead and self._is_due(visit, size, False):
            choose = partial(self._summaries.ahead, passing, size.window - size.tokens)
            self._begin(passing, visit, size, "threshold", choose)

    def heard(self, passing: Passing, visit: Visit, ended: EndedRequest, sent: int) -> None:
        """Have an engine of the user's choice hear what an answer used; nobody waits for what it makes of that.

        The prompt is that of the conversation, without what was looked up; where the API does not say how large a body
        of so many bytes is, by our estimate.
        """
        if passing.engine is None or ended.reply is None:
            return
        used = ended.reply.usage
        prompt = ended.sent_tokens or tokens_in(visit.line, sent)
        usage = {**used.to_dict(), "prompt_tokens": prompt, "total_tokens": prompt + used.output_tokens}
        task = asyncio.create_task(self._heard(passing, visit, usage))
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)

    async def _heard(self, passing: Passing, visit: Visit, usage: Mapping[str, Any]) -> None:
        assert passing.engine is not None  # noqa: S101 - asked before
        await passing.stored(visit)
        is_due = await self._by_engine(passing, partial(passing.engine.is_due_after, usage))
        if is_due and self._is_on and visit.line.branch.id not in self._ahead:
            tokens = int(usage.get("total_tokens") or 0)
            size = self._sized(passing, visit, tokens)
            choose = partial(self._summaries.ahead, passing, size.window - size.tokens)
            await self._begin(passing, visit, size, "threshold", choose)

    async def _by_engine(self, passing: Passing, ask: Callable[[], bool]) -> bool:
        """Ask an engine something; where that fails, nothing is due."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._patient, ask)
        except Exception as error:  # noqa: BLE001 - the request goes on as well as it can
            passing.warning = header_text(f"the context engine was not asked: {type(error).__name__}")
            _log.error("a context engine could not be asked: %s", type(error).__name__)
            return False

    async def engine_of(self, engines: Engines, passing: Passing, visit: Visit) -> HostedEngine | None:
        """Return the engine of a conversation; None where there is none, or it cannot be had."""
        line, keeper, provider = visit.line, passing.visits.keeper, passing.route.provider
        if line.session is None:
            await passing.stored(visit)
        work = partial(
            engines.of, keeper.store, line, visit.model, self.windows.window(visit.model, provider), provider
        )
        try:
            return await asyncio.get_running_loop().run_in_executor(self._patient, work)
        except Exception as error:  # noqa: BLE001 - as above
            passing.warning = header_text(f"no context engine: {type(error).__name__}")
            _log.error("a conversation has no context engine: %s", type(error).__name__)
            return None

    async def called(self, work: Callable[[], T]) -> T:
        """Do something that takes its time, beside everything else: answer calls of hidden tools, ask a model."""
        return await asyncio.get_running_loop().run_in_executor(self._patient, work)

    async def shorten(self, passing: Passing, visit: Visit, error: ProviderError, attempt: int, sent: int) -> bool:
        """Make a request of so many bytes that was refused as too long shorter; False where that does not help."""
        if not self._is_on or visit.is_unwieldy:
            return False
        await passing.stored(visit, AWAY_SECONDS)
        if isinstance(error, ContextOverflow):
            self.windows.learn(visit.model, passing.route.provider, error)
            if error.prompt_tokens:
                visit.line.reported = (sent, error.prompt_tokens)
        size = self._sized(passing, visit, tokens_in(visit.line, sent))
        target = overflow_target(min(size.tokens, size.pace.room), attempt - 1) if attempt else None
        if attempt < _PATIENT_TRIES:
            await self._shrunk(passing, visit, "overflow", size, target)
        else:
            await self._compact(passing, visit, "overflow", size, target=target)
        return len(visit.sent(passing.dialect)) < visit.drafted

    async def left_for_lookups(self, passing: Passing, visit: Visit, tokens: int, sent: bytes) -> int:
        """Return how many tokens may be added to a conversation in the middle of a turn.

        Args:
            passing: the request.
            visit: its conversation.
            tokens: what the conversation has come to by the API's count; 0 where the API does not tell.
            sent: the body that was sent last, which is counted then.
        """
        if not tokens:
            work = partial(_counted_words, passing, visit, sent)
            tokens = await asyncio.get_running_loop().run_in_executor(self._workers, work)
        window = self.windows.window(visit.model, passing.route.provider)
        left = int(_FULL * window) - tokens - passing.dialect.answer_tokens(visit.read)
        return max(0, int(left / _CAREFUL))

    # -- how large, and when -------------------------------------------------------------------------------------------

    async def _size(self, passing: Passing, visit: Visit) -> RequestSize:
        """Return how large a request is; counted by its words where its bytes say little, as at first."""
        body = visit.sent(passing.dialect)
        size = self._sized(passing, visit, tokens_in(visit.line, len(body)))
        reported = visit.line.reported
        is_leap = reported is not None and size.tokens - reported[1] > _LEAP * size.window
        if not size.is_considered or (reported is not None and not is_leap):
            return size
        counted = await asyncio.get_running_loop().run_in_executor(self._workers, _counted, passing, visit, body)
        return self._sized(passing, visit, min(size.tokens, counted))

    def _sized(self, passing: Passing, visit: Visit, tokens: int) -> RequestSize:
        answer = passing.dialect.answer_tokens(visit.read)
        return self.windows.size(visit.line, visit.model, passing.route.provider, tokens, answer)

    def _waiting(self, visit: Visit, size: RequestSize) -> Waiting:
        """Return what has happened in a conversation since its last compaction, whoever made that."""
        line = visit.line
        view = None if line.view is None else line.view.view_id
        if line.waiting is None or line.waiting_under != view:
            line.waiting, line.waiting_under = Waiting(left=None if view is None else size.tokens), view
        return line.waiting

    def _is_due(self, visit: Visit, size: RequestSize, is_cold: bool) -> bool:
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

    def _begin(
        self,
        passing: Passing,
        visit: Visit,
        size: RequestSize,
        reason: str,
        choose: Callable[[], Summarizer | None],
        target: int | None = None,
    ) -> asyncio.Task[None]:
        """Begin a compaction that goes on whoever waits for it."""
        ident = visit.line.branch.id
        work = self._made_ahead(passing, visit, size, reason, choose, visit.line.view, target)
        task = self._ahead[ident] = asyncio.create_task(work)
        task.add_done_callback(partial(self._over, ident))
        return task

    async def _made_ahead(
        self,
        passing: Passing,
        visit: Visit,
        size: RequestSize,
        reason: str,
        choose: Callable[[], Summarizer | None],
        under: Applied | None,
        target: int | None,
    ) -> None:
        is_ahead = reason == "threshold"
        await passing.stored(visit)
        if visit.line.view != under:
            return  # it was compacted while the request was under way
        summarizer, engine = choose(), None
        if is_ahead and summarizer is not None and passing.engine is None:
            work = partial(self._prepared, passing, visit, size, summarizer)
            engine = await asyncio.get_running_loop().run_in_executor(self._patient, work)
        if is_ahead and (own := asyncio.current_task()) is not None:
            self._nearly_done[visit.line.branch.id] = own  # storing may have made it a branch of its own
        await self._compact(passing, visit, reason, size, summarizer, target=target, engine=engine)
        if is_ahead:
            if len(self._made) >= _MOST_MADE:  # their requests find the view when they are stored
                self._made.clear()
            self._made.add(visit.line.branch.id)

    def _prepared(self, passing: Passing, visit: Visit, size: RequestSize, summarizer: Summarizer) -> ContextCompressor:
        """Return an engine that has had the summary of a conversation written."""
        engine, messages = self._compressor(visit, size), see(passing.visits.keeper.store, visit.line.branch).messages
        self._prepare(engine, passing, visit, size, summarizer, messages)
        engine.prepare(messages)
        return engine

    def _over(self, ident: int, task: asyncio.Task[None]) -> None:
        if self._ahead.get(ident) is task:
            del self._ahead[ident]
        for branch in [branch for branch, other in self._nearly_done.items() if other is task]:
            del self._nearly_done[branch]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a conversation could not be compacted: %s", type(error).__name__)

    async def _shrunk(
        self, passing: Passing, visit: Visit, reason: str, size: RequestSize, target: int | None = None
    ) -> None:
        """Compact a request that has to be shorter now; without a model where one takes too long."""
        under_way = self._ahead.get(visit.line.branch.id)
        if under_way is None:
            summarizer = self._summarizer_now(passing, visit, size)
            if summarizer is not None:
                under_way = self._begin(passing, visit, size, reason, lambda: summarizer, target)
        if under_way is not None:
            await self._waited(passing, visit, under_way, _WAIT_SECONDS)
        if len(visit.sent(passing.dialect)) >= (visit.drafted or len(visit.body)):
            await self._compact(passing, visit, reason, size, target=target)

    def _summarizer_now(self, passing: Passing, visit: Visit, size: RequestSize) -> Summarizer | None:
        """Return who writes the summary that a request waits for; None where that is nobody."""
        earlier = self._earlier(passing, visit) if self._summaries.is_own else None
        room = 0 if earlier is None else size.window - tokens_of(visit.line, len(earlier.body))
        return self._summaries.now(passing, earlier, room, _OWN_SHARE * _WAIT_SECONDS)

    async def _waited(self, passing: Passing, visit: Visit, under_way: asyncio.Task[None], seconds: float) -> None:
        """Wait for a compaction at most so long, and put the newest view into a request."""
        await asyncio.wait([under_way], timeout=seconds)
        await self._caught_up(passing, visit)

    async def _caught_up(self, passing: Passing, visit: Visit) -> None:
        """Put the newest view into a request."""
        work = partial(passing.visits.keeper.catch_up, visit.line)
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, work)
        except EverlongError as error:
            passing.warning = header_text(f"not compacted: {error}")
        passing.visits.note_view(visit.line)

    async def _compact(
        self,
        passing: Passing,
        visit: Visit,
        reason: str,
        size: RequestSize,
        summarizer: Summarizer | None = None,
        *,
        target: int | None = None,
        engine: ContextCompressor | None = None,
    ) -> None:
        line, keeper = visit.line, passing.visits.keeper
        occasion = Occasion(reason, line.session, visit.model, str(size.window))

        def work() -> str:
            if keeper.catch_up(line) and target is None:
                return "unchanged"  # it was compacted while this request came
            messages = see(keeper.store, line.branch).messages
            with passing.engine or nullcontext(engine) as ready:
                chosen = ready or self._compressor(visit, size)
                if engine is None or chosen is not engine:
                    self._prepare(chosen, passing, visit, size, summarizer, messages)
                options: dict[str, Any] = {"current_tokens": size.tokens, "force": reason == "overflow"}
                options["spent"] = partial(spent_by, summarizer)
                if target is not None:
                    options["target_tokens"] = max(1, target - compressors_in(chosen)[-1].overhead_tokens)
                options |= _place_options(keeper, line, chosen, reason)
                plugins = None if self._plugins is None else self._plugins.of(keeper.store.tenant)
                if plugins is not None:
                    options |= plugins.before_compaction(line.session, messages, reason=reason, tokens=size.tokens)
                done = _compacted(keeper, line, chosen, occasion, options)
                if passing.engine is not None and done.child is not None:
                    provider = passing.route.provider
                    passing.engine.goes_on(done.child, line.branch, visit.model, size.window, provider)
                if plugins is not None:
                    after = {"tokens_before": size.tokens, "tokens_after": chosen.last_prompt_tokens}
                    plugins.after_compaction(reason=reason, outcome=done.outcome, session_id=line.session, **after)
                return done.outcome

        passing.account.compactions.append(reason)
        outcome = "failed"
        asks = summarizer is not None and engine is None
        try:
            # Whoever takes its time must not keep the conversations of others waiting.
            workers = self._patient if asks or passing.engine is not None else self._workers
            outcome = await asyncio.get_running_loop().run_in_executor(workers, work)
        except EverlongError as error:
            passing.warning = header_text(f"not compacted: {error}")
        except Exception as error:  # noqa: BLE001 - the request goes on as well as it can
            passing.warning = header_text(f"not compacted: {type(error).__name__}")
            _log.error("a conversation could not be compacted: %s", type(error).__name__)
        passing.visits.note_view(visit.line)
        self._metrics.compacted(reason, outcome)

    def _compressor(self, visit: Visit, size: RequestSize) -> ContextCompressor:
        return ContextCompressor(size.window, settings=self._settings, model=visit.model)

    def _prepare(
        self,
        engine: ContextCompressor | GuardedEngine,
        passing: Passing,
        visit: Visit,
        size: RequestSize,
        summarizer: Summarizer | None,
        messages: list[Message],
    ) -> None:
        """Let the compressors behind an engine know what the whole request has, in the tokens of its model."""
        tools = visit.read.field("tools")
        for compressor in compressors_in(engine):
            compressor.summarizer = summarizer
            compressor.answer_tokens, compressor.prices = passing.dialect.answer_tokens(visit.read), size.prices
            compressor.calibrate(messages, size.tokens, tools if isinstance(tools, list) else None)
            if visit.line.habits is not None:
                compressor.habits = visit.line.habits
                compressor.adapt_threshold()


def _new_messages(passing: Passing, visit: Visit) -> list[Message]:
    """Return what a request says that the one before it did not; all of it where that is not known."""
    if visit.new is not None or (visit.line.habits is not None and visit.line.habits.calls):
        return [] if visit.new is None else visit.new.added.messages
    return [message for one in passing.dialect.said([e.value for e in visit.read.entries], None) for message in one]


def _compacted(
    keeper: ConversationRecorder,
    line: LiveConversation,
    engine: ContextCompressor | GuardedEngine,
    occasion: Occasion,
    options: dict[str, Any],
) -> Compacted:
    """Compact to a target; where what has to stay needs more than that, to as little as possible."""
    try:
        return keeper.compacted(line, engine, occasion, **options)
    except TargetUnreachable as unreachable:
        return keeper.compacted(line, engine, occasion, **{**options, "target_tokens": unreachable.least})


def _place_options(
    keeper: ConversationRecorder, line: LiveConversation, engine: ContextCompressor | GuardedEngine, reason: str
) -> dict[str, Any]:
    """Return where a conversation is compacted: one that nobody waits for, as far as it has come by now."""
    if reason != "threshold":  # whoever needs it now gives way to nobody who compacts the same conversation
        return {"lease_seconds": None}
    at = keeper.newest(line)
    if at == line.branch:
        return {"at": at}
    return {"at": at, "current_tokens": engine.estimate_tokens(see(keeper.store, at).messages)}


def _asked_before(passing: Passing, visit: Visit, size: RequestSize) -> bool:
    """Ask the engine of a conversation about a request as it would be sent."""
    from everlong.gateway.window import read_request  # noqa: PLC0415 - seldom needed

    assert passing.engine is not None  # noqa: S101 - asked before
    _, messages, _ = read_request(passing.dialect, visit.sent(passing.dialect))
    return passing.engine.is_due_before(messages, size.tokens)


def _counted(passing: Passing, visit: Visit, body: bytes) -> int:
    """Count the tokens of a request by its words, a little more than they are; what was reported counts as it is."""
    if visit.line.reported is not None and visit.new is not None:
        counter = MessageCounter(counter_for(visit.model))
        return visit.line.reported[1] + int(counter.total(visit.new.added.messages) * _CAREFUL)
    return _counted_words(passing, visit, body)


def _counted_words(passing: Passing, visit: Visit, body: bytes) -> int:
    from everlong.gateway.window import read_request  # noqa: PLC0415 - seldom needed

    _, messages, tools = read_request(passing.dialect, body)
    return int(MessageCounter(counter_for(visit.model)).total(messages, tools) * _CAREFUL)
