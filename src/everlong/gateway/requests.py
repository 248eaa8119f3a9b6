"""A request on its way through: which conversation it continues, what of it is new, and what it becomes upstream.

Runs in the event loop; what blocks is handed to the writer. A request that continues one in memory costs what it adds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from everlong.errors import NotStored
from everlong.gateway.account import REQUEST_ID, RequestAccount, account_of
from everlong.gateway.body import (
    BrokenBody,
    Draft,
    Read,
    check_model,
    checked_structure,
    draft_of,
    encoding_of,
    is_compressed,
    is_heavy,
    is_unwieldy,
    meant,
    read_body,
    read_more,
)
from everlong.gateway.conversations import (
    AppliedView,
    BodyPlace,
    ConversationMemory,
    KnownBeginning,
    LiveConversation,
    LiveConversations,
    applied_view,
    hashes_of,
    kept_lengths,
    moved_view,
    with_view,
)
from everlong.gateway.formats import hint_in
from everlong.gateway.journal import AWAY, Journal, JournalEntry
from everlong.gateway.recorder import Addition, EndedRequest, OpenTurn, Stored, TurnQueue, rest_of
from everlong.store.stateless import LONG_STEM

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

    from aiohttp import web

    from everlong.gateway.budget import Charge
    from everlong.gateway.cache_markers import Sent
    from everlong.gateway.engines import HostedEngine
    from everlong.gateway.formats import Dialect
    from everlong.gateway.recorder import ConversationRecorder
    from everlong.gateway.routing import Route
    from everlong.gateway.stream import Answering
    from everlong.gateway.writer import Writer
    from everlong.model import Message
    from everlong.store.stateless import Sender
    from everlong.store.tree import Branch

__all__ = [
    "AGAIN_SECONDS",
    "AWAY_SECONDS",
    "WARNING",
    "ConversationTurn",
    "NewLimits",
    "RelayedRequest",
    "TenantConversations",
    "header_text",
]

_MOVING = 4
"""So many of the last entries may come again in other bytes: clients move their cache markers along."""


_MOST_VIEWS = 50_000
"""Of so many compacted conversations the view in force is remembered."""
_LARGE = 1_000_000
"""Bodies of more bytes are hashed in another thread."""


class NewLimits(NamedTuple):
    """How much a request may bring that the gateway does not know yet."""

    values: int = 300_000
    blocks: int = 3_000


class _New(NamedTuple):
    """What a request adds to a conversation, and where."""

    at: Branch
    added: Addition


@dataclass(slots=True)
class ConversationTurn(OpenTurn):
    """A request whose conversation is known."""

    body: bytes
    read: Read
    conversation: LiveConversation
    hint: str | None = None
    new: _New | None = None
    """What has to be stored; None where it is, or is about to be."""
    about_to: _New | None = None
    """What is about to be stored."""
    is_unwieldy: bool = False
    """True where it is too large to be compacted while others wait: many times any window."""
    drafted: int = 0
    """Bytes of the body by the view in force when it was sent last, without what the gateway adds to it."""

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory until it is stored, about."""
        return len(self.body)

    @property
    def model(self) -> str:
        """The model that the client asks for."""
        return str(self.read.field("model") or "")

    def sent(self, dialect: Dialect) -> bytes:
        """The body by the view in force."""
        return self.draft(dialect).body

    def draft(self, dialect: Dialect) -> Draft:
        """The same, with the places of what stands in it."""
        conversation = self.conversation
        if conversation.view is None or conversation.view.covers > len(conversation.ends):
            return draft_of(self.body, self.read, conversation.ends)
        return with_view(self.body, self.read, dialect, conversation, conversation.view)


class TenantConversations(TurnQueue[ConversationTurn, AppliedView | None]):
    """The requests of one tenant by one API."""

    def __init__(
        self,
        recorder: ConversationRecorder,
        writer: Writer,
        journal: Journal,
        memory: ConversationMemory,
        most: NewLimits,
    ) -> None:
        super().__init__(writer, journal)
        self.recorder = recorder
        self.live = LiveConversations(memory)
        self._most = most
        self._newest_views: dict[int, int] = {}
        """By branch, the view that came into force last as far as this gateway knows; none for most."""

    # -- coming in -----------------------------------------------------------------------------------------------------

    async def enter(self, body: bytes, sender: Sender) -> ConversationTurn:
        """Find the conversation of a body; `BrokenBody` where it is none. One that is not in memory is looked up.

        Raises:
            Refused: it adds more values than a request may, or nests them too deeply.
        """
        found = self.live.find(body, await _hashes(body, self.live.lengths(body)))
        known = 0 if found is None else found.place.conversation.ends[found.place.number - 1]
        await checked_structure(body, self._most.values, known)
        turn = None if found is None or is_heavy(body, known) else self._gone_on(body, sender, found)
        return turn or await self._looked_up(body, sender, found)

    def _gone_on(self, body: bytes, sender: Sender, found: KnownBeginning) -> ConversationTurn | None:
        """Go on with a conversation in memory; None where only the store can tell whether it is this one."""
        place = found.place
        is_opening = (
            place.branch.depth <= place.conversation.opened
        )  # other conversations may have begun with the same words
        is_long = place.branch.depth > LONG_STEM
        if (
            is_opening
            and not is_long
            and (place.conversation.reply is None or place.number != len(place.conversation.ends))
        ):
            return None
        list_name = self.recorder.dialect.list_name
        read = read_more(body, place.conversation.read, place.conversation.ends[place.number - 1], list_name)
        check_model(read.field("model"))
        hint = sender.session or hint_in(read.field("metadata"))
        if hint != place.conversation.hint:
            return None
        conversation = place.conversation.cut(place.number, place.branch, place.mark)
        if _view_id(conversation) != _view_id(place.conversation) or _view_id(conversation) != self._newest_views.get(
            place.branch.id
        ):
            return None  # the view covers more than these two bodies share, or a later request was compacted
        added = self.recorder.added(
            read.entries, place.branch, conversation.last or self._last(read, conversation), place.mark
        )
        if _replies_in(added) > 1 + len(place.conversation.ends) - place.number:
            return None  # others were answered in between, in other bytes; the conversation may be another by now
        if added.is_moving or (is_opening and rest_of(read) != place.conversation.rest):
            return None
        if is_opening and not is_long and not _repeats_reply(place.conversation, added):
            return None
        conversation.ends.extend(entry.end for entry in read.entries)
        conversation.depths.extend(at.depth for at in added.branches)
        conversation.measure(len(body))
        if added.messages:
            conversation.branch, conversation.last, conversation.mark = added.branches[-1], added.last, added.marks[-1]
        if place.number >= len(place.conversation.ends) - _MOVING:
            self.live.forget(
                place.conversation
            )  # this one takes its place; whoever else goes on from there is looked up
        ends = zip(added.branches, added.marks, strict=True)
        places = {
            number: BodyPlace(conversation, number, at, mark)
            for number, (at, mark) in enumerate(ends, place.number + 1)
            if added.ends_message(number - place.number - 1)
        }
        places[place.number] = place._replace(conversation=conversation)
        self.live.keep(body, conversation, places, found)
        turn = ConversationTurn(body, read, conversation, hint, _New(place.branch, added))
        self._watch(turn)
        return turn

    def _last(self, read: Read, conversation: LiveConversation) -> Message | None:
        """The message at the end of a conversation that has gone on differently before."""
        entry = draft_of(read.body, read, conversation.ends).entry(len(conversation.ends) - 1)
        said = self.recorder.dialect.messages_of(meant(read.body[slice(*entry)]), None)
        return said[-1] if said else None

    async def _looked_up(self, body: bytes, sender: Sender, found: KnownBeginning | None) -> ConversationTurn:
        heavy = is_heavy(body)
        list_name = self.recorder.dialect.list_name
        given: Read | Callable[[], Read] = partial(read_body, body, list_name) if heavy else read_body(body, list_name)
        await self.caught_up(is_parallel=heavy)
        work = partial(self._opened, given, sender)
        read, conversation, places, told = await self._writer.submit(work, is_heavy=heavy)
        conversation.measure(len(body))
        if found is not None and found.place.conversation.session == conversation.session:
            conversation.goes_on_from(found.place.conversation)
            self.live.forget(found.place.conversation)  # this one takes its place
        self.note_view(conversation)
        self.live.keep(body, conversation, places, hashes=await _hashes(body, kept_lengths(conversation, places)))
        turn = ConversationTurn(
            body,
            read,
            conversation,
            conversation.hint,
            is_unwieldy=heavy and await asyncio.to_thread(is_unwieldy, body, read),
        )
        if conversation.reported is None and told is not None and told[0] in conversation.depths:
            since = conversation.ends[-1] - conversation.ends[conversation.depths.index(told[0])]
            conversation.reported = (len(turn.sent(self.recorder.dialect)) - since, told[1])
        self._watch(turn)
        return turn

    def _opened(
        self, given: Read | Callable[[], Read], sender: Sender
    ) -> tuple[Read, LiveConversation, dict[int, BodyPlace], tuple[int, int] | None]:
        read = given if isinstance(given, Read) else given()
        check_model(read.field("model"))
        conversation, places = self.recorder.opened(read, sender, None if read is given else self._most.blocks)
        return read, conversation, places, self.recorder.last_reported(conversation)

    async def peek(self, body: bytes) -> bytes:
        """A body by the view that would be in force for it, as far as its conversation is in memory; leaves no trace.

        Such a body comes by another way and begins with other fields, so its messages tell, and not its bytes.
        """
        if not self.live.has_view:
            return body
        await checked_structure(body, self._most.values)
        try:
            read = await asyncio.to_thread(read_body, body, self.recorder.dialect.list_name)
            conversation, added = await asyncio.to_thread(self.recorder.glanced, read)
        except BrokenBody:
            return body
        known = (self.live.at(mark) for mark in reversed(added.marks))
        place = next((found for found in known if found is not None), None)
        view = (
            None
            if place is None
            else moved_view(place.conversation.cut(place.number, place.branch, place.mark), conversation)
        )
        return body if view is None else with_view(body, read, self.recorder.dialect, conversation, view).body

    def turn_away(self, turn: ConversationTurn) -> None:
        """Forget a request that is not passed on; when it comes again it is looked up."""
        super().turn_away(turn)
        self.live.forget(turn.conversation)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _is_stored(self, turn: ConversationTurn) -> bool:
        return turn.new is None and turn.about_to is None

    def _lane(self, turn: ConversationTurn) -> int:
        return turn.conversation.branch.id

    def _entry(self, turn: ConversationTurn, ended: EndedRequest) -> JournalEntry:
        new = turn.new or turn.about_to  # which may still fail
        at = turn.conversation.branch if new is None else new.at
        clean = self.recorder.store.cleaned  # what may not be stored may not lie in a file either
        return JournalEntry(
            tenant=self.recorder.store.tenant,
            api=self.recorder.dialect.name,
            body=None,
            at=(at.id, at.head.hex(), at.depth),
            messages=[] if new is None else [clean(message) for message in new.added.messages],
            model=turn.model or None,
            hint=turn.hint,
            reply=None if ended.message is None else clean(ended.message),
            usage=ended.usage,
            status=ended.status,
            error=ended.error,
            began=turn.began,
            cost=ended.cost,
            sender=turn.conversation.sender,
        )

    def _work(self, turn: ConversationTurn, ended: EndedRequest | None) -> Callable[[], Stored[AppliedView | None]]:
        new, turn.new = turn.new, None
        turn.about_to = new
        return lambda: self._stored(turn, new, ended)

    def _end(self, turn: ConversationTurn, number: int, ended: EndedRequest) -> None:
        del turn
        self.recorder.finished(number, ended)

    def _stored(
        self, turn: ConversationTurn, new: _New | None, ended: EndedRequest | None
    ) -> Stored[AppliedView | None]:
        """In the writer's thread."""
        conversation, recorder, model = turn.conversation, self.recorder, turn.model or None
        view = conversation.view
        if new is not None and ended is not None and conversation.session is not None:
            followed = recorder.followed(
                conversation, new.at, new.added, ended.past(conversation.session, model, turn.began)
            )
            if followed is not None:  # which is the rule
                conversation.branch, number = followed
                return Stored(number, view)
        if new is not None:
            before = conversation.branch.id
            try:
                recorder.put(conversation, new.added, recorder.gone_on(conversation, turn.read, new.at, new.added))
            except NotStored:  # what it follows could not be stored, or not yet
                whole, _ = recorder.opened(read_body(turn.body, recorder.dialect.list_name), conversation.sender)
                conversation.branch, conversation.mark, conversation.depths = whole.branch, whole.mark, whole.depths
                conversation.session, conversation.session_branch = whole.session, whole.session_branch
            shown = recorder.view_in_force(conversation.branch)
            if conversation.branch.id != before or shown != (view.view_id if view is not None else None):
                # It goes on apart from where it came from, or another replica has compacted it meanwhile.
                view = applied_view(recorder.store, recorder.dialect, conversation)
        if ended is None:
            return Stored(recorder.begun(conversation, model, turn.began), view)
        number = recorder.recorded(conversation, ended.past(conversation.session, model, turn.began))
        if conversation.branch.depth <= conversation.opened:  # so that the next request need not be looked up
            conversation.reply = recorder.reply_of(conversation, number)
        return Stored(number, view)

    def _settled(self, turn: ConversationTurn, stored: Stored[AppliedView | None] | None, *, is_away: bool) -> None:
        new, turn.about_to = turn.about_to, None
        if stored is None:
            if is_away:
                turn.new = new  # its view goes on to hold
            else:
                self.live.forget(turn.conversation)  # the next request finds out where it stands
        elif new is not None:
            turn.conversation.view = stored.also
            self.note_view(turn.conversation)
            if turn.conversation.branch.id != new.at.id:
                self.live.forget(turn.conversation)  # its places were taken for those of the branch that it came from

    def note_view(self, conversation: LiveConversation) -> None:
        """Remember which view is in force in a conversation; requests that go on without it are looked up."""
        if (view := _view_id(conversation)) is None:
            self._newest_views.pop(conversation.branch.id, None)
            return
        if len(self._newest_views) >= _MOST_VIEWS:
            self._newest_views.clear()
        self._newest_views[conversation.branch.id] = view


def _view_id(conversation: LiveConversation) -> int | None:
    return None if conversation.view is None else conversation.view.view_id


async def _hashes(body: bytes, lengths: Iterable[int]) -> dict[int, Hash] | None:
    """Hash the beginnings of a large body in another thread; None where it is not large."""
    if len(body) < _LARGE:
        return None
    return await asyncio.to_thread(lambda: {size: hasher.copy() for size, hasher in hashes_of(body, lengths)})


def _replies_in(added: Addition) -> int:
    """Count the replies of the model, each of which may be several messages."""
    roles = [message["role"] for message in added.messages]
    return sum(role == "assistant" and before != role for before, role in pairwise(["", *roles]))


def _repeats_reply(conversation: LiveConversation, added: Addition) -> bool:
    """Return whether a request goes on with the very reply that the first request of a conversation got."""
    ends = added.trace.ends
    return bool(ends and ends[0]) and added.trace.ids[ends[0] - 1] == conversation.reply


AWAY_SECONDS = 20.0
"""So long a request that the upstream finds too long waits for a database that is away."""
AGAIN_SECONDS = 0.2
WARNING = "x-everlong-warning"
"""The header that says what of ours went wrong."""


@dataclass(slots=True)
class RelayedRequest:
    """A request on its way through."""

    request: web.Request
    dialect: Dialect
    route: Route
    body: bytes
    conversations: TenantConversations
    turn: ConversationTurn | None = None
    answering: Answering | None = None
    """The way back of the newest attempt."""
    sent_body: bytes | None = None
    """The body that went upstream last."""
    warning: str = ""
    sent: Sent | None = None
    """What of its conversation went upstream last."""
    hidden: frozenset[str] = frozenset()
    """The names of the tools that the gateway offers with it and answers itself."""
    engine: HostedEngine | None = None
    """The context engine of its conversation, where the user chose one that is not built in."""
    is_over: bool = False
    """Whether it is known what came of it."""
    is_rewritten: bool = False
    """Whether the body is another one than came, which is in no encoding."""
    is_unstored: bool = False
    """Whether the database was away when it came."""
    noted: int | None = None
    """The number of its entry in the journal, where the database was away."""
    is_unread: bool = False
    """Whether it cannot be read here."""
    aside: Charge | None = None
    """What a summary on its behalf costs a key that may spend only so much."""
    account: RequestAccount = field(init=False)

    def __post_init__(self) -> None:
        self.account = account_of(self.request)

    @property
    def encoding(self) -> str:
        """The encoding that the body is in, if it still is."""
        encoding = encoding_of(self.request.headers)
        return encoding if is_compressed(self.body, encoding) else ""

    @property
    def extra(self) -> dict[str, str]:
        """Headers of our own on the answer."""
        own = {REQUEST_ID: self.account.id}
        return own | {WARNING: self.warning} if self.warning else own

    async def stored(self, turn: ConversationTurn, seconds: float = 0.0) -> None:
        """Wait until the request is stored, or cannot be; for a database that is away, at most so many seconds."""
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
    """A text as it may stand in a header."""
    return text.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")[:300]
