"""The recorder: stores the requests and turns of one tenant and one API, in the threads of the `writer`.

It shares no memory with the relay (see `turn_queue`): it takes `UnstoredTurn`s and finished turns
(`everlong.store.turns.FinishedTurn`), and gives back `RecordedTurn`s. `replay` stores entries that waited in the
journal while the database was away, or that a killed gateway has left there.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.errors import NotStored, StoreUnavailable
from everlong.gateway.auth import Refused
from everlong.gateway.body import Draft, Read, Span, check_model, parse_json, read_body
from everlong.gateway.conversations import BodyPlace, LiveConversation, apply_view, kept_lengths
from everlong.gateway.formats import OPENAI, Dialect, ResponsesRequest, count_leading, hint_in, is_leading, looks_aside
from everlong.gateway.journal import AWAY
from everlong.model import Node, Trace, text_of
from everlong.store.compaction import Occasion
from everlong.store.content import Blob, blob, encoded, encoded_in_steps
from everlong.store.identity import PlacedRequest, Sender, StatelessRequest
from everlong.store.leases import take
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn, NewMessages, storable

if TYPE_CHECKING:
    from everlong.context import ContextEngine
    from everlong.context.oversized import SpillLimits
    from everlong.gateway.journal import JournalEntry
    from everlong.model import Message
    from everlong.store import Compacted, Store

__all__ = [
    "RESPONSES_API",
    "BodyNeeded",
    "ClientAddition",
    "ConversationRecorder",
    "OpenedConversation",
    "RecordedTurn",
    "ResponseRecorder",
    "UnstoredTurn",
    "rest_of",
    "too_much_new",
]


NEW_BLOCKS = 3_000
"""The most blocks (messages, or parts of them) of one request that are not stored yet; storing them takes a moment."""
RESPONSES_API = "responses"
"""The name, in the journal, of requests of the Responses API that name the response before them."""
_STATUSES = "('open', 'done', 'failed', 'cancelled')"
"""All statuses of turns, named because the index over their times begins with them."""


@dataclass(frozen=True, slots=True)
class ClientAddition:
    """The messages that new entries of a body add to a conversation, with the place in the tree after each entry."""

    at: Branch
    """The place that they follow."""
    messages: list[Message]
    branches: list[Branch]
    """The place after each entry, on the branch that they follow."""
    trace: Trace
    """The chain over the messages, from the place that they follow."""
    counts: list[int]
    """Number of messages up to the end of each entry."""
    mark: bytes
    """The id by which the client finds the place that they follow."""
    marks: list[bytes]
    """The ids by which it finds the ends of the entries."""

    def ends_message(self, number: int) -> bool:
        """Return whether a message ends with an entry, counted from 0; only there can a conversation go on."""
        return self.counts[number] > (self.counts[number - 1] if number else 0)

    @property
    def last(self) -> Message | None:
        """The role of the last message; None if there are no messages."""
        return {"role": self.messages[-1]["role"]} if self.messages else None


class OpenedConversation(NamedTuple):
    """A conversation that was looked up in the store, and stored as far as it was not known."""

    conversation: LiveConversation
    places: dict[int, BodyPlace]
    """The places after those of its entries that are remembered, by their number."""
    reported: tuple[int, int] | None
    """The depth of its last answered request, and the tokens that the API counted in it."""


class BodyNeeded(Exception):  # noqa: N818 - what storing a turn wants
    """A turn that came without the body of its request cannot be stored without it."""


class UnstoredTurn(NamedTuple):
    """A request of a known conversation, on its way into the store."""

    conversation: LiveConversation
    """A copy (`LiveConversation.to_store`), which the recorder may change."""
    read: Read | None
    """The request as it was read; None if its messages are expected to follow directly."""
    new: ClientAddition | None
    """The messages to store; None if they are stored already."""


class RecordedTurn(NamedTuple):
    """The result of storing a turn."""

    branch: Branch
    """The place of the request."""
    conversation: LiveConversation | None = None
    """The conversation at its new place, if the request was placed anew; see `LiveConversation.move_to`."""
    places: Mapping[int, BodyPlace] | None = None
    """The places that are remembered after its entries, if a whole body was stored."""


class ConversationRecorder:
    """Stores the conversations of one tenant that come in by one API."""

    def __init__(self, store: Store, dialect: Dialect) -> None:
        self.store = store
        self.dialect = dialect
        self.api = dialect.name
        """The name of the API in the journal, and for the storing process."""

    def check_writable(self) -> None:
        """Write something that means nothing, to see whether the database can be written."""
        take(self.store.database, "readiness", 0.0)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read_entries(
        self, entries: Sequence[Span], at: Branch | None, last: Message | None, mark: bytes = b""
    ) -> ClientAddition:
        """Return what entries add to the conversation at a place, which the client finds by a mark; stores nothing."""
        store = self.store
        messages: list[Message] = []
        counts: list[int] = []
        for said in self.dialect.said([entry.value for entry in entries], last):
            messages += said
            counts.append(len(messages))
        root = store.chain.root()
        start = at or Branch(0, root.id, root.depth)
        trace = store.chain.trace(map(store.cleaned, messages), start.node)
        mark = mark or start.head
        ids = trace.ids if mark == start.head else store.chain.rechain(messages, trace, mark)
        ends = [trace.ends[count - 1] if count else 0 for count in counts]
        places = [Branch(start.id, trace.ids[end - 1] if end else start.head, start.depth + end) for end in ends]
        marks = [ids[end - 1] if end else mark for end in ends]
        return ClientAddition(start, messages, places, trace, counts, mark, marks)

    def read_conversation(self, read: Read) -> tuple[LiveConversation, ClientAddition]:
        """Return a whole body as a conversation by itself; neither reads nor writes the database."""
        lead = count_leading(read.entries)
        new = self.read_entries(read.entries[lead:], None, None)
        depths = array("Q", [*(0 for _ in range(lead)), *(place.depth for place in new.branches)])
        ends = array("Q", [entry.end for entry in read.entries])
        branch = new.branches[-1] if new.branches else new.at
        return LiveConversation(read.beginning(), lead, ends, depths, branch, new.last), new

    # -- storing requests ----------------------------------------------------------------------------------------------

    def look_up(self, body: bytes, sender: Sender, most_new: int | None) -> OpenedConversation:
        """Store a whole body and return its conversation.

        Raises:
            BrokenBody: the body cannot be read.
            Refused: more than ``most_new`` blocks are not stored yet.
        """
        read = read_body(body, self.dialect.list_name)
        check_model(read.field("model"))
        conversation, places = self.open_conversation(read, sender, most_new)
        kept, reported = _remembered(conversation, places), self.last_reported(conversation)
        return OpenedConversation(conversation, kept, reported)

    def has_views(self) -> bool:
        """Return whether anything was ever compacted in the database."""
        return self._first("SELECT 1 FROM view LIMIT 1") is not None

    def may_go_on(self, read: Read) -> bool:
        """Return whether a whole body may go on with a stored conversation; reads only.

        One that repeats no reply and whose first message is not known begins a conversation.
        """
        said = [entry for entry in read.entries if not is_leading(entry.value)]
        if not all(isinstance(entry.value, dict) and entry.value.get("role") == "user" for entry in said):
            return True
        return self._is_known(read)

    def open_conversation(
        self, read: Read, sender: Sender | None = None, most_new: int | None = None
    ) -> tuple[LiveConversation, dict[int, BodyPlace]]:
        """Store the messages of a whole body; return its conversation, and the places after its entries.

        Raises:
            Refused: more than ``most_new`` of its blocks are not stored yet; others would have to wait for them.
        """
        if most_new is not None and len(read.entries) > most_new and not self._is_known(read):
            raise too_much_new(most_new)
        conversation, new = self.read_conversation(read)
        if most_new is not None and self.store.identity.count_unknown(new.trace) > most_new:
            raise too_much_new(most_new)
        sender = self._describe(read, conversation, new, sender or Sender())
        placed = self.store.identity.place(
            StatelessRequest(new.messages, new.trace, sender, self._preamble(read, conversation))
        )
        _put(conversation, new, placed)
        conversation.hint, conversation.sender, conversation.rest = sender.session, sender, rest_of(read)
        if not placed.is_new and self.view_in_force(placed.at) is not None:
            conversation.view = apply_view(self.store, self.dialect, conversation)
        return conversation, _places(conversation, new, placed)

    def _is_known(self, read: Read) -> bool:
        """Return whether a stored conversation begins with the same message as a body."""
        first = next((entry for entry in read.entries if not is_leading(entry.value)), None)
        trace = None if first is None else self.read_entries([first], None, None).trace
        return trace is not None and self.store.identity.count_unknown(trace) < len(trace.ids)

    def _preamble(self, read: Read, conversation: LiveConversation) -> Blob | None:
        """Return the system messages and tools of a request, as they are stored."""
        draft = Draft(read.body, read.fields, read.start, conversation.ends)
        leading = [parse_json(read.body[slice(*draft.entry(number))]) for number in range(conversation.lead)]
        system = [self.store.cleaned(one) for one in [*self.dialect.system_of(read), *leading]]
        tools = read.field("tools")
        if not system and not tools:
            return None
        told = {"system": system, "tools": self.store.cleaned_tools(tools)}
        return blob(self.store.tenant, encoded_in_steps(told))

    def _describe(self, read: Read, conversation: LiveConversation, new: ClientAddition, sender: Sender) -> Sender:
        """Return the sender of a whole body, with what the body itself tells about it."""
        system = "\n".join(
            text_of(one)
            for one in [*self.dialect.system_of(read), *(entry.value for entry in read.entries[: conversation.lead])]
        )
        return replace(
            sender,
            session=sender.session or hint_in(read.field("metadata")),
            model=storable(str(read.field("model") or "")) or None,
            is_aside=looks_aside(
                has_tools=bool(read.field("tools")),
                max_tokens=self.dialect.answer_tokens(read),
                system_text=system,
                messages=new.messages,
            ),
        )

    # -- storing turns -------------------------------------------------------------------------------------------------

    def record(
        self, unstored: UnstoredTurn, turn: FinishedTurn, *, is_open: bool, is_just_placed: bool = False
    ) -> RecordedTurn:
        """Store a request with its turn; of one that ``is_open``, the upstream has not answered yet.

        Raises:
            BodyNeeded: its messages do not follow directly, and the body is missing.
        """
        conversation, read, new = unstored
        moved = None
        if (new is not None or is_just_placed) and not is_open and conversation.session is not None:
            at, mark = (conversation.branch, conversation.mark) if new is None else (new.at, new.mark)
            messages, trace = ([], Trace([], [], [])) if new is None else (new.messages, new.trace)
            added = NewMessages(messages, trace, None if mark == at.head else mark)
            ended, opened = replace(turn, session=conversation.session), conversation.opened if new is None else None
            followed = self.store.turns.add_following(at, added, ended, view=conversation.view_id, opened=opened)
            if followed is not None:  # nearly always: it has not gone on differently
                return RecordedTurn(followed[0])
        if new is not None:
            if read is None:
                raise BodyNeeded
            moved = conversation
            self._place_again(conversation, read, new)
        branch, session = conversation.branch, conversation.session
        if is_open:
            self.store.turns.begin(branch, model=turn.model, session=session, began=turn.began)
            return RecordedTurn(branch, moved)
        self.store.turns.add_finished(branch, replace(turn, session=session))
        return RecordedTurn(branch, moved)

    def record_whole(self, body: bytes, sender: Sender, turn: FinishedTurn, *, is_open: bool) -> RecordedTurn:
        """Store a request whose conversation was not looked up, with its turn."""
        conversation, places = self.open_conversation(read_body(body, self.dialect.list_name), sender)
        stored = self.record(UnstoredTurn(conversation, None, None), turn, is_open=is_open, is_just_placed=True)
        return stored._replace(conversation=conversation, places=_remembered(conversation, places))

    def finish_turn(self, number: int, turn: FinishedTurn) -> None:
        """Store the end of a turn that was open."""
        self.store.turns.finish(
            number,
            turn.reply,
            usage=turn.usage,
            cost=turn.cost,
            status=turn.status,
            error=turn.error,
            names=turn.names,
        )

    def finish_begun(self, turn: FinishedTurn) -> None:
        """Store the end of a turn whose beginning was stored just before.

        Raises:
            StoreUnavailable: it was not, so the turn has to be stored from the journal.
        """
        number = self._open_turn(turn)
        if number is None:
            raise StoreUnavailable("the beginning of a turn could not be stored just before")
        self.finish_turn(number, turn)

    def _place_again(self, conversation: LiveConversation, read: Read, new: ClientAddition) -> None:
        """Store new messages wherever they belong, and note that place and its view in the conversation."""
        before = conversation.branch.id
        try:
            _put(conversation, new, self.store_addition(conversation, read, new))
        except NotStored:  # the message that they follow could not be stored, or not yet
            whole, _ = self.open_conversation(read_body(read.body, self.dialect.list_name), conversation.sender)
            conversation.branch, conversation.mark, conversation.depths = whole.branch, whole.mark, whole.depths
            conversation.session, conversation.session_branch = whole.session, whole.session_branch
        if conversation.branch.id != before or self.view_in_force(conversation.branch) != conversation.view_id:
            # It goes on apart from where it came from, or another replica has compacted it meanwhile.
            conversation.view = apply_view(self.store, self.dialect, conversation)

    def store_addition(self, conversation: LiveConversation, read: Read, new: ClientAddition) -> PlacedRequest:
        """Store new messages of a known conversation, on another branch if it has gone on differently."""
        messages, trace = [*new.messages], new.trace
        ids = trace.ids if new.mark == new.at.head else self.store.chain.rechain(messages, trace, new.mark)
        preamble = self._preamble(read, conversation)
        chain, sender = Trace(ids, trace.blocks, trace.ends), conversation.sender
        return self.store.identity.place(StatelessRequest(messages, chain, sender, preamble, new.at, new.mark))

    # -- replaying the journal -----------------------------------------------------------------------------------------

    def replay(self, entries: Sequence[JournalEntry]) -> list[str | None]:
        """Store turns that waited in the journal, in order, each once; return why a turn cannot be stored, for each.

        One without an answer becomes an open turn and stays so.

        Raises:
            AWAY: the database is away. Turns that are stored by then are not stored again by the next call.
        """
        stored = self._stored_times([one.turn.began for one in entries if one.turn.began is not None])
        refused: list[str | None] = []
        for entry in entries:
            try:
                self._replay(entry, is_stored=entry.turn.began in stored)
            except AWAY:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the next entries must not wait for ever
                refused.append(str(error) or type(error).__name__)
            else:
                refused.append(None)
                if entry.turn.began is not None:
                    stored.add(entry.turn.began)
        return refused

    def _replay(self, entry: JournalEntry, *, is_stored: bool) -> None:
        """Store a turn that waited in the journal, unless a turn that began at the same time ``is_stored``."""
        turn = entry.turn
        if is_stored and not entry.is_open and (number := self._open_turn(turn)) is not None:
            self.finish_turn(number, turn)
            return
        if is_stored and entry.body is not None:  # placed again, it might begin another conversation
            return
        branch, session = self._place_of(entry)
        known = "SELECT id, status FROM turn WHERE depth = ? AND node = ? AND ts = ?"
        row = self._first(known, branch.depth, branch.head, turn.began) if is_stored else None
        if row is not None:
            number, status = row
            if status == "open" and not entry.is_open:  # its beginning was stored, and its end was not
                self.finish_turn(number, turn)
        elif entry.is_open:
            self.store.turns.begin(branch, model=turn.model, session=session or None, began=turn.began)
        else:
            self.store.turns.add_finished(branch, replace(turn, session=session), is_again=True)

    def _open_turn(self, turn: FinishedTurn) -> int | None:
        """Return the number of the open turn that an earlier entry of the same request began."""
        known = "SELECT id FROM turn WHERE tenant = ? AND status = 'open' AND ts = ?"
        rows = self._all(known, self.store.tenant, turn.began)
        return rows[0][0] if len(rows) == 1 else None

    def _stored_times(self, times: Sequence[float]) -> set[float]:
        """Return those of the times at which turns began that are stored."""
        if not times:
            return set()
        marks = ", ".join("?" * len(times))
        known = f"SELECT ts FROM turn WHERE tenant = ? AND status IN {_STATUSES} AND ts IN ({marks})"  # noqa: S608 - marks
        return {row[0] for row in self._all(known, self.store.tenant, *times)}

    def _place_of(self, entry: JournalEntry) -> tuple[Branch, str]:
        """Store the messages of an entry's request; return their place and session."""
        if entry.body is not None:
            read = read_body(entry.body.encode(), self.dialect.list_name)
            conversation, _ = self.open_conversation(read, entry.sender)
            return conversation.branch, conversation.session or ""
        given = entry.at
        if given is None:
            raise NotStored("an entry of the journal names no place in a conversation")
        row = self._first("SELECT branch, mark FROM node WHERE id = ? AND tenant = ?", given.head, self.store.tenant)
        if row is None and given.depth:
            raise NotStored(f"the message {given.head.hex()} that an entry of the journal follows is not stored")
        at = given if row is None else Branch(row[0], given.head, given.depth)
        mark = at.head if row is None or row[1] is None else bytes(row[1])
        trace = self.store.chain.trace(map(self.store.cleaned, entry.messages), Node(mark, at.depth))
        request = StatelessRequest(list(entry.messages), trace, entry.sender, None, at, mark)
        placed = self.store.identity.place(request)
        return placed.at, placed.session

    # -- compacting ----------------------------------------------------------------------------------------------------

    def last_reported(self, conversation: LiveConversation) -> tuple[int, int] | None:
        """Return the depth of the last answered request of a conversation, and the tokens the API counted in it."""
        turns = "SELECT depth, usage, view_id FROM turn WHERE branch = ? AND depth <= ? AND status = 'done'"
        at = conversation.branch
        row = self._first(f"{turns} ORDER BY depth DESC, id DESC LIMIT 1", at.id, at.depth)
        if row is None or row[1] is None or row[2] != conversation.view_id:
            return None
        usage = json.loads(row[1])
        tokens = usage.get("sent_tokens") or usage.get("prompt_tokens")
        return (row[0], tokens) if tokens else None

    def view_in_force(self, at: Branch) -> int | None:
        """Return the id of a branch's view; None if everything is sent as it came."""
        row = self._first("SELECT view_id FROM branch WHERE id = ?", at.id)
        return None if row is None else row[0]

    def catch_up(self, conversation: LiveConversation) -> bool:
        """Put the view in force into a conversation that has an older one, or none; return whether it has changed."""
        before = conversation.view_id
        if self.view_in_force(conversation.branch) in {None, before}:
            return False
        conversation.view = apply_view(self.store, self.dialect, conversation)
        if conversation.session is not None:  # which has gone on in a child
            conversation.session = self._session_at(conversation.branch)
        return conversation.view_id not in {None, before}

    def newest_place(self, conversation: LiveConversation) -> Branch:
        """Return the place that the requests of a conversation have reached by now."""
        at = conversation.branch
        row = self._first("SELECT MAX(depth) FROM turn WHERE branch = ?", at.id)
        depth = at.depth if row is None or row[0] is None else max(row[0], at.depth)
        return at if depth == at.depth else self.store.branch(at.id, depth)

    def compact(
        self,
        conversation: LiveConversation,
        engine: ContextEngine,
        occasion: Occasion,
        at: Branch | None = None,
        **options: Any,
    ) -> Compacted:
        """Have an engine compact a conversation, here or further on, and put the new view into it."""
        session = conversation.session if at is None else self._session_at(at)
        done = self.store.compact(at or conversation.branch, engine, occasion, roll_over=session, **options)
        if done.child is not None:
            conversation.session = done.child
        conversation.view = apply_view(self.store, self.dialect, conversation)
        return done

    def spill(self, conversation: LiveConversation, limits: SpillLimits, occasion: Occasion) -> Compacted:
        """Put stubs in the place of messages that no window holds, and the new view into the conversation."""
        done = self.store.spill(conversation.branch, limits, occasion)
        if done.outcome == "compacted":
            conversation.view = apply_view(self.store, self.dialect, conversation)
        return done

    def _session_at(self, at: Branch) -> str | None:
        """Return the session that a place is in now."""
        with self.store.database.read() as connection:
            return self.store.identity.session_at(connection, at.id, at.depth)

    def _first(self, statement: str, *values: Any) -> Any:
        """Return the first row of a statement; None if there is none."""
        rows = self._all(statement, *values)
        return rows[0] if rows else None

    def _all(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement; in plain SQL, because it runs with every request."""
        database = self.store.database
        with database.read() as connection:
            rows: Sequence[Any] = database.backend.run(connection, database.sql(statement), values).fetchall()
        return rows


class ResponseRecorder(ConversationRecorder):
    """Stores requests of the Responses API that name the response before them, always from the journal."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, OPENAI)
        self.api = RESPONSES_API

    def place_request(self, said: ResponsesRequest, sender: Sender, before: float | None = None) -> PlacedRequest:
        """Store the messages of a request where they belong.

        In a conversation that the upstream keeps, the request follows only turns that began ``before``.
        """
        for name in said.follows:
            found = self.store.turns.named(name, before=before if name == said.conversation else None)
            reply = None if found is None else self.store.turns.reply(found.id)
            if found is not None and reply is not None:
                at = Branch(found.branch, found.node, found.depth)
                with suppress(NotStored):
                    return self._place(said, sender, [reply, *said.messages], at)
        return self._place(said, sender, list(said.messages))

    def count_new(self, said: ResponsesRequest) -> int:
        """Count the blocks of a request that are not stored yet, or are repeated after a reply that it follows."""
        store = self.store
        trace = store.chain.trace(map(store.cleaned, said.messages), None)
        return len(trace.ids) if said.follows else store.identity.count_unknown(trace)

    def _place(
        self, said: ResponsesRequest, sender: Sender, messages: list[Message], at: Branch | None = None
    ) -> PlacedRequest:
        store = self.store
        mark = b"" if at is None else store.identity.mark_of(at)
        trace = store.chain.trace(map(store.cleaned, messages), None if at is None else Node(mark, at.depth))
        preamble = None
        if said.system or said.tools:
            told = {"system": list(map(store.cleaned, said.system)), "tools": store.cleaned_tools(said.tools)}
            preamble = blob(store.tenant, encoded(told))
        system = "\n".join(map(text_of, said.system))
        about = replace(
            sender,
            model=storable(said.model) or None,
            is_aside=looks_aside(has_tools=bool(said.tools), max_tokens=0, system_text=system, messages=messages),
        )
        return store.identity.place(StatelessRequest(messages, trace, about, preamble, at, mark))

    def _replay(self, entry: JournalEntry, *, is_stored: bool) -> None:
        known = (self.store.turns.named(name) for name in entry.turn.names)
        if not any(turn is not None and turn.began == entry.turn.began for turn in known):
            super()._replay(entry, is_stored=is_stored)

    def _place_of(self, entry: JournalEntry) -> tuple[Branch, str]:
        if entry.body is None:
            return super()._place_of(entry)
        placed = self.place_request(ResponsesRequest.read(entry.body), entry.sender, before=entry.turn.began)
        return placed.at, placed.session


def _put(conversation: LiveConversation, new: ClientAddition, placed: PlacedRequest) -> None:
    """Note in a conversation where the entries of a request were stored."""
    conversation.branch, conversation.session, conversation.session_branch = placed.at, placed.session, placed.at.id
    conversation.mark, conversation.opened = placed.mark, placed.opened
    first = len(conversation.ends) - len(new.counts)
    low = conversation.depths[first - 1] if first else 0
    for number, count in enumerate(new.counts):
        conversation.depths[first + number] = placed.depths[count - 1] if count else low


def _places(conversation: LiveConversation, new: ClientAddition, placed: PlacedRequest) -> dict[int, BodyPlace]:
    """Return the places after the entries of a whole body by their number, counted from 1."""
    found: dict[int, BodyPlace] = {}
    for number, (count, mark) in enumerate(zip(new.counts, new.marks, strict=True)):
        at = placed.ends[count - 1] if count and new.ends_message(number) else None
        if at is not None:
            last = conversation.lead + number + 1
            found[last] = BodyPlace(conversation, last, Branch(placed.at.id, at.head, at.depth), mark)
    return found


def _remembered(conversation: LiveConversation, places: dict[int, BodyPlace]) -> dict[int, BodyPlace]:
    """Return the places by which later bodies are recognized."""
    return {number: places[number] for number in kept_lengths(conversation, places).values()}


def too_much_new(most: int) -> Refused:
    """Return the refusal of a request that brings more new blocks at once than others can wait for."""
    said = f"more than {most:,} blocks (messages, or parts of them) of this request are new, which is the most at once"
    return Refused(413, said, close=True)


def rest_of(read: Read) -> bytes:
    """Return a digest of the system prompt and tools that stand behind the list of a body."""
    places = (read.fields.get(name) for name in ("system", "instructions", "tools"))
    told = b"\0".join(b"" if place is None or place[0] < read.start else read.body[slice(*place)] for place in places)
    return sha256(told).digest()
