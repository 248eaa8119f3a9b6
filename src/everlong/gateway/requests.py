"""Requests on their way through the gateway, and the conversations that they continue.

`TenantConversations` finds the conversation of a body: in memory (`conversations`), or else in the store. A request
that continues a conversation in memory costs only what it adds. `RelayedRequest` is everything the gateway knows about
one request while it passes. Runs in the event loop; blocking work is handed to the writer.

A request may get hidden tools, by which its model reads back what a compaction has moved out of its window. The gateway
answers their calls from the store and removes both from the client's answer (`everlong.agent.tools.hidden_tools`).
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from everlong.errors import StoreError
from everlong.gateway.auth import Refused
from everlong.gateway.body import (
    BrokenBody,
    Draft,
    Read,
    check_model,
    check_structure_apart,
    is_heavy,
    is_unwieldy,
    parse_json,
    read_body,
    read_more,
)
from everlong.gateway.bounds import encoding_of
from everlong.gateway.conversations import (
    HEAD,
    BodyPlace,
    ConversationMemory,
    Hashed,
    KnownBeginning,
    LiveConversation,
    hash_beginnings,
    kept_lengths,
    move_view,
    unplaced,
    with_view,
)
from everlong.gateway.formats import hint_in
from everlong.gateway.journal import AWAY, Journal
from everlong.gateway.recorder import ClientAddition, rest_of
from everlong.gateway.turn_queue import ConversationTurn, TurnQueue, WholeTurn
from everlong.store.identity import LONG_STEM, Sender

if TYPE_CHECKING:
    from aiohttp import web

    from everlong.gateway.formats import Dialect
    from everlong.gateway.recorder import ConversationRecorder
    from everlong.gateway.routing import Route
    from everlong.gateway.telemetry import RequestAccount
    from everlong.gateway.window import Windows
    from everlong.gateway.writer import StoreWriter
    from everlong.model import Message

__all__ = [
    "AWAY_SECONDS",
    "REQUEST_ID",
    "WARNING",
    "ConversationTurn",
    "RelayedRequest",
    "TenantConversations",
    "header_text",
    "opted_out",
    "request_id",
]

REQUEST_ID = "x-everlong-request-id"
"""The header of an answer that names its request."""
_GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,128}")
AWAY_SECONDS = 20.0
"""Seconds that a request waits for a database that is away, if the upstream refused it as too long."""
_AGAIN_SECONDS = 0.2
"""Seconds between two tries."""
WARNING = "x-everlong-warning"
"""The header that tells the client what went wrong in the gateway."""
OPT_OUT = "x-everlong"
"""The header by which a client asks the gateway to stay out of the way; it is not sent upstream."""
_MOVING_ENTRIES = 4
"""Entries at the end of a body that may come again in other bytes: clients move their cache markers along."""
_LARGE_BYTES = 1_000_000
"""Larger bodies are hashed in another thread."""
_PLACE_SECONDS = 1.0
"""Seconds that a request waits for the place of the one before it: to store all of it again costs ten times as much."""
_HUNG_SECONDS = 3.0
"""Seconds that a request waits for its conversation; if none came, no other is looked up for as long again."""
_VIEWS_SECONDS = 1.0
"""Seconds for which a store without views is taken to have none; other gateways may compact there, too."""


@dataclass(slots=True)
class RelayedRequest:
    """A request on its way through the gateway."""

    request: web.Request
    account: RequestAccount
    tenant: str
    """The tenant whose conversations it reaches."""
    dialect: Dialect
    route: Route
    body: bytes
    conversations: TenantConversations
    windows: Windows
    """The windows as far as its tenant knows them."""
    is_named: bool = False
    """True if it does not carry its conversation, but names the response before it."""
    words: bytes | None = None
    """The body without its encoding; None if that cannot be undone."""
    turn: ConversationTurn | None = None
    """The turn in its conversation; None if the conversation could not be found."""
    whole: WholeTurn | None = None
    """The turn, if it names the response before it."""
    abandon: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Records its end if its client has hung up; None before it is answered."""
    sent_body: bytes | None = None
    """The body that went upstream last, before its model looked anything up."""
    answered: bytes = b""
    """The body that is answered: that one, or one with look-ups behind it."""
    warning: str = ""
    draft: Draft | None = None
    """The body that went upstream last, before the gateway's own cache markers were put in."""
    view: int | None = None
    """The view that it was sent under."""
    hidden: frozenset[str] = frozenset()
    """The names of the tools that the gateway offers with it and answers itself."""
    hides_usage: bool = False
    """True if the gateway asks for the usage of its stream, and the client does not."""
    is_over: bool = False
    """True once its end is known."""
    is_rewritten: bool = False
    """True if the body is not the client's own; then it is in no encoding."""
    is_unread: bool = False
    """True if the gateway cannot read it."""

    @property
    def encoding(self) -> str:
        """The encoding that its headers name; empty if the body is not the client's own."""
        return "" if self.is_rewritten else encoding_of(self.request.headers)

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
            await asyncio.sleep(_AGAIN_SECONDS)


def request_id(given: str | None) -> str:
    """Return the id that a client gave if it is printable; otherwise a new one."""
    if given and _GIVEN.fullmatch(given):
        return given
    return f"req_{secrets.token_hex(12)}"


def opted_out(headers: Mapping[str, str]) -> bool:
    """Return whether a client wants nothing changed or stored; `Refused` if it wants something unknown."""
    given = headers.get(OPT_OUT)
    if given is not None and given.strip().lower() != "off":
        raise Refused(400, f"the header {OPT_OUT} is {given[:100]!r}, but must be off")
    return given is not None


def header_text(text: str) -> str:
    """Return a text as it may stand in a header."""
    return "".join(one if " " <= one <= "~" else "?" for one in " ".join(text.split()))[:300]


class TenantConversations(TurnQueue):
    """The conversations of one tenant by one API, and their turns on the way into the store."""

    def __init__(
        self,
        recorder: ConversationRecorder,
        windows: Windows,
        writer: StoreWriter,
        journal: Journal,
        memory: ConversationMemory,
        most_new: int,
    ) -> None:
        super().__init__(recorder, writer, journal, memory)
        self.windows = windows
        self._most_new = most_new
        self._hung_until = 0.0
        """The time, on the loop's clock, up to which the database is taken to hang."""
        self._views_read = -_VIEWS_SECONDS
        """The time when the store was last asked whether it has views, on the loop's clock."""
        self._view_mark = recorder.store.database.backend.view_mark()

    # -- coming in -----------------------------------------------------------------------------------------------------

    async def enter(self, body: bytes, sender: Sender, is_small: Callable[[str, int], bool]) -> ConversationTurn:
        """Return the turn of a request in its conversation, which is in memory or looked up in the store.

        If a request ``is_small``, far from any compaction, and no view can be in force for it, or if the database is
        away or hangs, it is not looked up: it goes on as it came, and is stored later.

        Raises:
            BrokenBody: the body holds no conversation.
            Refused: it adds more values than a request may, or nests them too deeply.
        """
        if (mark := self.recorder.store.database.backend.view_mark()) != self._view_mark:
            self._view_mark = mark
            self.look_up_views()
        if self._unplaced:
            await self._wait_for_place(body)
        found = self.live.find(body, await _hash_body(body, self.live.lengths(body)))
        known = 0 if found is None else found.place.conversation.ends[found.place.number - 1]
        values = await check_structure_apart(body, known)
        turn = None if found is None or is_heavy(body, known, values) else self._continue(body, sender, found)
        if turn is not None:
            return turn
        heavy, list_name = is_heavy(body, 0, None if known else values), self.recorder.dialect.list_name
        read = await asyncio.to_thread(read_body, body, list_name) if heavy else read_body(body, list_name)
        model = check_model(read.field("model"))
        can_wait = not heavy and is_small(model, len(body))
        clock = asyncio.get_running_loop().time
        try:
            if clock() >= self._hung_until and (not can_wait or await self._may_have_view(read)):
                async with asyncio.timeout(AWAY_SECONDS if heavy else _HUNG_SECONDS):
                    return await self._look_up(body, read, model, sender, found, heavy=heavy)
        except TimeoutError:
            self._hung_until = clock() + _HUNG_SECONDS
        except (StoreError, OSError):  # the journal keeps it until the database is back
            pass
        return await self._begin_unplaced(body, read, model, sender, found, heavy=heavy)

    async def _may_have_view(self, read: Read) -> bool:
        """Return whether a view may be in force for a whole body."""
        now = asyncio.get_running_loop().time()
        if not self._has_views and now - self._views_read >= _VIEWS_SECONDS:
            self._views_read = now
            self._has_views = await asyncio.to_thread(self.recorder.has_views)
        return self._has_views and await asyncio.to_thread(self.recorder.may_go_on, read)

    async def _begin_unplaced(
        self, body: bytes, read: Read, model: str, sender: Sender, found: KnownBeginning | None, *, heavy: bool
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
            conversation.cached = found.place.conversation.cached
        unwieldy = heavy and await asyncio.to_thread(is_unwieldy, body, read)
        turn = ConversationTurn(self, body, read, model, conversation, is_unplaced=True)
        turn.is_large, turn.is_unwieldy = heavy, unwieldy
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
        if is_opening and place.branch.depth <= LONG_STEM:
            return None
        read = read_more(body, before.read, before.ends[place.number - 1], self.recorder.dialect.list_name)
        model = check_model(read.field("model"))
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
        turn = ConversationTurn(self, body, read, model, conversation, new)
        self._watch(turn)
        return turn

    def _last(self, read: Read, conversation: LiveConversation) -> Message | None:
        """Return the message at the end of a conversation that has gone on differently before."""
        entry = Draft(read.body, read.fields, read.start, conversation.ends).entry(len(conversation.ends) - 1)
        said = self.recorder.dialect.messages_of(parse_json(read.body[slice(*entry)]), None)
        return said[-1] if said else None

    async def _look_up(
        self, body: bytes, read: Read, model: str, sender: Sender, found: KnownBeginning | None, *, heavy: bool
    ) -> ConversationTurn:
        """Find a conversation in the store, or begin one there."""
        if heavy:
            await self.catch_up()
        work = partial(self.recorder.look_up, body, sender, self._most_new if heavy else None)
        conversation, places, reported = await self._writer.submit(work, is_heavy=heavy)
        conversation.measure(len(body))
        if found is not None and found.place.conversation.session == conversation.session:
            conversation.goes_on_from(found.place.conversation)
            self.live.forget(found.place.conversation)  # this one takes its place
        self.note_view(conversation)
        hashes = await _hash_body(body, kept_lengths(conversation, places))
        self.live.keep(body, conversation, places, hashes=hashes)
        unwieldy = heavy and await asyncio.to_thread(is_unwieldy, body, read)
        turn = ConversationTurn(self, body, read, model, conversation, is_unwieldy=unwieldy, is_large=heavy)
        if conversation.reported is None and reported is not None and reported[0] in conversation.depths:
            since = conversation.ends[-1] - conversation.ends[conversation.depths.index(reported[0])]
            conversation.reported = (len(turn.sent(self.recorder.dialect)) - since, reported[1])
        self._watch(turn)
        return turn

    async def peek(self, body: bytes) -> bytes:
        """Return a body under the view that would be in force for it, if its conversation is in memory.

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
        return with_view(body, read, self.recorder.dialect, conversation, view).body


async def _hash_body(body: bytes, lengths: Iterable[int]) -> Iterable[Hashed]:
    """Hash the beginnings of a body that have certain lengths; those of a large one in another thread."""
    if len(body) < _LARGE_BYTES:
        return hash_beginnings(body, lengths)
    return await asyncio.to_thread(lambda: [(size, hasher.copy()) for size, hasher in hash_beginnings(body, lengths)])


def _count_replies(new: ClientAddition) -> int:
    """Count the replies of the model, each of which may be several messages."""
    roles = [message["role"] for message in new.messages]
    return sum(role == "assistant" and before != role for before, role in pairwise(["", *roles]))
