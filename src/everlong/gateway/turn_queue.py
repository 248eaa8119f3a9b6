"""Turns on their way from the relay into the journal and the store.

When the upstream has answered, `EndedRequest.turn` makes the one record of the turn, a `FinishedTurn` of
`everlong.store.turns`. That value goes into the journal inside a `JournalEntry`, comes back from there if need be, and
is handed to the store.

This module is the relay's side of a boundary: `journal`, `writer` and `recorder` share no memory with it, so that they
can run in a process of their own. Everything that crosses it is a plain value that can be pickled: `JournalEntry` and
its `FinishedTurn` and `UnstoredTurn` on the way there, `RecordedTurn` on the way back.

While the database is away, turns stay in the journal (see `journal`), and `upkeep` stores them once it is back. A
`WholeTurn` always goes that way. A client waits for the database only if the journal cannot be written, or if too many
turns wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.errors import EverlongError, StoreError
from everlong.gateway.auth import Refused
from everlong.gateway.body import Draft, dump_json, parse_json
from everlong.gateway.conversations import (
    HEAD,
    BodyPlace,
    LiveConversation,
    LiveConversations,
    hash_beginnings,
    with_view,
)
from everlong.gateway.journal import AWAY, JournalEntry
from everlong.gateway.recorder import BodyNeeded, UnstoredTurn
from everlong.store.turns import FinishedTurn, is_name

if TYPE_CHECKING:
    from everlong.caching.misses import Miss
    from everlong.gateway.body import Read
    from everlong.gateway.conversations import AppliedView, ConversationMemory
    from everlong.gateway.formats import Dialect
    from everlong.gateway.journal import Journal
    from everlong.gateway.recorder import ClientAddition, ConversationRecorder, RecordedTurn
    from everlong.gateway.telemetry import RequestAccount
    from everlong.gateway.writer import StoreWriter
    from everlong.model import Message
    from everlong.providers.base import Reply, Usage
    from everlong.store.identity import Sender
    from everlong.store.turns import TurnEnd

__all__ = ["Backlog", "ConversationTurn", "EndedRequest", "TurnQueue", "WholeTurn"]

_log = logging.getLogger("everlong.gateway")

T = TypeVar("T")

_PATIENCE = 1.0
"""Seconds after which a request is stored although the upstream has not answered yet: all of it, which is a copy."""
_CATCH_UP_SECONDS = 1.0
"""Seconds that a request waits at most for a database that is slow or away."""
_MOST_WAITING, _MOST_BYTES = 2_000, 64_000_000
"""Turns that may wait for the database, and the bytes of small or of large ones, before their clients have to wait."""
_LARGE_BYTES = 1_000_000
"""Bytes of a large turn; one takes so long to store that nobody else may wait for it."""
_MOST_VIEWS = 50_000
"""Compacted conversations of which the view in force is remembered."""
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
    is_estimated: bool = False
    """True if the usage is our own count."""
    is_refused: bool = False
    """True if it was refused, so that it cost nothing."""
    before: tuple[Usage, ...] = ()
    """The usage of earlier answers that only looked something up, oldest first."""
    is_large: bool = False
    """True if recording it would hold up the event loop noticeably."""

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
        if self.reply is None:
            return {} if self.is_refused else None
        used = sum(self.before, self.reply.usage)
        missed = {} if self.miss is None else {"cache_miss": self.miss.to_dict()}
        looked_up = {"sent_tokens": self.sent_tokens} if self.before else {}
        estimated = {"estimated": True} if self.is_estimated else {}
        return {**used.to_dict(), **looked_up, **missed, **estimated}


_last_time = 0.0


def _unique_time() -> float:
    """Return the time, a little later than any that was returned before: turns are found by when they began."""
    global _last_time  # noqa: PLW0603 - there is one clock
    _last_time = max(time.time(), math.nextafter(_last_time, math.inf))
    return _last_time


@dataclass(slots=True)
class ConversationTurn:
    """A request whose conversation is known and whose end is not stored yet; no two begin at the same time."""

    queue: TurnQueue
    body: bytes
    read: Read
    model: str
    """The model that the client asks for; empty if it names none."""
    conversation: LiveConversation
    new: ClientAddition | None = None
    """The messages that are not stored yet; None if they are."""
    is_unplaced: bool = False
    """True if its conversation was not looked up; all of it has to be stored."""
    is_unwieldy: bool = False
    """True if it is many times as large as any window: too large to be compacted while others wait."""
    is_large: bool = False
    """True if encoding it would hold up the event loop noticeably."""
    stored: asyncio.Future[None] | None = None
    """Done when the request is stored; None as long as that has not begun."""
    began: float = field(default_factory=_unique_time)
    timer: asyncio.TimerHandle | None = None
    noted: int | None = None
    """The number of the journal entry that was written before the request went upstream."""
    asked: int = 0
    """The most tokens that the answer to its newest body may have."""
    drafted: int = 0
    """Bytes of the body under the view in force when it was sent last, without the gateway's own additions."""

    def entry(self, ended: EndedRequest | None) -> JournalEntry:
        """Return a journal entry from which the turn can be stored later, without secrets.

        Without an end, it is not answered yet.
        """
        recorder, new = self.queue.recorder, self.new
        store, past = recorder.store, FinishedTurn(model=self.model or None, began=self.began)
        if ended is not None:
            past = ended.turn(store.cleaned, past.model, self.began, self.names(ended))
        words = _storable_body(recorder, self.body) if self.is_unplaced else None
        at = None if self.is_unplaced else self.conversation.branch if new is None else new.at
        messages = [] if new is None else [store.cleaned(message) for message in new.messages]
        sender, is_open = self.conversation.sender, ended is None
        return JournalEntry(store.tenant, recorder.api, past, words, at, messages, sender, is_open)

    def names(self, ended: EndedRequest) -> tuple[str, ...]:
        """Return the id of a response that its upstream keeps, so that a later request may go on from there."""
        reply = ended.reply
        if reply is None or reply.raw.get("object") != "response" or self.read.field("store") is False:
            return ()
        return (reply.id,) if reply.id is not None and is_name(reply.id) else ()

    @property
    def view(self) -> AppliedView | None:
        """The view in force; None if there is none, or if it covers more than this body has."""
        view = self.conversation.view
        return view if view is not None and view.covers <= len(self.conversation.ends) else None

    def sent(self, dialect: Dialect) -> bytes:
        """Return the body under the view in force."""
        return self.draft(dialect).body

    def draft(self, dialect: Dialect) -> Draft:
        """Return the body under the view in force, with the places of its entries."""
        conversation, view = self.conversation, self.view
        if view is None:
            return Draft(self.body, self.read.fields, self.read.start, conversation.ends)
        return with_view(self.body, self.read, dialect, conversation, view)


@dataclass(slots=True)
class WholeTurn:
    """A request that names the response before it; it is stored from the journal, where its place is looked up."""

    recorder: ConversationRecorder
    model: str
    sender: Sender
    write: Callable[[], str]
    """Returns the request as it stands in the journal, without secrets."""
    is_large: bool = False
    """True if encoding it would hold up the event loop noticeably."""
    conversation: str | None = None
    """The upstream's name for its conversation, if it has one."""
    began: float = field(default_factory=_unique_time)
    noted: int | None = None
    """The number of the journal entry that was written before the request went upstream."""

    def entry(self, ended: EndedRequest | None) -> JournalEntry:
        """Return its journal entry; without an end, it is not answered yet."""
        store, turn = self.recorder.store, FinishedTurn(model=self.model or None, began=self.began)
        if ended is not None:
            turn = ended.turn(store.cleaned, self.model or None, self.began, self.names(ended))
        api, is_open = self.recorder.api, ended is None
        return JournalEntry(store.tenant, api, turn, self.write(), sender=self.sender, is_open=is_open)

    def names(self, ended: EndedRequest) -> tuple[str, ...]:
        """Return the names by which later requests may refer to the reply."""
        names = () if ended.reply is None else (ended.reply.id, self.conversation)
        return tuple(name for name in names if isinstance(name, str) and is_name(name))


class TurnQueue:
    """The turns of one tenant and one API, on their way into the journal and the store."""

    def __init__(
        self, recorder: ConversationRecorder, writer: StoreWriter, journal: Journal, memory: ConversationMemory
    ) -> None:
        self.recorder = recorder
        self.live = LiveConversations(memory)
        self._writer = writer
        self._journal = journal
        self._unplaced: dict[bytes, list[ConversationTurn]] = {}
        """Turns whose place is not known yet, by the first bytes of their bodies."""
        self._has_views = False
        self._newest_views: dict[int, int] = {}
        """By branch, the view that came into force last, as far as this gateway knows; few branches have one."""
        self._unsettled: set[asyncio.Future[Any]] = set()
        """Futures of ended turns that are not stored yet."""

    def turn_away(self, turn: ConversationTurn) -> None:
        """Forget a request that is not passed on; when it comes again it is looked up."""
        _stop_timer(turn)
        self._let_go(turn)
        self.live.forget(turn.conversation)

    def _watch(self, turn: ConversationTurn) -> None:
        """Have a request stored soon, even if the upstream takes its time."""
        turn.timer = asyncio.get_running_loop().call_later(_PATIENCE, self.begin, turn)

    def begin(self, turn: ConversationTurn) -> asyncio.Future[None]:
        """Store a request before the upstream has answered; the future is done when it is stored."""
        if turn.stored is not None:
            return turn.stored
        stored = self._store(turn, FinishedTurn(model=turn.model or None, began=turn.began), is_open=True)
        stored.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, if nobody waits for it
        return stored

    def store_end(self, turn: ConversationTurn, past: FinishedTurn) -> asyncio.Future[Any]:
        """Store an ended turn; the future is done when it is stored."""
        stored: asyncio.Future[Any]
        if turn.stored is None:
            stored = self._store(turn, past, is_open=False)
        else:  # its beginning is stored before that, and nobody has to wait for the result
            stored = self._writer.submit(partial(self.recorder.finish_begun, past), can_wait=True)
        self._unsettled.add(stored)
        stored.add_done_callback(self._unsettled.discard)
        return stored

    async def catch_up(self) -> None:
        """Wait until the replies that clients have are in the store, so that a heavy request that follows one finds it.

        Other requests are looked up in the thread that stores the replies, after them.
        """
        if self._unsettled:
            self._writer.hurry()
            await asyncio.wait(self._unsettled, timeout=_CATCH_UP_SECONDS)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _store(self, turn: ConversationTurn, past: FinishedTurn, *, is_open: bool) -> asyncio.Future[None]:
        _stop_timer(turn)
        recording = self._writer.submit(self._recording(turn, past, is_open=is_open), can_wait=not is_open)
        turn.stored = asyncio.ensure_future(self._settle(turn, past, recording, is_open=is_open))
        return turn.stored

    async def _settle(
        self, turn: ConversationTurn, past: FinishedTurn, recording: asyncio.Future[RecordedTurn], *, is_open: bool
    ) -> None:
        """Take in where a turn was stored; give the recorder all of its request if it needs that."""
        try:
            try:
                recorded = await recording
            except BodyNeeded:
                whole = self._recording(turn, past, is_open=is_open, is_whole=True)
                recorded = await self._writer.submit(whole, can_wait=True)
        except BaseException as error:
            is_away = isinstance(error, AWAY)
            if is_away:
                turn.stored = None  # it may be tried again
            self._settled(turn, None, is_away=is_away)
            raise
        self._settled(turn, recorded, is_away=False)
        drop_note(self._journal, turn)

    def _recording(
        self, turn: ConversationTurn, past: FinishedTurn, *, is_open: bool, is_whole: bool = False
    ) -> Callable[[], RecordedTurn]:
        """Return the work that stores a turn: a method of the recorder with plain values as its arguments."""
        if turn.is_unplaced:
            return partial(self.recorder.record_whole, turn.body, turn.conversation.sender, past, is_open=is_open)
        # A copy of the body would cost more than all the rest; nearly always messages follow directly, or are stored.
        is_needed = is_whole or (turn.new is not None and (is_open or turn.conversation.session is None))
        read = replace(turn.read, entries=[]) if is_needed else None
        unstored = UnstoredTurn(turn.conversation.to_store(), read, turn.new)
        return partial(self.recorder.record, unstored, past, is_open=is_open)

    def _settled(self, turn: ConversationTurn, recorded: RecordedTurn | None, *, is_away: bool) -> None:
        """Take in where a turn was stored; None if it was not, because the database ``is_away`` or failed."""
        conversation = turn.conversation
        if turn.is_unplaced:
            self._let_go(turn)
        if recorded is None:
            if not is_away:
                self.live.forget(conversation)  # the next request is looked up
            return
        new, turn.new = turn.new, None
        if turn.is_unplaced and recorded.conversation is not None:
            self._take_place(turn, recorded.conversation, recorded.places or {})
            return
        if new is None:
            return
        conversation.branch = recorded.branch
        if recorded.conversation is not None:
            conversation.move_to(recorded.conversation)
            self.note_view(conversation)
        if conversation.branch.id != new.at.id:
            self.live.forget(conversation)  # its places are on the branch that it came from

    def _let_go(self, turn: ConversationTurn) -> None:
        """Forget a turn among those whose place is not known."""
        head = turn.body[:HEAD]
        turns = [one for one in self._unplaced.pop(head, ()) if one is not turn]
        if turns:
            self._unplaced[head] = turns

    def _take_place(self, turn: ConversationTurn, stored: LiveConversation, places: Mapping[int, BodyPlace]) -> None:
        """Remember a conversation whose place is known by now."""
        turn.is_unplaced = False
        conversation = turn.conversation
        conversation.take_place(stored)
        self.note_view(conversation)
        before = self.live.find(turn.body, hash_beginnings(turn.body, self.live.lengths(turn.body)))
        if before is not None and before.place.conversation.session == conversation.session:
            self.live.forget(before.place.conversation)  # this one takes its place
        own = {number: place._replace(conversation=conversation) for number, place in places.items()}
        self.live.keep(turn.body, conversation, own)

    def look_up_views(self) -> None:
        """Have the next request of every conversation with a view looked up: somebody has changed views."""
        self._newest_views.clear()

    def note_view(self, conversation: LiveConversation) -> None:
        """Remember the view in force of a conversation; requests that go on without it are looked up."""
        self._has_views = self._has_views or conversation.view is not None
        if (view := conversation.view_id) is None:
            self._newest_views.pop(conversation.branch.id, None)
            return
        if len(self._newest_views) >= _MOST_VIEWS:
            self._newest_views.clear()
        self._newest_views[conversation.branch.id] = view


async def _run(work: Callable[[], T], *, is_large: bool) -> T:
    """Do work about a turn; in another thread if the turn is large."""
    return await asyncio.to_thread(work) if is_large else work()


def _storable_body(recorder: ConversationRecorder, body: bytes) -> str:
    """Return a body as it may stand in the journal: without secrets, if the store has none."""
    store, probe = recorder.store, dict[str, Any]()
    if store.cleaned(probe) is probe:  # nothing is taken out
        return body.decode()
    return dump_json(store.cleaned(parse_json(body))).decode()


def _stop_timer(turn: ConversationTurn) -> None:
    if turn.timer is not None:
        turn.timer.cancel()
        turn.timer = None


def drop_note(journal: Journal, turn: ConversationTurn | WholeTurn) -> None:
    """Release the journal entry of a turn from before its request went upstream."""
    if turn.noted is not None:
        journal.done(turn.noted)
        turn.noted = None


class Backlog:
    """All turns of one gateway that are not stored yet; with ``refuses``, requests that cannot be kept are refused."""

    def __init__(
        self, writer: StoreWriter, journal: Journal, wake: Callable[[], None], *, refuses: bool = True
    ) -> None:
        self._writer = writer
        self._journal = journal
        self._wake = wake
        """Has `upkeep` store what waits in the journal."""
        self._refuses = refuses
        self._bytes = {False: 0, True: 0}
        """Bytes of the turns that wait, of small and of large ones."""
        self.under_way: set[asyncio.Future[Any]] = set()
        self.has_unkept = False
        """True if a request could not be kept since the journal last had room."""

    async def note(self, turn: ConversationTurn | WholeTurn, account: RequestAccount) -> str:
        """Write a request into the journal, or else into the database, before it goes upstream.

        Returns a warning if it is not kept and passes all the same.

        Raises:
            Refused: neither journal nor database takes it.
        """
        if isinstance(turn, ConversationTurn) and turn.new is None and not turn.is_unplaced:
            return ""  # its messages are stored
        try:
            try:
                entry = await _run(partial(turn.entry, None), is_large=turn.is_large)
                turn.noted = await _run(partial(self._journal.put_request, entry), is_large=turn.is_large)
            except OSError:
                await (turn.queue.begin(turn) if isinstance(turn, ConversationTurn) else self._replay(turn, None))
        except (EverlongError, OSError) as error:
            try:
                return self.warn_unkept(error, account)
            except Refused:
                if isinstance(turn, ConversationTurn):
                    turn.queue.turn_away(turn)
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

    async def finish(self, turn: ConversationTurn | WholeTurn, ended: EndedRequest) -> str:
        """Write an ended turn into the journal, and have it stored; return a warning if something went wrong with that.

        The journal has the turn when this returns, so nobody waits for the store. Without a journal, the answer does.
        """
        turn.is_large = turn.is_large or ended.is_large
        entry = await _run(partial(turn.entry, ended), is_large=turn.is_large)
        try:
            number = await _run(partial(self._journal.put, entry), is_large=turn.is_large)
        except OSError as problem:
            if isinstance(turn, WholeTurn):
                return await self._finish_in_store(self._replay(turn, entry), turn, entry, problem)
            return await self._finish_in_store(turn.queue.store_end(turn, entry.turn), turn, entry, problem)
        drop_note(self._journal, turn)
        if isinstance(turn, WholeTurn):  # in the order of the journal, because it may follow one that waits there
            self._journal.keep(number)
            self._wake()
            return ""
        stored, weight = turn.queue.store_end(turn, entry.turn), len(turn.body)
        stored.add_done_callback(partial(self._journal.settle, number, entry))
        self.under_way.add(stored)
        self._bytes[weight > _LARGE_BYTES] += weight
        stored.add_done_callback(partial(self._finished, weight))
        if self._writer.waiting > _MOST_WAITING or self._bytes[weight > _LARGE_BYTES] > _MOST_BYTES:
            await asyncio.wait([stored])
        return ""

    async def _replay(self, turn: WholeTurn, entry: JournalEntry | None) -> None:
        """Store an entry; without one, that of a request that is not answered yet."""
        entries = [turn.entry(None) if entry is None else entry]
        (problem,) = await self._writer.submit(partial(turn.recorder.replay, entries))
        if problem is not None:
            raise StoreError(problem)

    async def _finish_in_store(
        self, storing: Awaitable[Any], turn: ConversationTurn | WholeTurn, entry: JournalEntry, problem: OSError
    ) -> str:
        try:
            await storing
        except (EverlongError, OSError) as error:
            _log.error("an answer is neither in the journal nor in the database: %s", type(error).__name__)
            fate = "kept in memory until there is room" if self._journal.hold(entry, turn.noted) else "lost"
            return f"neither in the journal nor in the database, {fate}: {error}"
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
        self._bytes[weight > _LARGE_BYTES] -= weight
        error = None if stored.cancelled() else stored.exception()
        if error is not None and not isinstance(error, AWAY):  # if the database is away, the journal keeps the turn
            _log.error("a turn could not be stored: %s", type(error).__name__)  # its message may quote the turn
