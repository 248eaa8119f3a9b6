"""Turns on their way from the relay into the journal and the store.

When the upstream has answered, `EndedRequest.turn` makes the one record of the turn, a `FinishedTurn` of
`everlong.store.turns`. That value goes into the journal inside a `JournalEntry`, comes back from there if need be, and
is handed to the store.

This module is the relay's side of a boundary: `journal`, `writer` and `recorder` share no memory with it, so that they
can run in a process of their own. Everything that crosses it is a plain value that can be pickled: `JournalEntry` and
its `FinishedTurn`, `UnstoredTurn` and `UnstoredResponse` on the way there, `RecordedTurn` on the way back.

While the database is away, turns stay in the journal (see `journal`), and `upkeep` stores them once it is back. A
client waits for the database only if the journal cannot be written, or if too many turns wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from everlong.errors import EverlongError
from everlong.gateway.auth import Refused
from everlong.gateway.journal import AWAY
from everlong.gateway.recorder import BodyNeeded
from everlong.store.turns import FinishedTurn

if TYPE_CHECKING:
    from everlong.caching.misses import Miss
    from everlong.gateway.account import RequestAccount
    from everlong.gateway.journal import Journal, JournalEntry
    from everlong.gateway.recorder import ConversationRecorder, RecordedTurn
    from everlong.gateway.writer import StoreWriter
    from everlong.model import Message
    from everlong.providers.base import Reply, Usage
    from everlong.store.turns import TurnEnd

__all__ = ["Backlog", "EndedRequest", "OpenTurn", "TurnQueue", "log_unkept_answer"]

_log = logging.getLogger("everlong.gateway")

_PATIENCE = 1.0
"""Seconds after which a request is stored although the upstream has not answered yet: all of it, which is a copy."""
_CATCH_UP_SECONDS = 1.0
"""Seconds that a request waits at most for a database that is slow or away."""
_MOST_WAITING, _MOST_BYTES = 2_000, 64_000_000
"""Turns that may wait for the database, and their bytes, before clients have to wait."""
_LAST_SECONDS = 10.0
"""Seconds that a gateway waits for its last turns when it stops."""
_RETRY_SECONDS = 5
"""Seconds after which a client may try again if its request could not be kept."""


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """The end of a request, in the terms of its provider."""

    reply: Reply | None = None
    error: str | None = None
    is_cut: bool = False
    """True if the client hung up."""
    cost: float = 0.0
    """US dollars."""
    partial: Message | None = None
    """The part of a cancelled or broken reply that arrived."""
    miss: Miss | None = None
    """The part of the prompt that was not read from the provider's cache, and the reason."""
    is_audited: bool = False
    """True if audit mode passed the request on unchanged."""
    before: tuple[Usage, ...] = ()
    """The usage of earlier answers that only looked something up, oldest first."""
    is_large: bool = False
    """True if recording it would hold up the event loop noticeably."""

    @property
    def used(self) -> Usage | None:
        """The usage of all its answers together; None if it is not known."""
        return None if self.reply is None else sum(self.before, self.reply.usage)

    @property
    def sent_tokens(self) -> int:
        """Tokens of the prompt as the client has it, without looked-up text."""
        first = self.before[0] if self.before else None if self.reply is None else self.reply.usage
        return 0 if first is None else first.prompt_tokens

    def turn(
        self, clean: Callable[[Message], Message], model: str | None, began: float, names: Sequence[str] = ()
    ) -> FinishedTurn:
        """Return the record of the turn for journal and store; ``clean`` takes secrets out of the reply."""
        status: TurnEnd = "done" if self.reply is not None else "cancelled" if self.is_cut else "failed"
        reply = self.partial if self.reply is None else self.reply.message
        return FinishedTurn(
            None if reply is None else clean(reply),
            model=model,
            usage=self._usage(),
            cost=self.cost,
            status=status,
            error=self.error,
            began=began,
            names=names,
        )

    def _usage(self) -> dict[str, Any] | None:
        used = self.used
        if used is None:
            return None
        missed = {} if self.miss is None else {"cache_miss": self.miss.to_dict()}
        audited = {"audited": True} if self.is_audited else {}
        looked_up = {"sent_tokens": self.sent_tokens} if self.before else {}
        return {**used.to_dict(), **looked_up, **missed, **audited}


_last_time = 0.0


def _unique_time() -> float:
    """Return the time, a little later than any that was returned before: turns are found by when they began."""
    global _last_time  # noqa: PLW0603 - there is one clock
    _last_time = max(time.time(), math.nextafter(_last_time, math.inf))
    return _last_time


@dataclass(slots=True, kw_only=True)
class OpenTurn:
    """A request whose end is not stored yet; no two of one gateway begin at the same time."""

    stored: asyncio.Future[None] | None = None
    """Done when the request is stored; None as long as that has not begun."""
    began: float = field(default_factory=_unique_time)
    timer: asyncio.TimerHandle | None = None
    noted: int | None = None
    """The number of the journal entry that was written before the request went upstream."""
    is_large: bool = False
    """True if encoding it would hold up the event loop noticeably."""

    @property
    def model(self) -> str:
        """The model that the client asks for; empty if it names none."""
        raise NotImplementedError

    @property
    def weight(self) -> int:
        """Approximate bytes that it keeps in memory until it is stored."""
        return 0

    def names(self, ended: EndedRequest) -> tuple[str, ...]:
        """Return the names by which later requests may refer to the reply."""
        del ended
        return ()


T = TypeVar("T")
TurnT = TypeVar("TurnT", bound=OpenTurn)


class TurnQueue(ABC, Generic[TurnT]):
    """The turns of one tenant and one API, on their way into the journal and the store."""

    def __init__(self, recorder: ConversationRecorder, writer: StoreWriter, journal: Journal) -> None:
        self.recorder = recorder
        self._writer = writer
        self._journal = journal
        self._unsettled: set[asyncio.Future[Any]] = set()
        """Futures of ended turns that are not stored yet."""

    # -- to be defined for each kind of turn ---------------------------------------------------------------------------

    @abstractmethod
    def _entry(self, turn: TurnT, past: FinishedTurn, *, is_open: bool) -> JournalEntry:
        """Return a journal entry from which the turn can be stored later; without secrets."""

    @abstractmethod
    def _recording(self, turn: TurnT, past: FinishedTurn, *, is_open: bool) -> Callable[[], RecordedTurn]:
        """Return the work that stores a turn: a method of the recorder with plain values as its arguments."""

    def _recording_whole(self, turn: TurnT, past: FinishedTurn, *, is_open: bool) -> Callable[[], RecordedTurn]:
        """Return the work that stores a turn of which the recorder wants all of the request."""
        return self._recording(turn, past, is_open=is_open)

    @abstractmethod
    def _settled(self, turn: TurnT, recorded: RecordedTurn | None, *, is_away: bool) -> None:
        """Take in where a turn was stored; None if it was not, because the database ``is_away`` or failed."""

    def _is_stored(self, turn: TurnT) -> bool:
        """Return whether the messages of a request are in the database."""
        stored = turn.stored
        return stored is not None and stored.done() and not stored.cancelled() and stored.exception() is None

    # -- before the request goes upstream ------------------------------------------------------------------------------

    async def note(self, turn: TurnT) -> None:
        """Write a request into the journal, or else into the database, before it goes upstream.

        Raises:
            EverlongError: neither takes it.
            OSError: as above.
        """
        if self._is_stored(turn):
            return
        try:
            turn.noted = await _run(turn, lambda: self._journal.put_request(self._open_entry(turn)))
        except OSError:
            await self.begin(turn)

    def _open_entry(self, turn: TurnT) -> JournalEntry:
        return self._entry(turn, self._open(turn), is_open=True)

    @staticmethod
    def _open(turn: TurnT) -> FinishedTurn:
        return FinishedTurn(model=turn.model or None, began=turn.began)

    def turn_away(self, turn: TurnT) -> None:
        """Forget a request that is not passed on."""
        _stop_timer(turn)

    def _watch(self, turn: TurnT) -> None:
        """Have a request stored soon, even if the upstream takes its time."""
        turn.timer = asyncio.get_running_loop().call_later(_PATIENCE, self._overdue, turn)

    def _overdue(self, turn: TurnT) -> None:
        self.begin(turn)

    def begin(self, turn: TurnT) -> asyncio.Future[None]:
        """Store a request before the upstream has answered; the future is done when it is stored."""
        return turn.stored if turn.stored is not None else self._store(turn, self._open(turn), is_open=True)

    # -- after the upstream has answered -------------------------------------------------------------------------------

    async def make_entry(self, turn: TurnT, ended: EndedRequest) -> JournalEntry:
        """Return the journal entry with the record of an ended turn."""

        def make() -> JournalEntry:
            past = ended.turn(self.recorder.store.cleaned, turn.model or None, turn.began, turn.names(ended))
            return self._entry(turn, past, is_open=False)

        turn.is_large = turn.is_large or ended.is_large
        return await _run(turn, make)

    async def finish(self, turn: TurnT, entry: JournalEntry) -> asyncio.Future[Any]:
        """Write an ended turn into the journal, then start to store it; the future is done when it is stored.

        The journal has the turn when this returns, so nobody has to wait for the future. `OSError` says that the
        journal cannot be written.
        """
        number = await _run(turn, lambda: self._journal.put(entry))
        self._drop_note(turn)
        stored = self.finish_in_store(turn, entry.turn)
        self._unsettled.add(stored)
        stored.add_done_callback(self._unsettled.discard)
        stored.add_done_callback(partial(self._journal.settle, number, entry))
        return stored

    def finish_in_store(self, turn: TurnT, past: FinishedTurn) -> asyncio.Future[Any]:
        """Store an ended turn without the journal; the future is done when it is stored."""
        if turn.stored is None:
            return self._store(turn, past, is_open=False)
        # Its beginning is stored before that, and nobody has to wait for the result.
        return self._writer.submit(partial(self.recorder.finish_begun, past), can_wait=True)

    def hold(self, turn: TurnT, entry: JournalEntry) -> bool:
        """Keep an entry in memory because nothing else takes it; False if too many are kept."""
        return self._journal.hold(entry, turn.noted)

    async def catch_up(self) -> None:
        """Wait until the replies that clients have are in the store, so that a heavy request that follows one finds it.

        Other requests are looked up in the thread that stores the replies, after them.
        """
        if self._unsettled:
            self._writer.hurry()
            await asyncio.wait(self._unsettled, timeout=_CATCH_UP_SECONDS)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _store(self, turn: TurnT, past: FinishedTurn, *, is_open: bool) -> asyncio.Future[None]:
        _stop_timer(turn)
        recording = self._writer.submit(self._recording(turn, past, is_open=is_open), can_wait=not is_open)
        turn.stored = asyncio.ensure_future(self._settle(turn, past, recording, is_open=is_open))
        turn.stored.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, if nobody waits for it
        return turn.stored

    async def _settle(
        self, turn: TurnT, past: FinishedTurn, recording: asyncio.Future[RecordedTurn], *, is_open: bool
    ) -> None:
        """Take in where a turn was stored; give the recorder all of its request if it needs that."""
        try:
            try:
                recorded = await recording
            except BodyNeeded:
                recorded = await self._writer.submit(self._recording_whole(turn, past, is_open=is_open), can_wait=True)
        except BaseException as error:
            is_away = isinstance(error, AWAY)
            if is_away:
                turn.stored = None  # it may be tried again
            self._settled(turn, None, is_away=is_away)
            raise
        self._settled(turn, recorded, is_away=False)
        self._drop_note(turn)

    def _drop_note(self, turn: TurnT) -> None:
        """Release the journal entry from before the request went upstream."""
        if turn.noted is not None:
            self._journal.done(turn.noted)
            turn.noted = None


async def _run(turn: OpenTurn, work: Callable[[], T]) -> T:
    """Do work about a turn; in another thread if the turn is large."""
    return await asyncio.to_thread(work) if turn.is_large else work()


def _stop_timer(turn: OpenTurn) -> None:
    if turn.timer is not None:
        turn.timer.cancel()
        turn.timer = None


class Backlog:
    """All turns of one gateway that are not stored yet; with ``refuses``, requests that cannot be kept are refused."""

    def __init__(self, writer: StoreWriter, *, refuses: bool = True) -> None:
        self._writer = writer
        self._refuses = refuses
        self._bytes = 0
        self.under_way: set[asyncio.Future[Any]] = set()
        self.has_unkept = False
        """True if a request could not be kept since the journal last had room."""

    async def note(self, queue: TurnQueue[TurnT], turn: TurnT, account: RequestAccount) -> str:
        """Have a request kept before it goes upstream; return a warning if it is not kept and passes all the same.

        Raises:
            Refused: neither journal nor database takes it.
        """
        try:
            await queue.note(turn)
        except (EverlongError, OSError) as error:
            try:
                return self.warn_unkept(error, account)
            except Refused:
                queue.turn_away(turn)
                raise
        return ""

    def warn_unkept(self, error: Exception, account: RequestAccount) -> str:
        """Return the warning for a request that could not be kept; raise `Refused` unless it may pass."""
        _log.error("a request is neither in the journal nor in the database: %s", type(error).__name__)
        self.has_unkept = True
        account.problem = type(error).__name__
        if not self._refuses:
            return f"neither in the journal nor in the database: {error}"
        said = (
            "the gateway can keep this request neither in its journal nor in its database, so it was not passed on; "
            "try again when its disk has room (gateway.when_full: pass prefers answers to records)"
        )
        raise Refused(503, said, _RETRY_SECONDS)

    async def finish(self, queue: TurnQueue[TurnT], turn: TurnT, ended: EndedRequest) -> str:
        """Have an ended turn recorded; return a warning if something went wrong with that."""
        entry = await queue.make_entry(turn, ended)
        try:
            stored = await queue.finish(turn, entry)
        except OSError as problem:  # no journal: the answer has to wait for the database
            return await self._finish_in_store(queue, turn, entry, problem)
        self.under_way.add(stored)
        self._bytes += turn.weight
        stored.add_done_callback(partial(self._finished, turn.weight))
        if self._writer.waiting > _MOST_WAITING or self._bytes > _MOST_BYTES:  # it is slower than the clients
            await asyncio.wait([stored])
        return ""

    async def _finish_in_store(
        self, queue: TurnQueue[TurnT], turn: TurnT, entry: JournalEntry, problem: OSError
    ) -> str:
        try:
            await queue.finish_in_store(turn, entry.turn)
        except (EverlongError, OSError) as error:
            is_held = queue.hold(turn, entry)
            return f"neither in the journal nor in the database, {log_unkept_answer(error, is_held=is_held)}: {error}"
        return f"not in the journal: {problem}"

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do work that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def close(self) -> None:
        """Wait for the turns that are under way."""
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=_LAST_SECONDS)

    def _finished(self, weight: int, stored: asyncio.Future[Any]) -> None:
        self.under_way.discard(stored)
        self._bytes -= weight
        error = None if stored.cancelled() else stored.exception()
        if error is not None and not isinstance(error, AWAY):  # if the database is away, the journal keeps the turn
            _log.error("a turn could not be stored: %s", type(error).__name__)  # its message may quote the turn


def log_unkept_answer(error: Exception, *, is_held: bool) -> str:
    """Log that an answer is in neither journal nor database; return what became of it."""
    _log.error("an answer is neither in the journal nor in the database: %s", type(error).__name__)
    return "kept in memory until there is room" if is_held else "lost"
