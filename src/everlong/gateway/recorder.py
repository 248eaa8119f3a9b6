"""The recording of requests and replies: in the journal before they go upstream, in the store soon after.

`ConversationRecorder` writes to the store from worker threads, for one tenant and one API. `TurnQueue` decides in the
event loop when that happens, and `Backlog` follows up on requests that have ended. A client waits for the store only
where there is no journal, or where it is quicker than the database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from everlong.errors import EverlongError, NotStored
from everlong.gateway.auth import Refused
from everlong.gateway.body import Read, Span, Stretch, draft_of, meant, read_body
from everlong.gateway.conversations import BodyPlace, LiveConversation, applied_view
from everlong.gateway.formats import Dialect, folder_in, hint_in, is_leading, looks_aside
from everlong.gateway.journal import AWAY, OPEN, Journal, JournalEntry
from everlong.model import Node, Trace, text_of
from everlong.store.compaction import Occasion
from everlong.store.content import Blob, blob, encoded_in_steps
from everlong.store.stateless import Placed, Sender, StatelessRequest
from everlong.store.tree import Branch
from everlong.store.turns import New, Past, storable

if TYPE_CHECKING:
    from everlong.caching.misses import Miss
    from everlong.context import ContextEngine
    from everlong.gateway.account import RequestAccount
    from everlong.gateway.writer import Writer
    from everlong.model import Message
    from everlong.providers.base import Reply, Usage
    from everlong.store import Compacted, Store
    from everlong.store.turns import End

__all__ = [
    "Addition",
    "Backlog",
    "ConversationRecorder",
    "EndedRequest",
    "OpenTurn",
    "Stored",
    "TurnQueue",
    "rest_of",
    "too_much_new",
]


@dataclass(frozen=True, slots=True)
class Addition:
    """What some entries add to a conversation: their messages, and the place in the tree after each entry."""

    messages: list[Message]
    branches: list[Branch]
    """After each entry; the branch's number is that of the conversation that they follow."""
    trace: Trace
    """The chain over the messages, from the place that they follow."""
    counts: list[int]
    """Number of messages up to the end of each entry."""
    mark: bytes
    """The id by which the client finds the place that they follow."""
    marks: list[bytes]
    """The ids by which it finds the ends of the entries."""
    beside: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    """By the number of a message what the client says with it and takes off later."""
    is_moving: bool = False
    """True if one of the messages is a known addition, such as a file listing that moves along with the question."""

    def ends_message(self, number: int) -> bool:
        """Return whether a message ends with an entry, counted from 0; one inside of a message is no place to go on."""
        return self.counts[number] > (self.counts[number - 1] if number else 0)

    @property
    def last(self) -> Message | None:
        """Who speaks last; None where nobody does."""
        return {"role": self.messages[-1]["role"]} if self.messages else None


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """How a request ended."""

    reply: Reply | None = None
    error: str | None = None
    is_cut: bool = False
    """Whether the client hung up."""
    cost: float = 0.0
    """US dollars."""
    partial: Message | None = None
    """The part of a cancelled or broken reply that arrived."""
    miss: Miss | None = None
    """What it did not read from the provider's cache, and why."""
    is_audited: bool = False
    """Whether it was sent as it came, whatever the gateway would have done."""
    before: tuple[Usage, ...] = ()
    """What answers have used that only looked something up, the first one first."""

    @property
    def used(self) -> Usage | None:
        """Everything that was used for it; None where that is not known."""
        return None if self.reply is None else sum(self.before, self.reply.usage)

    @property
    def sent_tokens(self) -> int:
        """Tokens of the prompt as the client has it, without what was looked up."""
        first = self.before[0] if self.before else None if self.reply is None else self.reply.usage
        return 0 if first is None else first.prompt_tokens

    @property
    def status(self) -> End:
        """How the turn is marked."""
        return "done" if self.reply is not None else "cancelled" if self.is_cut else "failed"

    @property
    def message(self) -> Message | None:
        """The reply, or the part of it that arrived."""
        return self.partial if self.reply is None else self.reply.message

    @property
    def usage(self) -> dict[str, Any] | None:
        """What it used."""
        used = self.used
        if used is None:
            return None
        missed = {} if self.miss is None else {"cache_miss": self.miss.to_dict()}
        audited = {"audited": True} if self.is_audited else {}
        looked_up = {"sent_tokens": self.sent_tokens} if self.before else {}
        return {**used.to_dict(), **looked_up, **missed, **audited}

    def past(self, session: str | None, model: str | None, began: float, names: Sequence[str] = ()) -> Past:
        """The whole turn."""
        return Past(
            self.message,
            model=model,
            session=session,
            usage=self.usage,
            cost=self.cost,
            status=self.status,
            error=self.error,
            began=began,
            names=names,
        )


class ConversationRecorder:
    """Keeps the conversations of one tenant that come in by one API."""

    def __init__(self, store: Store, dialect: Dialect) -> None:
        self.store = store
        self.dialect = dialect

    # -- reading -------------------------------------------------------------------------------------------------------

    def added(self, entries: Sequence[Span], at: Branch | None, last: Message | None, mark: bytes = b"") -> Addition:
        """Read entries that follow a place, which the client finds by an id; nothing is stored."""
        store = self.store
        messages: list[Message] = []
        counts: list[int] = []
        for said in self.dialect.said([entry.value for entry in entries], last):
            messages += said
            counts.append(len(messages))
        start = at.node if at is not None else store.chain.root()
        known = store.stateless.known_additions
        beside: dict[int, tuple[Message, ...]] = {}
        if at is not None and messages and known:
            lasting = known.without(store.cleaned(messages[-1]))
            if lasting != store.cleaned(messages[-1]):
                beside[len(messages) - 1] = (messages[-1],)
                messages[-1] = lasting
        is_moving = at is not None and any(known.is_moving(store.cleaned(one)) for one in messages)
        trace = store.chain.trace(map(store.cleaned, messages), start)
        mark = mark or start.id
        ids = trace.ids if mark == start.id else store.chain.rechain(messages, trace, mark)
        number = at.id if at is not None else 0
        ends = [trace.ends[count - 1] if count else 0 for count in counts]
        places = [Branch(number, trace.ids[end - 1] if end else start.id, start.depth + end) for end in ends]
        marks = [ids[end - 1] if end else mark for end in ends]
        return Addition(messages, places, trace, counts, mark, marks, beside, is_moving)

    def glanced(self, read: Read) -> tuple[LiveConversation, Addition]:
        """A whole body as a conversation by itself; nothing is stored, and nobody is asked."""
        lead = 0
        while lead < len(read.entries) and is_leading(read.entries[lead].value):
            lead += 1
        new = self.added(read.entries[lead:], None, None)
        depths = array("Q", [*(0 for _ in range(lead)), *(place.depth for place in new.branches)])
        ends = array("Q", [entry.end for entry in read.entries])
        root = self.store.chain.root()
        branch = new.branches[-1] if new.branches else Branch(0, root.id, root.depth)
        return LiveConversation(read.beginning(), lead, ends, depths, branch, new.last), new

    # -- writing -------------------------------------------------------------------------------------------------------

    def opened(
        self, read: Read, sender: Sender | None = None, most_new: int | None = None
    ) -> tuple[LiveConversation, dict[int, BodyPlace]]:
        """Store what a whole body says; its conversation, and the places after its entries.

        Raises:
            Refused: more than ``most_new`` of its blocks are not stored yet; others would have to wait for them.
        """
        if most_new is not None and len(read.entries) > most_new and not self._is_known(read):
            raise too_much_new(most_new)
        conversation, new = self.glanced(read)
        if most_new is not None and self.store.stateless.count_unknown(new.trace) > most_new:
            raise too_much_new(most_new)
        sender = self._described(read, conversation, new, sender or Sender())
        placed = self.store.stateless.place(
            StatelessRequest(new.messages, new.trace, sender, self._preamble(read, conversation))
        )
        self.put(conversation, new, placed)
        conversation.hint, conversation.sender, conversation.rest = sender.session, sender, rest_of(read)
        if self.view_in_force(placed.at) is not None:
            conversation.view = applied_view(self.store, self.dialect, conversation)
        return conversation, self.places(conversation, new, placed, conversation.lead)

    def _is_known(self, read: Read) -> bool:
        """Return whether some conversation begins as a body does."""
        first = next((entry for entry in read.entries if not is_leading(entry.value)), None)
        trace = None if first is None else self.added([first], None, None).trace
        return trace is not None and self.store.stateless.count_unknown(trace) < len(trace.ids)

    def gone_on(self, conversation: LiveConversation, read: Read, at: Branch, new: Addition) -> Placed:
        """Store what a known conversation has gone on by, on another one where it has gone on differently."""
        sender = conversation.sender or Sender(session=conversation.hint)
        messages = [*new.messages]
        trace = new.trace
        if new.beside:  # as it came: what is taken off it is decided in the transaction
            messages[-1] = new.beside[len(messages) - 1][0]
            trace = self.store.chain.trace(map(self.store.cleaned, messages), at.node)
        ids = trace.ids if new.mark == at.head else self.store.chain.rechain(messages, trace, new.mark)
        asked = StatelessRequest(
            messages, Trace(ids, trace.blocks, trace.ends), sender, self._preamble(read, conversation), at, new.mark
        )
        return self.store.stateless.place(asked)

    def put(self, conversation: LiveConversation, new: Addition, placed: Placed) -> None:
        """Note in a conversation where the entries of a request came to stand."""
        conversation.branch, conversation.session, conversation.session_branch = placed.at, placed.session, placed.at.id
        conversation.mark, conversation.opened = placed.mark, placed.opened
        first = len(conversation.ends) - len(new.counts)
        low = conversation.depths[first - 1] if first else 0
        for number, count in enumerate(new.counts):
            conversation.depths[first + number] = placed.depths[count - 1] if count else low

    def places(
        self, conversation: LiveConversation, new: Addition, placed: Placed, before: int
    ) -> dict[int, BodyPlace]:
        """Return the places after the entries of a request by their number, counted from 1."""
        found: dict[int, BodyPlace] = {}
        for number, (count, mark) in enumerate(zip(new.counts, new.marks, strict=True), before + 1):
            at = placed.ends[count - 1] if count and new.ends_message(number - before - 1) else None
            if at is not None:
                found[number] = BodyPlace(conversation, number, Branch(placed.at.id, at.head, at.depth), mark)
        return found

    def _preamble(self, read: Read, conversation: LiveConversation) -> Blob | None:
        """Return the system messages and tools that a request is sent with, as they are stored."""
        leading = [meant(read.body[slice(*place)]) for place in _leading_places(read, conversation)]
        system = [self.store.cleaned(one) for one in [*self.dialect.system_of(read), *leading]]
        tools = read.field("tools")
        if not system and not tools:
            return None
        told = {"system": system, "tools": tools if isinstance(tools, list) and tools else None}
        return blob(self.store.tenant, encoded_in_steps(told))

    def _described(self, read: Read, conversation: LiveConversation, new: Addition, sender: Sender) -> Sender:
        """Say more about who sends a whole body, from what it says."""
        system = "\n".join(
            text_of(one)
            for one in [*self.dialect.system_of(read), *(entry.value for entry in read.entries[: conversation.lead])]
        )
        return replace(
            sender,
            session=sender.session or hint_in(read.field("metadata")),
            model=storable(str(read.field("model") or "")) or None,
            folder=folder_in(system, new.messages),
            is_aside=looks_aside(
                has_tools=bool(read.field("tools")),
                max_tokens=self.dialect.answer_tokens(read),
                system_text=system,
                messages=new.messages,
            ),
        )

    def last_reported(self, conversation: LiveConversation) -> tuple[int, int] | None:
        """Return how deep the last answered request of a conversation reached, and the tokens the API counted in it."""
        turns = "SELECT depth, usage, view_id FROM turn WHERE branch = ? AND depth <= ? AND status = 'done'"
        row = self._first(
            f"{turns} ORDER BY depth DESC, id DESC LIMIT 1", conversation.branch.id, conversation.branch.depth
        )
        view = None if conversation.view is None else conversation.view.view_id
        if row is None or row[1] is None or row[2] != view:
            return None
        usage = json.loads(row[1])
        tokens = usage.get("sent_tokens") or usage.get("prompt_tokens")
        return (row[0], tokens) if tokens else None

    def view_in_force(self, at: Branch) -> int | None:
        """The view that a branch points at."""
        row = self._first("SELECT view_id FROM branch WHERE id = ?", at.id)
        return None if row is None else row[0]

    def begun(self, conversation: LiveConversation, model: str | None, began: float) -> int:
        """Say that a request has gone out; the number of its turn."""
        return self.store.turns.begin(conversation.branch, model=model, session=conversation.session, began=began).id

    def finished(self, number: int, ended: EndedRequest, names: Sequence[str] = ()) -> None:
        """Say what became of it."""
        self.store.turns.finish(
            number,
            ended.message,
            usage=ended.usage,
            cost=ended.cost,
            status=ended.status,
            error=ended.error,
            names=names,
        )

    def recorded(self, conversation: LiveConversation, past: Past) -> int:
        """Store a request that is over already; the number of its turn."""
        return self.store.turns.whole(conversation.branch, past)

    def reply_of(self, conversation: LiveConversation, number: int) -> bytes | None:
        """Return the id of a turn's reply, where it has its place in the conversation that it was asked in."""
        found = self.store.turns.get(number)
        is_here = (found.branch, found.node, found.session) == (
            conversation.branch.id,
            conversation.branch.head,
            conversation.session,
        )
        return found.echo_node if found.status == "done" and is_here else None

    def followed(
        self, conversation: LiveConversation, at: Branch, new: Addition, past: Past
    ) -> tuple[Branch, int] | None:
        """Store what a conversation has gone on by, with its turn; None where it has gone on in another way as well."""
        view = conversation.view.view_id if conversation.view is not None else None
        mark = None if new.mark == at.head else new.mark
        return self.store.turns.follow(at, New(new.messages, new.trace, mark, new.beside), past, view=view)

    def replayed(self, entry: JournalEntry) -> None:
        """Store what had to wait for the database."""
        if entry.status != OPEN and (number := self._open_turn(entry)) is not None:
            self._finish_open(number, entry)
            return
        branch, session = self._place_of(entry)
        known = "SELECT id, status FROM turn WHERE depth = ? AND node = ? AND ts = ?"
        if (row := self._first(known, branch.depth, branch.head, entry.began)) is not None:
            if row[1] == OPEN and entry.status != OPEN:  # it was begun, and what came of it was not stored
                self._finish_open(row[0], entry)
            return
        if entry.status == OPEN:
            self.store.turns.begin(branch, model=entry.model, session=session or None, began=entry.began)
            return
        past = Past(
            entry.reply,
            model=entry.model,
            session=session,
            usage=entry.usage,
            cost=entry.cost,
            status=entry.status,  # type: ignore[arg-type]  # as it was written
            error=entry.error,
            began=entry.began,
            names=entry.names,
        )
        self.store.turns.whole(branch, past)

    def _open_turn(self, entry: JournalEntry) -> int | None:
        """Return the turn that an earlier entry of the same request has begun."""
        known = "SELECT id FROM turn WHERE tenant = ? AND status = 'open' AND ts = ?"
        rows = self._all(known, self.store.tenant, entry.began)
        return rows[0][0] if len(rows) == 1 else None

    def _finish_open(self, number: int, entry: JournalEntry) -> None:
        self.store.turns.finish(
            number,
            entry.reply,
            usage=entry.usage,
            cost=entry.cost,
            status=entry.status,  # type: ignore[arg-type]  # as it was written
            error=entry.error,
            names=entry.names,
        )

    def _place_of(self, entry: JournalEntry) -> tuple[Branch, str]:
        """Where the request of an entry stands, with its messages stored, and its session."""
        sender = entry.sent_by
        if entry.body is not None:
            conversation, _ = self.opened(read_body(entry.body.encode(), self.dialect.list_name), sender)
            return conversation.branch, conversation.session or ""
        if entry.at is None:
            raise NotStored("an entry of the spool says nowhere where it belongs")
        given = Branch(entry.at[0], bytes.fromhex(entry.at[1]), entry.at[2])
        row = self._first("SELECT branch, mark FROM node WHERE id = ? AND tenant = ?", given.head, self.store.tenant)
        if row is None and given.depth:
            raise NotStored(f"the message {entry.at[1]} that an entry of the spool follows is not there")
        at = given if row is None else Branch(row[0], given.head, given.depth)
        mark = at.head if row is None or row[1] is None else bytes(row[1])
        start = Node(mark, at.depth)
        trace = self.store.chain.trace(map(self.store.cleaned, entry.messages), start)
        placed = self.store.stateless.place(StatelessRequest(list(entry.messages), trace, sender, None, at, mark))
        return placed.at, placed.session

    # -- compacting ----------------------------------------------------------------------------------------------------

    def catch_up(self, conversation: LiveConversation) -> bool:
        """Put the view in force into a conversation that has an older one, or none; whether there was another."""
        if self.view_in_force(conversation.branch) in {
            None,
            conversation.view.view_id if conversation.view is not None else None,
        }:
            return False
        before, conversation.view = conversation.view, applied_view(self.store, self.dialect, conversation)
        if conversation.session is not None:  # which has gone on in a child
            conversation.session = self._session_at(conversation.branch)
        return conversation.view is not None and (before is None or before.view_id != conversation.view.view_id)

    def _session_at(self, at: Branch) -> str | None:
        """Return the session that a place is in now."""
        with self.store.database.read() as connection:
            return self.store.stateless.session_at(connection, at.id, at.depth)

    def newest(self, conversation: LiveConversation) -> Branch:
        """Return how far the requests of a conversation have come by now."""
        row = self._first("SELECT MAX(depth) FROM turn WHERE branch = ?", conversation.branch.id)
        depth = conversation.branch.depth if row is None or row[0] is None else max(row[0], conversation.branch.depth)
        return (
            conversation.branch
            if depth == conversation.branch.depth
            else self.store.branch(conversation.branch.id, depth)
        )

    def compacted(
        self,
        conversation: LiveConversation,
        engine: ContextEngine,
        occasion: Occasion,
        at: Branch | None = None,
        **options: Any,
    ) -> Compacted:
        """Have an engine compact a conversation, here or further on, and put the view into the form of the API."""
        session = conversation.session if at is None else self._session_at(at)
        done = self.store.compact(at or conversation.branch, engine, occasion, roll_over=session, **options)
        if done.child is not None:
            conversation.session = done.child
        conversation.view = applied_view(self.store, self.dialect, conversation)
        return done

    def _first(self, statement: str, *values: Any) -> Any:
        """The first row of a statement."""
        rows = self._all(statement, *values)
        return rows[0] if rows else None

    def _all(self, statement: str, *values: Any) -> Sequence[Any]:
        """The rows of a statement; in plain SQL, because it is run with every request."""
        database = self.store.database
        with database.read() as connection:
            rows: Sequence[Any] = database.backend.run(connection, database.sql(statement), values).fetchall()
        return rows


def too_much_new(most: int) -> Refused:
    """Return the refusal of a request that brings more at once than others can wait for."""
    said = f"more than {most:,} blocks (messages, or parts of them) of this request are new, which is the most at once"
    return Refused(413, f"{said}; gateway.new_blocks says how many may come", close=True)


def rest_of(read: Read) -> bytes:
    """Return a digest of the system prompt and tools that stand behind the list of a body."""
    places = (read.after.get(name) for name in ("system", "instructions", "tools"))
    told = b"\0".join(b"" if place is None else read.body[slice(*place)] for place in places)
    return sha256(told).digest()


def _leading_places(read: Read, conversation: LiveConversation) -> list[Stretch]:
    """Return where the system entries at the beginning of a body stand."""
    draft = draft_of(read.body, read, conversation.ends)
    return [draft.entry(number) for number in range(conversation.lead)]


T = TypeVar("T")
W = TypeVar("W")
U = TypeVar("U", bound="OpenTurn")

_CATCH_UP_SECONDS = 1.0
"""Longer than this nobody waits for a database that is slow or away."""
_PATIENCE = 0.1
"""Seconds after which a request is stored though nothing has come of it yet."""


@dataclass(slots=True, kw_only=True)
class OpenTurn:
    """A request of which it is not stored yet what came of it."""

    number: asyncio.Future[int] | None = None
    """The number of its turn, once it is begun."""
    began: float = field(default_factory=time.time)
    timer: asyncio.TimerHandle | None = None
    noted: int | None = None
    """The number of its entry in the journal, from before it went upstream."""

    is_large: bool = False
    """True if so much is written about it that others would notice."""

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory until it is stored, about."""
        return 0


class Stored(NamedTuple, Generic[T]):
    """What storing a request came to: the number of its turn, and what else whoever stored it wants to know."""

    number: int
    also: T


class TurnQueue(ABC, Generic[U, T]):
    """Stores the requests of one tenant by one API."""

    def __init__(self, writer: Writer, journal: Journal) -> None:
        self._writer = writer
        self._journal = journal
        self._unsettled: set[asyncio.Future[Any]] = set()
        """Futures of finished requests that are not stored yet."""
        self._late: set[asyncio.Future[Any]] = set()
        """Those of them that came to their end before it was stored that they had begun."""

    # -- what a request is ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _lane(self, one: U) -> int:
        """What requests have in common that are stored one after the other."""

    @abstractmethod
    def _entry(self, one: U, ended: EndedRequest) -> JournalEntry:
        """What is written down of a request, and from which it can be stored later; without secrets."""

    @abstractmethod
    def _work(self, one: U, ended: EndedRequest | None) -> Callable[[], Stored[T]]:
        """What stores a request, in the writer's thread: as a turn that is begun, or one that is over."""

    @abstractmethod
    def _end(self, one: U, number: int, ended: EndedRequest) -> None:
        """Say what became of a turn that was begun; in the writer's thread."""

    @abstractmethod
    def _settled(self, one: U, stored: Stored[T] | None, *, is_away: bool) -> None:
        """Hear that a request was stored; or that it was not, because the database is away or for another reason."""

    def _is_stored(self, one: U) -> bool:
        """Return whether the words of a request are in the database."""
        return (
            one.number is not None
            and one.number.done()
            and not one.number.cancelled()
            and one.number.exception() is None
        )

    # -- storing -------------------------------------------------------------------------------------------------------

    async def note(self, one: U) -> None:
        """See to it that a request is in the journal or in the database before it goes upstream.

        Raises:
            EverlongError: neither takes it.
            OSError: as above.
        """
        if self._is_stored(one):
            return
        try:
            one.noted = await self._apart(one, lambda: self._journal.put_request(self._open_entry(one)))
        except OSError:
            await self.begin(one)

    def _open_entry(self, one: U) -> JournalEntry:
        return self._entry(one, EndedRequest())._replace(status=OPEN, error=None)

    @staticmethod
    async def _apart(one: U, work: Callable[[], W]) -> W:
        """Do something about a request: in another thread where it is large."""
        return await asyncio.to_thread(work) if one.is_large else work()

    def turn_away(self, one: U) -> None:
        """Forget a request that is not passed on."""
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None

    def hold(self, one: U, ended: EndedRequest) -> bool:
        """Keep in memory what became of a request, where nothing else takes it; False where too much is kept."""
        return self._journal.hold(self._entry(one, ended), one.noted)

    def _watch(self, one: U) -> None:
        """Store a request that takes its time before anything has come of it."""
        one.timer = asyncio.get_running_loop().call_later(_PATIENCE, self._overdue, one)

    def _overdue(self, one: U) -> None:
        self.begin(one)

    def begin(self, one: U) -> asyncio.Future[int]:
        """Store a request before anything has come of it."""
        return one.number if one.number is not None else self._store(one, None)

    async def finish(self, one: U, ended: EndedRequest) -> asyncio.Future[Any]:
        """Write down what became of a request, and see to it that it gets into the store.

        It is in the journal when this returns, so that nobody has to wait for what it returns; `OSError` says that the
        journal cannot be written.
        """
        entry = await self._apart(one, lambda: self._entry(one, ended))
        number = await self._apart(one, lambda: self._journal.put(entry))
        self._drop_note(one)
        stored = self.finish_in_store(one, ended)
        self._unsettled.add(stored)
        stored.add_done_callback(self._unsettled.discard)
        stored.add_done_callback(partial(self._journal.settle, number, entry))
        return stored

    async def caught_up(self, *, is_parallel: bool = False) -> None:
        """Wait until replies that clients have are in the store, so that what follows them is known by them.

        One writing thread does everything in order, so nobody has to wait for it; except for ends that it has not got
        yet, because they wait for their beginnings. A heavy request has another thread.
        """
        if waited_for := list(self._unsettled if is_parallel or self._writer.is_parallel else self._late):
            self._writer.hurry()
            await asyncio.wait(waited_for, timeout=_CATCH_UP_SECONDS)

    def finish_in_store(self, one: U, ended: EndedRequest) -> asyncio.Future[Any]:
        """Store what became of a request, without the journal; done when it is there."""
        if one.number is None:
            return self._store(one, ended)
        later = asyncio.ensure_future(self._finished_later(one, one.number, ended))
        if not one.number.done():
            self._late.add(later)
            later.add_done_callback(self._late.discard)
        return later

    async def _finished_later(self, one: U, number: asyncio.Future[int], ended: EndedRequest) -> None:
        ident = await number
        await self._writer.submit(lambda: self._end(one, ident, ended), self._lane(one), can_wait=True)

    def _drop_note(self, one: U) -> None:
        """Say that the entry from before the request went upstream is not needed any more."""
        if one.noted is not None:
            self._journal.done(one.noted)
            one.noted = None

    def _store(self, one: U, ended: EndedRequest | None) -> asyncio.Future[int]:
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        stored = self._writer.submit(self._work(one, ended), self._lane(one), can_wait=ended is not None)
        one.number = number = stored.get_loop().create_future()
        stored.add_done_callback(partial(self._settle, one, number))
        return number

    def _settle(self, one: U, number: asyncio.Future[int], stored: asyncio.Future[Stored[T]]) -> None:
        """Say what became of a request's storing to whoever waits for it."""
        error = None if stored.cancelled() else stored.exception()
        is_away = isinstance(error, AWAY)
        if is_away:
            one.number = None  # it may be tried again
        has_failed = stored.cancelled() or error is not None
        self._settled(one, None if has_failed else stored.result(), is_away=is_away)
        if not has_failed:
            self._drop_note(one)
        if number.cancelled():
            return
        if error is not None:
            number.set_exception(error)
            number.exception()  # seen, whether somebody waits for it or not
        elif stored.cancelled():
            number.cancel()
        else:
            number.set_result(stored.result().number)


BACKLOG_U = TypeVar("BACKLOG_U", bound=OpenTurn)

_log = logging.getLogger("everlong.gateway")

_MOST_WAITING = 256
"""So many turns may wait for the database before clients do."""
_MOST_BYTES = 16_000_000
"""Or turns of so many bytes."""
_LAST_SECONDS = 10.0
_RETRY_SECONDS = 5
"""When a client may try again whose request could not be kept."""


class Backlog:
    """Follows up on the requests of one gateway; ``refuses`` those that cannot be kept."""

    def __init__(self, writer: Writer, *, refuses: bool = True) -> None:
        self._writer = writer
        self._refuses = refuses
        self._bytes = 0
        self.under_way: set[asyncio.Future[Any]] = set()
        self.has_unkept = False
        """Whether nothing took a request, since the journal last had room."""

    async def note(self, queue: TurnQueue[BACKLOG_U, Any], one: BACKLOG_U, account: RequestAccount) -> str:
        """Have a request kept before it goes upstream; a warning where it is not and passes all the same.

        Raises:
            Refused: nothing takes it.
        """
        try:
            await queue.note(one)
        except (EverlongError, OSError) as error:
            try:
                return self.unkept(error, account)
            except Refused:
                queue.turn_away(one)
                raise
        return ""

    def unkept(self, error: Exception, account: RequestAccount) -> str:
        """Return the warning that goes with a request that nothing takes; `Refused` unless it may pass."""
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

    async def finish(self, queue: TurnQueue[BACKLOG_U, Any], one: BACKLOG_U, ended: EndedRequest) -> str:
        """Have written down what became of a request; what went wrong with that, where something did."""
        try:
            stored = await queue.finish(one, ended)
        except OSError as problem:  # no journal: then the answer has to wait for the database
            return await self._in_store(queue, one, ended, problem)
        self.under_way.add(stored)
        self._bytes += one.weight
        stored.add_done_callback(partial(self._finished, one.weight))
        if self._writer.waiting > _MOST_WAITING or self._bytes > _MOST_BYTES:  # slower than the clients
            await asyncio.wait([stored])
        return ""

    async def _in_store(
        self, queue: TurnQueue[BACKLOG_U, Any], one: BACKLOG_U, ended: EndedRequest, problem: OSError
    ) -> str:
        try:
            await queue.finish_in_store(one, ended)
        except (EverlongError, OSError) as error:
            is_held = queue.hold(one, ended)
            _log.error("an answer is neither in the journal nor in the database: %s", type(error).__name__)
            kept = "kept in memory until there is room" if is_held else "lost"
            return f"neither in the journal nor in the database, {kept}: {error}"
        return f"not in the journal: {problem}"

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def close(self) -> None:
        """Wait for what is under way."""
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=_LAST_SECONDS)

    def _finished(self, weight: int, stored: asyncio.Future[Any]) -> None:
        self.under_way.discard(stored)
        self._bytes -= weight
        error = None if stored.cancelled() else stored.exception()
        if error is not None and not isinstance(error, AWAY):  # those are in the journal, for later
            _log.error("a turn could not be stored: %s", type(error).__name__)  # what it says may have words in it
