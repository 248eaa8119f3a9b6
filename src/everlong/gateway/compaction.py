"""The compaction of conversations: ahead of time if possible, or while a request waits because it would not fit.

`everlong.context.policy` decides when a compaction is due. Its summary is begun after an answer, so early that it is
there by then. Requests go on under the old view until the compaction is due; then the conversation is compacted as far
as it has come. A request that would not fit, or was refused as too long, waits; if the summary takes too long, it is
compacted without a model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.agent.tools.hidden_tools import TOOLS, HiddenTool
from everlong.context import ContextCompressor
from everlong.context.oversized import SpillLimits
from everlong.context.policy import CACHE_SECONDS, HYGIENE_MESSAGES, NEAR_THRESHOLD, Habits, Waiting, overflow_target
from everlong.context.summarizers import ExtractiveSummarizer
from everlong.errors import ContextOverflow, EverlongError, ProviderError, TargetUnreachable
from everlong.gateway.recall import LOSSLESS_TOOLS, can_hide, reader_of
from everlong.gateway.requests import AWAY_SECONDS, RelayedRequest, header_text
from everlong.gateway.summaries import Earlier, PreparedSummary, Summaries, spent_by
from everlong.gateway.window import RequestSize, Windows, lower_answer, read_request, tokens_in, tokens_of
from everlong.lossless import LosslessEngine
from everlong.lossless.frontier import sizes_for
from everlong.plugins.manager import BUILT_IN_LOSSLESS, LOSSLESS
from everlong.store.compaction import Occasion, see, tagged_context
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.context.summarizers import WrittenSummary
    from everlong.gateway.body import Draft
    from everlong.gateway.conversations import AppliedView, LiveConversation
    from everlong.gateway.recorder import ConversationRecorder
    from everlong.gateway.requests import ConversationTurn
    from everlong.gateway.telemetry import Metrics
    from everlong.model import Message
    from everlong.store import Store

__all__ = ["ConversationCompactor"]

T = TypeVar("T")

_log = logging.getLogger("everlong.gateway")

_PATIENT_TRIES = 2
"""Tries in which a refused request waits for a model's summary: by the known window first, then by a share."""
_PLENTY = 0.8
_CAREFUL = 1.1
"""Factor by which our own count may be too low."""
_LEAP = 0.1
"""Share of the window: if a request seems to have grown by more, its words are counted."""
_AHEAD = 0.05
"""Share of the window by which a compaction made ahead comes early."""
_WAIT_SECONDS = 60.0
"""Seconds that a request that does not fit waits for a compaction under way."""
_UNKNOWN_SECONDS = 60.0
"""Seconds that a model takes for a summary, before one was measured."""
_NEWEST = 0.3
"""Weight of the newest summary in the mean seconds of a model's summaries."""
_SPARE = 1.25
"""Factor by which a summary may take longer, or the conversation grow faster, than before."""
_SOONEST = 0.5
"""Share of the threshold from which on a first summary may begin; nobody knows if a shorter conversation needs one."""
_MOST_PREPARED = 1_000
"""Conversations whose summaries are kept in memory until they are due."""
_MOST_SPILLED = 24_000_000
"""Bytes of the largest body whose messages are spilled; larger ones would hold up other conversations."""
_UNWIELDY_SENT = 3_000_000
"""Bytes of an unwieldy body under its view, from which on no engine is asked."""
_MOST_KEPT = 0.9
"""Share of the room that is given to what a compaction leaves, however large that is."""
_MOST_MADE = 10_000
_MOMENT = 0.3
"""Seconds for which a compaction ahead waits for a request that follows at once, so that its view is a step nearer."""
_LONG_KEPT_SECONDS = 3_600.0
"""Seconds that providers keep a prompt in their cache, by default and if a client asks for an hour."""


class _Threads:
    """Threads for the work of all tenants, of which each may take a share, so that none keeps others waiting."""

    def __init__(self, most: int, share: int) -> None:
        self.pool = ThreadPoolExecutor(most, "everlong-compact")
        self._shares = defaultdict[str, asyncio.Semaphore](partial(asyncio.Semaphore, share))

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """Do slow work in a thread, as soon as its tenant's share has one."""
        async with self._shares[tenant]:
            return await asyncio.get_running_loop().run_in_executor(self.pool, work)


class ConversationCompactor:
    """The compactor of one gateway: it makes room for requests in the windows of their models."""

    def __init__(
        self,
        settings: Settings,
        windows: Windows,
        summaries: Summaries,
        metrics: Metrics,
        earlier: Callable[[RelayedRequest, ConversationTurn], Earlier | None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings.compression
        self._is_on = settings.compression.enabled
        self._adapts = self._is_on and settings.compression.threshold == "auto"
        self.windows = windows
        self._summaries = summaries
        self._metrics = metrics
        self._earlier = earlier
        self._clock = clock
        self.is_lossless = settings.context.engine in {LOSSLESS, BUILT_IN_LOSSLESS}
        """True if conversations are compacted by the lossless engine."""
        self._workers = _Threads(4, 2)
        """Threads for what a processor does; more of them would take the interpreter from the event loop."""
        self.patient = _Threads(256, 32)
        """Threads that mostly wait: for a model's summary, or for the store, as calls of hidden tools do."""
        self._ahead: dict[int, asyncio.Task[None]] = {}
        self._preparing: set[int] = set()
        """Conversations in `_ahead` for which the lossless engine only does a piece of the next compaction's work."""
        self._counting: set[asyncio.Task[None]] = set()
        self._summary_seconds: dict[tuple[str, str], float] = {}
        """The mean seconds of the last summaries, by provider and model of the conversation."""
        self._made: set[int] = set()
        """Conversations that were compacted ahead and have not sent a request since."""
        self._due: dict[int, tuple[RelayedRequest, ConversationTurn, RequestSize]] = {}
        """Conversations in `_ahead` that are to be compacted once their summary is there, with their newest request."""
        self._prepared: dict[int, PreparedSummary] = {}

    async def close(self) -> None:
        """Wait a while for the compactions under way."""
        if under_way := {*self._ahead.values(), *self._counting}:
            await asyncio.wait(under_way, timeout=10)
        for threads in (self._workers, self.patient):
            threads.pool.shutdown(wait=False, cancel_futures=True)

    async def make_room(self, relayed: RelayedRequest, turn: ConversationTurn) -> None:
        """Compact a request before it is sent: if it would not fit, or if it is due and the cache is cold."""
        if not self._is_on or not turn.conversation.is_placed:
            return
        if turn.is_unwieldy and not await self._spill_unwieldy(relayed, turn):
            return
        conversation = turn.conversation
        if self._adapts:
            conversation.habits = conversation.habits or Habits()
            conversation.habits.hear(_new_messages(relayed, turn))
        if conversation.branch.id in self._made:
            self._made.discard(conversation.branch.id)
            await self._catch_up(relayed, turn)
        size = await self._size(relayed, turn)
        # New messages that no compaction could fit are spilled first.
        if size.is_too_large and await self._spill(relayed, turn, size, newest_only=True):
            size = await self._size(relayed, turn)
        is_due = size.is_too_large and conversation.messages >= HYGIENE_MESSAGES and not self._can_go_on(turn, size)
        if size.is_considered and self._is_cold(turn):
            is_due = is_due or self._is_due(turn, size, is_cold=True)
        conversation.sent_at = self._clock()
        if not is_due:
            return
        await relayed.wait_until_stored(turn)
        await self._shrink(relayed, turn, "preflight", size)
        after = await self._size(relayed, turn)
        if after.is_too_large:
            await self._compact(relayed, turn, "preflight", after, target=int(_PLENTY * after.pace.room))
            after = await self._size(relayed, turn)
        if after.is_too_large:
            await self._spill(relayed, turn, after)

    async def note_answer(
        self, relayed: RelayedRequest, turn: ConversationTurn, tokens: int, output: int, sent: int
    ) -> None:
        """Note the tokens that the API counted in a body of ``sent`` bytes and in the answer (``output``).

        Compact ahead if the next body should be smaller.
        """
        conversation = turn.conversation
        if conversation.habits is not None:
            conversation.habits.note(
                tokens, conversation.reported[1] if conversation.reported is not None else 0, self._clock()
            )
        before = conversation.reported[1] if conversation.reported is not None else tokens
        conversation.growth = conversation.growth.after(tokens - before, self._clock())
        conversation.reported = (turn.drafted or sent, tokens)  # as later bodies are measured: without hidden tools
        relayed.windows.heard(turn.model, relayed.route.provider, tokens, turn.asked, is_taken=True)
        if not self._is_on or turn.is_unwieldy or relayed.dialect.compacts_upstream(turn.read):
            return
        if not conversation.is_placed:  # it was far from a compaction when it came
            return
        ident = conversation.branch.id
        if ident in self._made:  # this request was the last one before the compaction
            return
        size = self._size_for(relayed, turn, tokens + output)
        self._waiting_in(turn, size).sent(tokens, size.pace, size.prices)
        is_due = self._is_due(turn, size)
        if is_due and ident not in self._preparing:
            self._due[ident] = (relayed, turn, size)
        if ident in self._ahead:
            return
        choose = partial(self._summaries.ahead, relayed, size.window - size.tokens)
        if is_due or (self._is_due_soon(relayed, turn, size) and self._find_prepared(turn) is None):
            self._begin_compaction(relayed, turn, size, "threshold", choose)
        elif self.is_lossless and size.tokens - conversation.ahead_at >= sizes_for(size.window).leaf:
            conversation.ahead_at = size.tokens
            self._preparing.add(ident)
            task = self._ahead[ident] = asyncio.create_task(self._work_ahead(relayed, turn, size, choose))
            task.add_done_callback(partial(self._on_done, ident))

    def note_uncounted(self, relayed: RelayedRequest, turn: ConversationTurn, sent: int) -> None:
        """Note an answer for which the API counted nothing: a large request is counted here, and nobody waits."""

        async def count() -> None:
            size = await self._size(relayed, turn)
            if size.is_considered:
                await self.note_answer(relayed, turn, size.tokens, 0, sent)

        task = asyncio.create_task(count())
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    async def _work_ahead(
        self,
        relayed: RelayedRequest,
        turn: ConversationTurn,
        size: RequestSize,
        choose: Callable[[], Summarizer | None],
    ) -> None:
        """Have the lossless engine do a piece of the next compaction's work, for which nobody waits."""
        await relayed.wait_until_stored(turn)
        summarizer = choose()

        def work() -> None:
            engine = self._lossless_engine(relayed.conversations.recorder.store, turn, size.window)
            engine.summarizer = summarizer
            engine.last_prompt_tokens = size.tokens
            engine.work_ahead()

        try:
            await self.patient.run(relayed.tenant, work)
        finally:
            await self.keep_receipts(relayed, turn, summarizer)

    async def shorten(
        self, relayed: RelayedRequest, turn: ConversationTurn, error: ProviderError, attempt: int, sent: int
    ) -> bool:
        """Shorten a request of ``sent`` bytes that was refused as too long; False if that does not help."""
        if not self._is_on:
            return False
        was_placed = turn.conversation.is_placed
        await relayed.wait_until_stored(turn, AWAY_SECONDS)
        if not turn.conversation.is_placed:
            return False
        if isinstance(error, ContextOverflow) and self._learn_limit(relayed, turn, error, sent):
            return True  # it fits with a shorter answer
        if not was_placed and turn.view is not None:
            return True  # it is shorter under the view that was found now
        size = self._size_for(relayed, turn, tokens_in(turn.conversation, sent))
        if await self._spill(relayed, turn, size, newest_only=True):
            return True
        if _is_unwieldy(relayed, turn):
            return False
        target = overflow_target(min(size.tokens, size.pace.room), attempt - 1) if attempt else None
        if attempt < _PATIENT_TRIES:
            await self._shrink(relayed, turn, "overflow", size, target)
        else:
            await self._compact(relayed, turn, "overflow", size, target=target)
        if len(turn.sent(relayed.dialect)) >= turn.drafted:
            await self._spill(relayed, turn, size)
        return len(turn.sent(relayed.dialect)) < turn.drafted

    def _learn_limit(self, relayed: RelayedRequest, turn: ConversationTurn, error: ContextOverflow, sent: int) -> bool:
        """Learn from the refusal of a body of ``sent`` bytes; return whether only its answer was too long."""
        relayed.windows.learn(turn.model, relayed.route.provider, error)
        tokens, asked = tokens_in(turn.conversation, sent), turn.asked
        if relayed.windows.heard(turn.model, relayed.route.provider, tokens, asked, is_taken=False):
            return True
        told = error.prompt_tokens or 0  # some APIs mean the prompt, others prompt and answer together
        if told and abs(told - tokens) <= abs(told - tokens - asked):
            turn.conversation.reported = (turn.drafted or sent, told)
        return False

    def left_for_lookups(self, relayed: RelayedRequest, turn: ConversationTurn, tokens: int) -> int:
        """Return how many tokens may be added to a conversation of so many in the middle of a turn."""
        return max(0, int(self._size_for(relayed, turn, tokens).left / _CAREFUL))

    async def free_for_lookups(self, relayed: RelayedRequest, turn: ConversationTurn, tokens: int, drafted: int) -> int:
        """Compact a conversation in whose window look-ups found no room; return by how many tokens it is shorter.

        It was sent in a body of ``drafted`` bytes, which hold so many ``tokens``.
        """
        conversation, size = turn.conversation, self._size_for(relayed, turn, tokens)
        is_short = size.tokens < NEAR_THRESHOLD * size.pace.threshold or conversation.messages < HYGIENE_MESSAGES
        if is_short or not self._is_on or turn.is_unwieldy or relayed.dialect.compacts_upstream(turn.read):
            return 0
        await self._shrink(relayed, turn, "preflight", size)
        freed = tokens - int(tokens * len(turn.sent(relayed.dialect)) / drafted)
        if freed > 0:
            self._made.add(conversation.branch.id)
        return max(0, freed)

    # -- how large, and when -------------------------------------------------------------------------------------------

    async def _size(self, relayed: RelayedRequest, turn: ConversationTurn) -> RequestSize:
        """Return the size of a request; by its words if its bytes tell little, as at first."""
        body = turn.sent(relayed.dialect)
        size = self._size_for(relayed, turn, tokens_in(turn.conversation, len(body)))
        reported = turn.conversation.reported
        is_leap = reported is not None and size.tokens - reported[1] > _LEAP * size.window
        if not size.is_considered or (reported is not None and not is_leap):
            return size
        counted = await asyncio.to_thread(_count, relayed, turn, body)
        return self._size_for(relayed, turn, min(size.tokens, counted))

    def _size_for(self, relayed: RelayedRequest, turn: ConversationTurn, tokens: int) -> RequestSize:
        """Return the size and the limits of a request of so many tokens."""
        answer = relayed.dialect.answer_tokens(turn.read)
        return relayed.windows.size(turn.conversation, turn.model, relayed.route.provider, tokens, answer)

    def _waiting_in(self, turn: ConversationTurn, size: RequestSize) -> Waiting:
        """Return the record of a conversation since its last compaction, whoever made that."""
        conversation = turn.conversation
        view = conversation.view_id
        if conversation.waiting is None or conversation.waiting_under != view:
            conversation.waiting, conversation.waiting_under = Waiting(left=None if view is None else size.tokens), view
        return conversation.waiting

    def _is_due(
        self, turn: ConversationTurn, size: RequestSize, *, is_cold: bool = False, growth: tuple[int, float] = (0, 0.0)
    ) -> bool:
        """Return whether a conversation is to be compacted, now or after a growth by so many tokens in some steps."""
        waiting, pace = self._waiting_in(turn, size), size.pace
        grown, steps = growth
        tokens, ahead = size.tokens + grown, int(_AHEAD * size.window)
        if tokens < min(pace.threshold, pace.room - ahead):
            return False
        meanwhile = Waiting(waiting.left, waiting.paid)
        meanwhile.sent(size.tokens + grown // 2, pace, size.prices, steps)
        asks = self._summaries.asks_model
        return meanwhile.reason(tokens, pace, size.prices, asks_model=asks, is_cold=is_cold, ahead=ahead) is None

    def _is_due_soon(self, relayed: RelayedRequest, turn: ConversationTurn, size: RequestSize) -> bool:
        """Return whether a summary begun now would be there just in time, and the conversation is worth one."""
        if size.pace.is_set or not self._summaries.asks_model:
            return False
        # The lossless engine compacts at once, and its summaries are written piece by piece.
        soonest = NEAR_THRESHOLD if self.is_lossless else _SOONEST * (self._waiting_in(turn, size).left is None)
        if size.tokens < int(soonest * size.pace.threshold):
            return False
        seconds = self._summary_seconds.get((relayed.route.provider, turn.model), _UNKNOWN_SECONDS)
        return self._is_due(turn, size, growth=turn.conversation.growth.in_seconds(_SPARE * seconds))

    def _note_seconds(self, relayed: RelayedRequest, turn: ConversationTurn, began: float) -> None:
        """Take in a summary that was begun at a time and is there now."""
        name, seconds = (relayed.route.provider, turn.model), self._clock() - began
        if len(self._summary_seconds) >= _MOST_MADE:
            self._summary_seconds.clear()
        mean = self._summary_seconds.get(name, seconds)
        self._summary_seconds[name] = mean + _NEWEST * (seconds - mean)

    def _is_cold(self, turn: ConversationTurn) -> bool:
        """Return whether the provider's cache has dropped the conversation since its last request."""
        idle = self._clock() - turn.conversation.sent_at
        if not turn.conversation.sent_at or idle <= CACHE_SECONDS:
            return False
        return idle > _LONG_KEPT_SECONDS or b'"1h"' not in turn.body

    # -- messages that no window holds ---------------------------------------------------------------------------------

    async def _spill_unwieldy(self, relayed: RelayedRequest, turn: ConversationTurn) -> bool:
        """Spill the new messages of a request that is too large for an engine; return whether it is no longer."""
        if not _is_unwieldy(relayed, turn):
            return True
        if not self._is_on or len(turn.body) > _MOST_SPILLED:
            return False
        size = self._size_for(relayed, turn, tokens_in(turn.conversation, len(turn.sent(relayed.dialect))))
        await self._spill(relayed, turn, size, newest_only=True)
        if _is_unwieldy(relayed, turn):
            await self._spill(relayed, turn, size)
        return not _is_unwieldy(relayed, turn)

    async def _spill(
        self, relayed: RelayedRequest, turn: ConversationTurn, size: RequestSize, *, newest_only: bool = False
    ) -> bool:
        """Put stubs in the place of messages that do not fit; return whether that made the request shorter.

        With ``newest_only`` the new messages are spilled, if no compaction of the others would make room for them.
        """
        await relayed.wait_until_stored(turn)
        conversation, recorder, before = turn.conversation, relayed.conversations.recorder, turn.draft(relayed.dialect)
        pace = size.pace
        kept = pace.need - pace.tail if newest_only else tokens_of(conversation, conversation.fixed_bytes)
        # Only the tools that the gateway hides can read a whole message.
        reader = reader_of(self.recall_tools(relayed)) if can_hide(relayed.dialect, before) else ""
        room = max(1, int((pace.room - min(kept, int(_MOST_KEPT * pace.room))) / _CAREFUL))
        limits = SpillLimits(room, MessageCounter(counter_for(turn.model)), reader, newest_only)
        occasion = Occasion("oversized", conversation.session, turn.model, str(size.window))
        work, outcome = partial(recorder.spill, conversation, limits, occasion), "failed"
        try:
            outcome = (await asyncio.to_thread(work)).outcome
        except EverlongError as error:
            relayed.warning = header_text(f"not shortened: {error}")
        except Exception as error:  # noqa: BLE001 - the request goes on as well as it can
            relayed.warning = header_text(f"not shortened: {type(error).__name__}")
            _log.error("a message that is too large could not be shortened: %s", type(error).__name__)
        if outcome == "unchanged":
            return False
        relayed.account.compactions.append("oversized")
        _log.info("%s compacted: a message is larger than the window", conversation.session)
        relayed.conversations.note_view(conversation)
        self._metrics.compacted("oversized", outcome)
        return len(turn.sent(relayed.dialect)) < len(before.body)

    # -- compacting ----------------------------------------------------------------------------------------------------

    def _begin_compaction(
        self,
        relayed: RelayedRequest,
        turn: ConversationTurn,
        size: RequestSize,
        reason: str,
        choose: Callable[[], Summarizer | None],
        target: int | None = None,
    ) -> asyncio.Task[None]:
        """Begin a compaction that goes on whether or not somebody waits for it."""
        ident = turn.conversation.branch.id
        work = self._compact_ahead(relayed, turn, size, reason, choose, turn.conversation.view, target)
        task = self._ahead[ident] = asyncio.create_task(work)
        task.add_done_callback(partial(self._on_done, ident))
        return task

    async def _compact_ahead(
        self,
        relayed: RelayedRequest,
        turn: ConversationTurn,
        size: RequestSize,
        reason: str,
        choose: Callable[[], Summarizer | None],
        under: AppliedView | None,
        target: int | None,
    ) -> None:
        ident, is_ahead = turn.conversation.branch.id, reason == "threshold"
        await relayed.wait_until_stored(turn)
        if turn.conversation.view != under:
            return  # it was compacted while the request was under way
        prepared = self._find_prepared(turn)
        summarizer = choose() if prepared is None else None
        try:
            if is_ahead and summarizer is not None:
                work, began = partial(self._write_summary, relayed, turn, size, summarizer), self._clock()
                written = await self.patient.run(relayed.tenant, work)
                if written is not None or self.is_lossless:
                    self._note_seconds(relayed, turn, began)
                if written is not None:
                    prepared = PreparedSummary(written, spent_by(summarizer), turn.conversation.view_id)
            if is_ahead and ident not in self._due and not self.is_lossless:
                if len(self._prepared) >= _MOST_PREPARED:
                    del self._prepared[next(iter(self._prepared))]
                if prepared is not None:
                    self._prepared[ident] = prepared
                return
            self._prepared.pop(ident, None)
            await asyncio.sleep(_MOMENT if is_ahead and summarizer is None else 0)
            newest = self._due.get(ident, (relayed, turn, size)) if is_ahead else (relayed, turn, size)
            await newest[0].wait_until_stored(newest[1])
            await self._compact(*newest[:2], reason, newest[2], summarizer, target=target, prepared=prepared)
            if is_ahead:
                if len(self._made) >= _MOST_MADE:  # their requests find the view when they are stored
                    self._made.clear()
                self._made.add(ident)
        finally:
            await self.keep_receipts(relayed, turn, summarizer)

    def _find_prepared(self, turn: ConversationTurn) -> PreparedSummary | None:
        """Return the summary that was written ahead for a conversation, unless it got another view since."""
        prepared = self._prepared.get(turn.conversation.branch.id)
        return prepared if prepared is not None and prepared.under == turn.conversation.view_id else None

    async def keep_receipts(self, relayed: RelayedRequest, turn: ConversationTurn, writer: Summarizer | None) -> None:
        """Store what a writer of summaries was paid for a conversation."""
        await relayed.wait_until_stored(turn)
        self._metrics.paid(spent_by(writer) or 0.0)
        store, session = relayed.conversations.recorder.store, turn.conversation.session
        if session is not None:
            await asyncio.to_thread(self._summaries.keep_receipts, store, session, writer, relayed.account.charge)

    def _write_summary(
        self, relayed: RelayedRequest, turn: ConversationTurn, size: RequestSize, summarizer: Summarizer
    ) -> WrittenSummary | None:
        """Have the summary of a conversation written; return it, unless the engine keeps it in its graph."""
        store, at = relayed.conversations.recorder.store, turn.conversation.branch
        engine = self._compressor(relayed, turn, size)
        messages = tagged_context(store, at) if isinstance(engine, LosslessEngine) else see(store, at).messages
        self._prepare(engine, turn, size, summarizer, messages)
        engine.prepare(messages)
        return engine.prepared

    def _on_done(self, ident: int, task: asyncio.Task[None]) -> None:
        if self._ahead.get(ident) is task:
            del self._ahead[ident]
            self._preparing.discard(ident)
            self._due.pop(ident, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a conversation could not be compacted: %s", type(error).__name__)

    async def _shrink(
        self, relayed: RelayedRequest, turn: ConversationTurn, reason: str, size: RequestSize, target: int | None = None
    ) -> None:
        """Compact a request that has to be shorter now; without a model if that takes too long."""
        if turn.conversation.branch.id in self._made:  # while the request was stored
            await self._catch_up(relayed, turn)
            if len(turn.sent(relayed.dialect)) < (turn.drafted or len(turn.body)):
                return
        under_way = self._ahead.get(turn.conversation.branch.id)
        if under_way is None:
            summarizer = self._choose_summarizer(relayed, turn, size)
            if summarizer is not None or self._find_prepared(turn) is not None:
                under_way = self._begin_compaction(relayed, turn, size, reason, lambda: summarizer, target)
        if under_way is not None:
            self._due[turn.conversation.branch.id] = (relayed, turn, size)
            await asyncio.wait([under_way], timeout=_WAIT_SECONDS)
            await self._catch_up(relayed, turn)
        if len(turn.sent(relayed.dialect)) >= (turn.drafted or len(turn.body)):
            await self._compact(relayed, turn, reason, size, target=target)

    def _choose_summarizer(
        self, relayed: RelayedRequest, turn: ConversationTurn, size: RequestSize
    ) -> Summarizer | None:
        """Return the writer of a summary that a request waits for; None if no model writes it."""
        earlier = self._earlier(relayed, turn) if self._summaries.is_own else None
        room = 0 if earlier is None else size.window - tokens_of(turn.conversation, len(earlier.body))
        return self._summaries.now(relayed, earlier, room)

    async def _catch_up(self, relayed: RelayedRequest, turn: ConversationTurn) -> None:
        """Put the newest view into a request."""
        try:
            await asyncio.to_thread(relayed.conversations.recorder.catch_up, turn.conversation)
        except EverlongError as error:
            relayed.warning = header_text(f"not compacted: {error}")
        relayed.conversations.note_view(turn.conversation)

    async def _compact(
        self,
        relayed: RelayedRequest,
        turn: ConversationTurn,
        reason: str,
        size: RequestSize,
        summarizer: Summarizer | None = None,
        *,
        target: int | None = None,
        prepared: PreparedSummary | None = None,
    ) -> None:
        work = partial(self._run, relayed, turn, reason, size, summarizer, target, prepared)
        relayed.account.compactions.append(reason)
        outcome = "failed"
        asks, began = summarizer is not None and prepared is None, self._clock()
        try:
            # A slow model must not hold up other conversations.
            outcome = await (self.patient if asks else self._workers).run(relayed.tenant, work)
            if asks:
                self._note_seconds(relayed, turn, began)
            _log.info("%s %s at %s tokens (%s)", turn.conversation.session, outcome, f"{size.tokens:,}", reason)
        except EverlongError as error:
            relayed.warning = header_text(f"not compacted: {error}")
        except Exception as error:  # noqa: BLE001 - the request goes on as well as it can
            relayed.warning = header_text(f"not compacted: {type(error).__name__}")
            _log.error("a conversation could not be compacted: %s", type(error).__name__)
        relayed.conversations.note_view(turn.conversation)
        turn.conversation.ahead_at = 0
        self._metrics.compacted(reason, outcome)

    def _run(
        self,
        relayed: RelayedRequest,
        turn: ConversationTurn,
        reason: str,
        size: RequestSize,
        summarizer: Summarizer | None,
        target: int | None,
        prepared: PreparedSummary | None,
    ) -> str:
        """Compact a conversation, and return the outcome; not in the loop's thread."""
        conversation, recorder = turn.conversation, relayed.conversations.recorder
        if _is_late(recorder, conversation, prepared):
            recorder.store.undo(recorder.newest_place(conversation))
        elif recorder.catch_up(conversation) and target is None:
            return "unchanged"  # it was compacted while this request came
        occasion = Occasion(reason, conversation.session, turn.model, str(size.window))
        messages = see(recorder.store, conversation.branch).messages
        engine = self._compressor(relayed, turn, size)
        self._prepare(engine, turn, size, summarizer, messages)
        options: dict[str, Any] = {"current_tokens": size.tokens, "force": reason == "overflow"}
        engine.prepared = None if prepared is None else prepared.written
        options["spent"] = partial(spent_by, summarizer) if prepared is None else lambda: prepared.spent
        if target is not None:
            options["target_tokens"] = max(1, target - engine.overhead_tokens)
        options |= _place_options(recorder, conversation, engine, reason)
        if reason == "threshold" and not self.is_lossless:  # there, less in the tail means more summaries
            engine.coming_tokens = conversation.growth.step
        try:
            return recorder.compact(conversation, engine, occasion, **options).outcome
        except TargetUnreachable as unreachable:  # the part that has to stay is larger
            options["target_tokens"] = unreachable.least
            return recorder.compact(conversation, engine, occasion, **options).outcome

    def _compressor(self, relayed: RelayedRequest, turn: ConversationTurn, size: RequestSize) -> ContextCompressor:
        """Return the built-in engine that the user chose, for one compaction."""
        if not self.is_lossless:
            return ContextCompressor(size.window, settings=self._settings, model=turn.model)
        return self._lossless_engine(relayed.conversations.recorder.store, turn, size.window)

    def _lossless_engine(self, store: Store, turn: ConversationTurn, window: int) -> LosslessEngine:
        """Return the lossless engine over the graph of a conversation."""
        conversation = turn.conversation
        engine = LosslessEngine(window, settings=self._settings, model=turn.model)
        engine.attach(store.graph(lambda: conversation.branch))
        engine.author.expects_model = self._summaries.asks_model
        return engine

    def lower_answer(self, relayed: RelayedRequest, turn: ConversationTurn, draft: Draft) -> Draft:
        """Return a body that asks for no longer an answer than its upstream takes beside such a prompt."""
        asked, tokens = relayed.dialect.answer_tokens(turn.read), tokens_in(turn.conversation, len(draft.body))
        awaits = self._is_under_way(turn) and _can_lower(turn)
        most = relayed.windows.lowered(turn.model, relayed.route.provider, tokens, asked, is_awaiting=awaits)
        turn.asked = most
        return draft if most == asked else lower_answer(draft, most)

    def _can_go_on(self, turn: ConversationTurn, size: RequestSize) -> bool:
        """Return whether a request that is too large is sent all the same, while its summary is being written."""
        return (size.fits if _can_lower(turn) else size.left > 0) and self._is_under_way(turn)

    def _is_under_way(self, turn: ConversationTurn) -> bool:
        """Return whether a summary of a conversation is being written ahead."""
        return turn.conversation.branch.id in self._ahead and turn.conversation.branch.id not in self._preparing

    def recall_tools(self, relayed: RelayedRequest) -> tuple[HiddenTool, ...]:
        """Return the tools by which the model of a request looks things up: the lossless engine's own always."""
        return LOSSLESS_TOOLS if self.is_lossless else TOOLS if relayed.route.recalls else ()

    def call_lossless(
        self, relayed: RelayedRequest, turn: ConversationTurn, name: str, arguments: Mapping[str, Any]
    ) -> str:
        """Return the answer to a call of one of the lossless engine's tools."""
        store = relayed.conversations.recorder.store
        window = relayed.windows.known(turn.model, relayed.route.provider).window
        engine = self._lossless_engine(store, turn, window)
        messages = see(store, turn.conversation.branch).messages
        engine.last_prompt_tokens = engine.estimate_tokens(messages)
        return engine.handle_tool_call(name, dict(arguments), messages=messages)

    def _prepare(
        self,
        compressor: ContextCompressor,
        turn: ConversationTurn,
        size: RequestSize,
        summarizer: Summarizer | None,
        messages: list[Message],
    ) -> None:
        """Tell an engine the size of the whole request, in the tokens of its model."""
        tools = turn.read.field("tools")
        compressor.summarizer = summarizer
        compressor.answer_tokens, compressor.prices = size.answer, size.prices
        compressor.calibrate(messages, size.tokens, tools if isinstance(tools, list) else None)
        if turn.conversation.habits is not None:
            compressor.habits = turn.conversation.habits
            compressor.adapt_threshold()


def _is_unwieldy(relayed: RelayedRequest, turn: ConversationTurn) -> bool:
    """Return whether a request is too large for an engine, also under its view."""
    return turn.is_unwieldy and len(turn.sent(relayed.dialect)) > _UNWIELDY_SENT


def _can_lower(turn: ConversationTurn) -> bool:
    """Return whether an answer may be shorter without a smaller budget for thinking, with which no prompt is cached."""
    thinking = turn.read.field("thinking")
    return not (isinstance(thinking, dict) and "budget_tokens" in thinking)


def _new_messages(relayed: RelayedRequest, turn: ConversationTurn) -> list[Message]:
    """Return the messages that are new in a request; all of them if that is not known."""
    if turn.new is not None or (turn.conversation.habits is not None and turn.conversation.habits.calls):
        return [] if turn.new is None else turn.new.messages
    return [message for one in relayed.dialect.said([e.value for e in turn.read.entries], None) for message in one]


def _is_late(recorder: ConversationRecorder, conversation: LiveConversation, prepared: PreparedSummary | None) -> bool:
    """Return whether a model's summary is there for which a request could not wait, and got lines instead."""
    if prepared is None or not prepared.written.prose:
        return False
    if recorder.view_in_force(conversation.branch) in {None, conversation.view_id}:
        return False
    return recorder.store.compactions(branch=conversation.branch.id)[-1].summarizer == ExtractiveSummarizer.name


def _place_options(
    recorder: ConversationRecorder, conversation: LiveConversation, engine: ContextCompressor, reason: str
) -> dict[str, Any]:
    """Return the options that say where to compact: if no request waits, as far as the conversation has come by now."""
    if reason != "threshold":  # whoever needs it now gives way to nobody who compacts the same conversation
        return {"lease_seconds": None}
    at = recorder.newest_place(conversation)
    return {"at": at, "current_tokens": engine.estimate_tokens(see(recorder.store, at).messages)}


def _count(relayed: RelayedRequest, turn: ConversationTurn, body: bytes) -> int:
    """Estimate the tokens of a request by its words, on the high side; reported tokens count as they are."""
    if turn.conversation.reported is not None and turn.new is not None:
        counter = MessageCounter(counter_for(turn.model))
        return turn.conversation.reported[1] + int(counter.total(turn.new.messages) * _CAREFUL)
    _, messages, tools = read_request(relayed.dialect, body)
    return int(MessageCounter(counter_for(turn.model)).total(messages, tools) * _CAREFUL)
