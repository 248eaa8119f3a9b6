"""Requests on their way through the gateway, and the conversations that they continue.

`TenantConversations` finds the conversation of a body: in memory (`conversations`), or else in the store. A request
that continues a conversation in memory costs only what it adds. `RelayedRequest` is everything the gateway knows about
one request while it passes. Runs in the event loop; blocking work is handed to the writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from everlong.gateway.account import REQUEST_ID, RequestAccount, account_of
from everlong.gateway.body import (
    BrokenBody,
    Draft,
    Read,
    check_model,
    check_structure_apart,
    draft_of,
    dump_json,
    is_heavy,
    is_unwieldy,
    parse_json,
    read_body,
    read_more,
)
from everlong.gateway.conversations import (
    HEAD,
    AppliedView,
    BodyPlace,
    ConversationMemory,
    KnownBeginning,
    LiveConversation,
    LiveConversations,
    hash_beginnings,
    kept_lengths,
    move_view,
    unplaced,
    with_view,
)
from everlong.gateway.encodings import encoding_of, is_compressed
from everlong.gateway.formats import PLATFORM, hint_in, sender_of
from everlong.gateway.journal import AWAY, Journal, JournalEntry
from everlong.gateway.recorder import ClientAddition, UnstoredTurn, rest_of
from everlong.gateway.turn_queue import EndedRequest, OpenTurn, TurnQueue
from everlong.model import typed_words
from everlong.store.identity import LONG_STEM, Sender
from everlong.store.turns import is_name

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

    from aiohttp import web

    from everlong.gateway.cache_watch import Sent
    from everlong.gateway.engines import HostedEngine
    from everlong.gateway.formats import Dialect
    from everlong.gateway.recorder import ConversationRecorder, RecordedTurn
    from everlong.gateway.routing import Route
    from everlong.gateway.stream import Answering
    from everlong.gateway.writer import StoreWriter
    from everlong.model import Message
    from everlong.store.turns import FinishedTurn

__all__ = [
    "AGAIN_SECONDS",
    "AWAY_SECONDS",
    "WARNING",
    "ConversationTurn",
    "RelayedRequest",
    "TenantConversations",
    "header_text",
]

AWAY_SECONDS = 20.0
"""Seconds that a request waits for a database that is away, if the upstream refused it as too long."""
AGAIN_SECONDS = 0.2
"""Seconds between two tries."""
WARNING = "x-everlong-warning"
"""The header that tells the client what went wrong in the gateway."""
_MOVING_ENTRIES = 4
"""Entries at the end of a body that may come again in other bytes: clients move their cache markers along."""
_MOST_VIEWS = 50_000
"""Compacted conversations of which the view in force is remembered."""
_LARGE_BYTES = 1_000_000
"""Larger bodies are hashed in another thread."""
_PLACE_SECONDS = 0.2
"""Seconds that a request waits for the place of the one before it; clients are rarely that quick."""
_VIEWS_SECONDS = 1.0
"""Seconds for which a store without views is taken to have none; other gateways may compact there, too."""


@dataclass(slots=True)
class RelayedRequest:
    """A request on its way through the gateway."""

    request: web.Request
    dialect: Dialect
    route: Route
    body: bytes
    conversations: TenantConversations
    turn: ConversationTurn | None = None
    """The turn in its conversation; None if the conversation could not be found."""
    answering: Answering | None = None
    """The way back of the newest attempt."""
    sent_body: bytes | None = None
    """The body that went upstream last."""
    warning: str = ""
    sent: Sent | None = None
    """That body as the watch over the provider's cache needs it."""
    hidden: frozenset[str] = frozenset()
    """The names of the tools that the gateway offers with it and answers itself."""
    engine: HostedEngine | None = None
    """The context engine of its conversation, if the user chose one that is not built in."""
    is_over: bool = False
    """True once its end is known."""
    is_rewritten: bool = False
    """True if the body is not the client's own; then it is in no encoding."""
    is_unstored: bool = False
    """True if the database was away when it came."""
    noted: int | None = None
    """The number of its journal entry, if the database was away."""
    is_unread: bool = False
    """True if the gateway cannot read it."""
    account: RequestAccount = field(init=False)

    def __post_init__(self) -> None:
        self.account = account_of(self.request)

    @property
    def sender(self) -> Sender:
        """The client that sent it."""
        return sender_of(self.request.headers, self.account.folder, self.account.program)

    @property
    def encoding(self) -> str:
        """The encoding of the body; empty if it is in none."""
        encoding = encoding_of(self.request.headers)
        return encoding if is_compressed(self.body, encoding) else ""

    @property
    def extra(self) -> dict[str, str]:
        """The gateway's own headers on the answer."""
        own = {REQUEST_ID: self.account.id}
        return own | {WARNING: self.warning} if self.warning else own

    async def wait_until_stored(self, turn: ConversationTurn, seconds: float = 0.0) -> None:
        """Wait until the request is stored, or cannot be; for a database that is away, at most some seconds."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while True:
            begun = self.conversations.begin(turn)
            await asyncio.wait([begun])
            is_away = not begun.cancelled() and isinstance(begun.exception(), AWAY)
            if not is_away or clock() >= until:
                return
            await asyncio.sleep(AGAIN_SECONDS)


def header_text(text: str) -> str:
    """Return a text as it may stand in a header."""
    return "".join(one if " " <= one <= "~" else "?" for one in " ".join(text.split()))[:300]


@dataclass(slots=True)
class ConversationTurn(OpenTurn):
    """A request whose conversation is known and whose end is not stored yet."""

    body: bytes
    read: Read
    conversation: LiveConversation
    hint: str | None = None
    new: ClientAddition | None = None
    """The messages that are not stored yet; None if they are."""
    is_unplaced: bool = False
    """True if its conversation was not looked up; all of it has to be stored."""
    is_unwieldy: bool = False
    """True if it is many times as large as any window: too large to be compacted while others wait."""
    teases: bool = False
    """True if the model hears of earlier messages that a question seems to mean."""
    drafted: int = 0
    """Bytes of the body under the view in force when it was sent last, without the gateway's own additions."""

    @property
    def weight(self) -> int:
        """Approximate bytes that it keeps in memory until it is stored."""
        return len(self.body)

    @property
    def model(self) -> str:
        """The model that the client asks for; empty if it names none."""
        return str(self.read.field("model") or "")

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

    def said(self, dialect: Dialect) -> bytes:
        """Return the body under the view in force without teasers: what user and model said."""
        return self.draft(dialect, teases=False).body

    def draft(self, dialect: Dialect, *, teases: bool | None = None) -> Draft:
        """Return the body under the view in force, with the places of its entries."""
        conversation, view = self.conversation, self.view
        if view is None:
            return draft_of(self.body, self.read, conversation.ends)
        teases = self.teases if teases is None else teases
        return with_view(self.body, self.read, dialect, conversation, view, teases=teases)

    def question(self, dialect: Dialect) -> str:
        """Return the words that a person typed in the newest message, if no teaser stands beside it yet."""
        conversation, view = self.conversation, self.view
        if view is None or len(conversation.ends) <= view.covers or conversation.depths[-1] in view.teasers:
            return ""
        if conversation.depths[-1] == conversation.depths[-2]:  # the entry has no message of its own
            return ""
        entry = draft_of(self.body, self.read, conversation.ends).entry(len(conversation.ends) - 1)
        said = dialect.messages_of(parse_json(self.body[slice(*entry)]), None)
        return typed_words(said[-1]) if said else ""


class TenantConversations(TurnQueue[ConversationTurn]):
    """The conversations of one tenant by one API, and their turns on the way into the store."""

    def __init__(
        self,
        recorder: ConversationRecorder,
        writer: StoreWriter,
        journal: Journal,
        memory: ConversationMemory,
        most_new: int,
    ) -> None:
        super().__init__(recorder, writer, journal)
        self.live = LiveConversations(memory)
        self._most_new = most_new
        self._unplaced: dict[bytes, list[ConversationTurn]] = {}
        """Turns whose place is not known yet, by the first bytes of their bodies."""
        self._is_file = recorder.store.database.backend.name == "sqlite"
        """False for a server: its places come too late for the next request, which cost 30% more CPU time so."""
        self._has_views = False
        self._views_read = -_VIEWS_SECONDS
        """The time when the store was last asked whether it has views, on the loop's clock."""
        self._newest_views: dict[int, int] = {}
        """By branch, the view that came into force last, as far as this gateway knows; few branches have one."""
        self._view_mark = recorder.store.database.backend.view_mark()

    # -- coming in -----------------------------------------------------------------------------------------------------

    async def enter(
        self, body: bytes, sender: Sender, is_small: Callable[[str, int], bool] | None = None
    ) -> ConversationTurn:
        """Return the turn of a request in its conversation, which is in memory or looked up in the store.

        Args:
            body: the request.
            sender: its sender.
            is_small: tells by the model and the bytes whether a request is far from any compaction. If no view can be
                in force for such a request, it is not looked up: it goes on as it came, and is stored later.

        Raises:
            BrokenBody: the body holds no conversation.
            Refused: it adds more values than a request may, or nests them too deeply.
        """
        if (mark := self.recorder.store.database.backend.view_mark()) != self._view_mark:
            self._view_mark = mark
            self.look_up_views()
        if self._unplaced:
            await self._wait_for_place(body)
        found = self.live.find(body, await _hash_large(body, self.live.lengths(body)))
        known = 0 if found is None else found.place.conversation.ends[found.place.number - 1]
        values = await check_structure_apart(body, known)
        turn = None if found is None or is_heavy(body, known, values) else self._continue(body, sender, found)
        if turn is not None:
            return turn
        heavy = is_heavy(body, 0, None if known else values)
        if heavy:
            return await self._look_up(body, sender, found)
        read = read_body(body, self.recorder.dialect.list_name)
        if is_small is not None and self._is_file:
            model = read.field("model")
            check_model(model)
            if is_small(str(model or ""), len(body)) and not await self._may_have_view(read):
                return await self._begin_unplaced(body, read, sender, found)
        return await self._look_up(body, sender, found, read)

    async def _may_have_view(self, read: Read) -> bool:
        """Return whether a view may be in force for a whole body."""
        now = asyncio.get_running_loop().time()
        if not self._has_views and now - self._views_read >= _VIEWS_SECONDS:
            self._views_read = now
            self._has_views = await asyncio.to_thread(self.recorder.has_views)
        return self._has_views and await asyncio.to_thread(self.recorder.may_go_on, read)

    async def _begin_unplaced(
        self, body: bytes, read: Read, sender: Sender, found: KnownBeginning | None
    ) -> ConversationTurn:
        """Return the turn of a request whose conversation is found when it is stored.

        Sixteen clients get 1.8 times as many answers a second to first requests so, and 1.4 times as many to forks
        (``bench.gateway.shapes``): nobody waits for what others store.
        """
        conversation = unplaced(read, sender)
        conversation.hint = sender.session or hint_in(read.field("metadata"))
        conversation.measure(len(body))
        if found is not None:
            conversation.reported = found.place.conversation.reported
        turn = ConversationTurn(body, read, conversation, conversation.hint, is_unplaced=True)
        self._unplaced.setdefault(body[:HEAD], []).append(turn)
        self._watch(turn)
        return turn

    async def _wait_for_place(self, body: bytes) -> None:
        """Wait a moment for the place of the request that a body goes on from, if it is being stored right now."""
        for turn in reversed(self._unplaced.get(body[:HEAD], ())):
            ends = turn.conversation.ends
            end = ends[-1] if ends else 0
            if turn.stored is not None and 0 < end < len(body) and body.startswith(turn.body[:end]):
                self._writer.hurry()
                await asyncio.wait([turn.stored], timeout=_PLACE_SECONDS)
                return

    def _continue(self, body: bytes, sender: Sender, found: KnownBeginning) -> ConversationTurn | None:
        """Go on with a conversation in memory; None if only the store can tell whether it is this one."""
        place, before = found.place, found.place.conversation
        # Up to the end of its first request, other conversations may have the same words.
        is_opening = place.branch.depth <= before.opened
        is_long = place.branch.depth > LONG_STEM
        if is_opening and not is_long and (before.reply is None or place.number != len(before.ends)):
            return None
        read = read_more(body, before.read, before.ends[place.number - 1], self.recorder.dialect.list_name)
        check_model(read.field("model"))
        hint = sender.session or hint_in(read.field("metadata"))
        if hint != before.hint:
            return None
        conversation = before.cut(place.number, place.branch, place.mark)
        if not conversation.view_id == before.view_id == self._newest_views.get(place.branch.id):
            return None  # the view covers more than these two bodies share, or a later request was compacted
        last = conversation.last or self._last(read, conversation)
        new = self.recorder.read_entries(read.entries, place.branch, last, place.mark)
        if _count_replies(new) > 1 + len(before.ends) - place.number:
            return None  # others were answered in between, in other bytes; the conversation may be another by now
        if is_opening and rest_of(read) != before.rest:
            return None
        if is_opening and not is_long and not _repeats_reply(before, new):
            return None
        conversation.ends.extend(entry.end for entry in read.entries)
        conversation.depths.extend(at.depth for at in new.branches)
        conversation.measure(len(body))
        if new.messages:
            conversation.branch, conversation.last, conversation.mark = new.branches[-1], new.last, new.marks[-1]
        if place.number >= len(before.ends) - _MOVING_ENTRIES:
            self.live.forget(before)  # this one takes its place; other requests that go on from there are looked up
        ends = zip(new.branches, new.marks, strict=True)
        places = {
            number: BodyPlace(conversation, number, at, mark)
            for number, (at, mark) in enumerate(ends, place.number + 1)
            if new.ends_message(number - place.number - 1)
        }
        places[place.number] = place._replace(conversation=conversation)
        self.live.keep(body, conversation, places, found)
        turn = ConversationTurn(body, read, conversation, hint, new)
        self._watch(turn)
        return turn

    def _last(self, read: Read, conversation: LiveConversation) -> Message | None:
        """Return the message at the end of a conversation that has gone on differently before."""
        entry = draft_of(read.body, read, conversation.ends).entry(len(conversation.ends) - 1)
        said = self.recorder.dialect.messages_of(parse_json(read.body[slice(*entry)]), None)
        return said[-1] if said else None

    async def _look_up(
        self, body: bytes, sender: Sender, found: KnownBeginning | None, read: Read | None = None
    ) -> ConversationTurn:
        """Find a conversation in the store, or begin one there; a body that was not read yet is heavy."""
        heavy = read is None
        if read is None:
            read = await asyncio.to_thread(read_body, body, self.recorder.dialect.list_name)
            await self.catch_up()
        work = partial(self.recorder.look_up, body, sender, self._most_new if heavy else None)
        conversation, places, reported = await self._writer.submit(work, is_heavy=heavy, can_repeat=True)
        conversation.measure(len(body))
        if found is not None and found.place.conversation.session == conversation.session:
            conversation.goes_on_from(found.place.conversation)
            self.live.forget(found.place.conversation)  # this one takes its place
        self.note_view(conversation)
        hashes = await _hash_large(body, kept_lengths(conversation, places))
        self.live.keep(body, conversation, places, hashes=hashes)
        unwieldy = heavy and await asyncio.to_thread(is_unwieldy, body, read)
        turn = ConversationTurn(body, read, conversation, conversation.hint, is_unwieldy=unwieldy, is_large=heavy)
        if conversation.reported is None and reported is not None and reported[0] in conversation.depths:
            since = conversation.ends[-1] - conversation.ends[conversation.depths.index(reported[0])]
            conversation.reported = (len(turn.sent(self.recorder.dialect)) - since, reported[1])
        self._watch(turn)
        return turn

    async def peek(self, body: bytes, teases: Callable[[str], bool]) -> bytes:
        """Return a body under the view that would be in force for it, if its conversation is in memory.

        ``teases`` says whether requests to a model carry teasers.

        Such a body comes to another endpoint and begins with other fields, so its conversation is found by its messages
        and not by its bytes. Nothing is stored or remembered.
        """
        if not self.live.has_view:
            return body
        await check_structure_apart(body)
        try:
            read = await asyncio.to_thread(read_body, body, self.recorder.dialect.list_name)
            conversation, new = await asyncio.to_thread(self.recorder.read_conversation, read)
        except BrokenBody:
            return body
        known = (self.live.at(mark) for mark in reversed(new.marks))
        place = next((found for found in known if found is not None), None)
        if place is None:
            return body
        view = move_view(place.conversation.cut(place.number, place.branch, place.mark), conversation)
        if view is None:
            return body
        told = teases(str(read.field("model") or ""))
        return with_view(body, read, self.recorder.dialect, conversation, view, teases=told).body

    def turn_away(self, turn: ConversationTurn) -> None:
        """Forget a request that is not passed on; when it comes again it is looked up."""
        super().turn_away(turn)
        self._let_go(turn)
        self.live.forget(turn.conversation)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _is_stored(self, turn: ConversationTurn) -> bool:
        return turn.new is None and not turn.is_unplaced

    def _entry(self, turn: ConversationTurn, past: FinishedTurn, *, is_open: bool) -> JournalEntry:
        new, store = turn.new, self.recorder.store
        if turn.is_unplaced:
            sender = turn.conversation.sender or Sender(PLATFORM, turn.hint)
            words = self._storable(turn.body)
            return JournalEntry(store.tenant, self.recorder.dialect.name, past, words, sender=sender, is_open=is_open)
        return JournalEntry(
            store.tenant,
            self.recorder.dialect.name,
            past,
            at=turn.conversation.branch if new is None else new.at,
            messages=[] if new is None else [store.cleaned(message) for message in new.messages],
            sender=turn.conversation.sender or Sender(PLATFORM, turn.hint),
            is_open=is_open,
        )

    def _storable(self, body: bytes) -> str:
        """Return a body as it may stand in the journal: without secrets, if the store has none."""
        store, probe = self.recorder.store, dict[str, Any]()
        if store.cleaned(probe) is probe:  # nothing is taken out
            return body.decode()
        return dump_json(store.cleaned(parse_json(body))).decode()

    def _recording(self, turn: ConversationTurn, past: FinishedTurn, *, is_open: bool) -> Callable[[], RecordedTurn]:
        if turn.is_unplaced:
            sender = turn.conversation.sender or Sender(PLATFORM, turn.hint)
            return partial(self.recorder.record_whole, turn.body, sender, past, is_open=is_open)
        # A copy of the body would cost more than all the rest; nearly always messages follow directly.
        follows = turn.new is not None and not is_open and turn.conversation.session is not None
        return self._recording_of(turn, past, None if follows else turn.read, is_open=is_open)

    def _recording_whole(
        self, turn: ConversationTurn, past: FinishedTurn, *, is_open: bool
    ) -> Callable[[], RecordedTurn]:
        return self._recording_of(turn, past, turn.read, is_open=is_open)

    def _recording_of(
        self, turn: ConversationTurn, past: FinishedTurn, read: Read | None, *, is_open: bool
    ) -> Callable[[], RecordedTurn]:
        bare = None if read is None else replace(read, entries=[])
        unstored = UnstoredTurn(turn.conversation.to_store(), bare, turn.new)
        return partial(self.recorder.record, unstored, past, is_open=is_open)

    def _settled(self, turn: ConversationTurn, recorded: RecordedTurn | None, *, is_away: bool) -> None:
        conversation = turn.conversation
        if turn.is_unplaced:
            self._let_go(turn)
        if recorded is None:
            if not is_away:
                self.live.forget(conversation)  # the next request is looked up
            return
        new, turn.new = turn.new, None
        conversation.reply = recorded.reply or conversation.reply
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
        before = self.live.find(turn.body)
        if before is not None and before.place.conversation.session == conversation.session:
            self.live.forget(before.place.conversation)  # this one takes its place
        own = {number: place._replace(conversation=conversation) for number, place in places.items()}
        self.live.keep(turn.body, conversation, own)

    def look_up_views(self) -> None:
        """Have the next request of every conversation with a view looked up: somebody has changed views or pins."""
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


async def _hash_large(body: bytes, lengths: Iterable[int]) -> dict[int, Hash] | None:
    """Hash the beginnings of a large body in another thread; None if it is not large."""
    if len(body) < _LARGE_BYTES:
        return None
    return await asyncio.to_thread(lambda: {size: hasher.copy() for size, hasher in hash_beginnings(body, lengths)})


def _count_replies(new: ClientAddition) -> int:
    """Count the replies of the model, each of which may be several messages."""
    roles = [message["role"] for message in new.messages]
    return sum(role == "assistant" and before != role for before, role in pairwise(["", *roles]))


def _repeats_reply(conversation: LiveConversation, new: ClientAddition) -> bool:
    """Return whether a request goes on with the very reply that the first request of a conversation got."""
    ends = new.trace.ends
    return bool(ends and ends[0]) and new.trace.ids[ends[0] - 1] == conversation.reply
