"""The recording of responses of the Responses API that name the one before them instead of repeating it.

`ResponseRecorder` stores them in the writer's threads; `TenantResponses` is the relay's side (see `turn_queue`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.errors import NotStored, StoreUnavailable
from everlong.gateway.body import parse_json
from everlong.gateway.formats import OPENAI, ResponsesRequest, looks_aside, read_responses_request
from everlong.gateway.journal import AWAY, Journal, JournalEntry
from everlong.gateway.recorder import ConversationRecorder, RecordedTurn
from everlong.gateway.turn_queue import OpenTurn, TurnQueue
from everlong.model import Node, text_of
from everlong.store.content import blob, encoded, is_large
from everlong.store.identity import PlacedRequest, Sender, StatelessRequest
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn, is_name, storable

if TYPE_CHECKING:
    from everlong.gateway.stream import AnswerTap
    from everlong.gateway.turn_queue import EndedRequest
    from everlong.gateway.writer import StoreWriter
    from everlong.model import Message
    from everlong.store import Store

__all__ = ["RESPONSES_API", "ResponseRecorder", "ResponseTurn", "TenantResponses", "UnstoredResponse", "read_asked"]

RESPONSES_API = "responses"
"""The name of this API in the journal."""
_MOST_NAMES = 20_000
"""Names of responses that may wait for a database that is away; a request that follows an older one begins anew."""


class UnstoredResponse(NamedTuple):
    """A request of the Responses API, on its way into the store."""

    request: ResponsesRequest
    sender: Sender
    awaited: Mapping[str, float]
    """By the name of a reply that may not be stored yet, when its turn began."""


class ResponseRecorder(ConversationRecorder):
    """Stores the conversations of one tenant that come in by the Responses API."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, OPENAI)

    @property
    def api(self) -> str:
        """The name of the API in the journal, and for the storing process."""
        return RESPONSES_API

    def record_response(self, unstored: UnstoredResponse, turn: FinishedTurn, *, is_open: bool) -> RecordedTurn:
        """Store a request with its turn; of one that ``is_open``, the upstream has not answered yet."""
        placed = self.place_request(unstored.request, unstored.sender, unstored.awaited)
        turns, branch, session = self.store.turns, placed.at, placed.session
        if is_open:
            turns.begin(branch, model=turn.model, session=session, began=turn.began)
        else:
            turns.add_finished(branch, replace(turn, session=session))
        return RecordedTurn(branch)

    def place_request(
        self,
        said: ResponsesRequest,
        sender: Sender,
        awaited: Mapping[str, float] | None = None,
        before: float | None = None,
    ) -> PlacedRequest:
        """Store the messages of a request where they belong.

        Args:
            said: the request.
            sender: its sender.
            awaited: by the name of a reply, when the newest turn that got such a reply began.
            before: in a conversation that the upstream keeps, the request follows only turns that began earlier.

        Raises:
            StoreUnavailable: a reply that the request follows is not in the database yet.
        """
        for name in said.follows:
            found = self.store.turns.named(name, before=before if name == said.conversation else None)
            if awaited and name in awaited and (found is None or found.began < awaited[name]):
                raise StoreUnavailable(f"the reply {name!r} that a request follows is not in the database yet")
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
        if entry.body is not None:
            placed = self.place_request(ResponsesRequest.read(entry.body), entry.sender, before=entry.turn.began)
            return placed.at, placed.session
        if entry.at is None:
            return super()._place_of(entry)
        return entry.at, ""  # its turn was begun before


class _GivenResponse(NamedTuple):
    """A response that a client has got and that may not be in the database yet."""

    began: float
    stored: asyncio.Future[Any] | None
    """Done when it is stored; None if it waits in the journal."""


@dataclass(slots=True)
class ResponseTurn(OpenTurn):
    """A request of the Responses API whose end is not stored yet."""

    request: ResponsesRequest
    sender: Sender
    awaited: dict[str, _GivenResponse]
    """By name, the responses that it follows and that may not be stored yet."""
    at: Branch | None = None
    """Its place, once its beginning is stored."""
    is_over: bool = False
    """True once its end is known."""
    tap: AnswerTap | None = None
    """The listener to the answer, once there is one."""

    @property
    def model(self) -> str:
        """The model that the client asks for; empty if it names none."""
        return self.request.model

    def names(self, ended: EndedRequest) -> tuple[str, ...]:
        """Return the names by which later requests may refer to the response."""
        if ended.reply is None:
            return ()
        names = (ended.reply.id, self.request.conversation)
        return tuple(name for name in names if isinstance(name, str) and is_name(name))

    def unsettled(self) -> list[asyncio.Future[Any]]:
        """Return the futures of the responses that it follows, as far as they are still being stored."""
        waiting = (given.stored for given in self.awaited.values())
        return [stored for stored in waiting if stored is not None and not stored.done()]


def read_asked(body: bytes) -> ResponsesRequest:
    """Read a request; `BrokenBody` if it cannot be read."""
    return read_responses_request(parse_json(body))


class TenantResponses(TurnQueue[ResponseTurn]):
    """The responses of one tenant that name the one before them."""

    recorder: ResponseRecorder

    def __init__(self, recorder: ResponseRecorder, writer: StoreWriter, journal: Journal) -> None:
        super().__init__(recorder, writer, journal)
        self._unstored: OrderedDict[str, _GivenResponse] = OrderedDict()
        self._followers: dict[str, asyncio.Future[Any]] = {}
        """By the name of a response, the newest ended turn that follows it and is not stored yet."""

    def enter(self, said: ResponsesRequest, sender: Sender) -> ResponseTurn:
        """Take a request in."""
        named = said.conversation if said.conversation and is_name(said.conversation) else None
        awaited = {name: self._unstored[name] for name in said.follows if name in self._unstored}
        sender = replace(sender, session=sender.session or named)
        turn = ResponseTurn(said, sender, awaited, is_large=is_large([said.system, said.messages]))
        self._watch(turn)
        return turn

    def owns(self, name: str) -> bool:
        """Return whether a response or conversation belongs to this tenant; reads the database."""
        return name in self._unstored or self.recorder.store.turns.named(name) is not None

    def _overdue(self, turn: ResponseTurn) -> None:
        """Store a request that takes its time, after the responses that it follows."""
        before = self._stored_before(turn)
        if before:
            before[0].add_done_callback(lambda _: self._overdue(turn))
        elif not turn.is_over:
            self.begin(turn)

    async def finish(self, turn: ResponseTurn, entry: JournalEntry) -> asyncio.Future[Any]:
        """Write an ended turn into the journal, then start to store it; from now on requests may follow it."""
        stored, names = await super().finish(turn, entry), entry.turn.names
        for name in turn.request.follows:
            self._followers[name] = stored
            stored.add_done_callback(partial(self._drop_follower, name))
        for name in names:
            if name not in self._unstored or self._unstored[name].began <= turn.began:
                self._unstored[name] = _GivenResponse(turn.began, stored)
                self._unstored.move_to_end(name)
        while len(self._unstored) > _MOST_NAMES:
            self._unstored.popitem(last=False)
        stored.add_done_callback(partial(self._on_stored, names, turn.began))
        return stored

    def finish_in_store(self, turn: ResponseTurn, past: FinishedTurn) -> asyncio.Future[Any]:
        """Store an ended turn after the responses that it follows; the future is done when it is stored."""
        before = self._stored_before(turn)
        if before:
            return asyncio.ensure_future(self._finish_after(before, turn, past))
        return super().finish_in_store(turn, past)

    def _stored_before(self, turn: ResponseTurn) -> list[asyncio.Future[Any]]:
        """Return the futures of turns that come first: those that it follows, and those that followed them earlier.

        The first turn that goes on from a response stays in its conversation; another one is a fork.
        """
        siblings = (self._followers[name] for name in turn.request.follows if name in self._followers)
        return [*turn.unsettled(), *(one for one in siblings if not one.done())]

    def _drop_follower(self, name: str, stored: asyncio.Future[Any]) -> None:
        if self._followers.get(name) is stored:
            del self._followers[name]

    async def _finish_after(self, others: list[asyncio.Future[Any]], turn: ResponseTurn, past: FinishedTurn) -> None:
        await asyncio.wait(others)
        await super().finish_in_store(turn, past)

    def _on_stored(self, names: Sequence[str], began: float, stored: asyncio.Future[Any]) -> None:
        if stored.cancelled() or isinstance(stored.exception(), AWAY):
            for name in self._current(names, began):
                self._unstored[name] = _GivenResponse(began, None)
        else:
            self._let_go(names, began)

    def _let_go(self, names: Iterable[str], began: float) -> None:
        """Forget the names of a response that is stored, or never will be."""
        for name in self._current(names, began):
            del self._unstored[name]

    def _current(self, names: Iterable[str], began: float) -> list[str]:
        """Return those names that no newer response has taken."""
        return [name for name in names if name in self._unstored and self._unstored[name].began == began]

    # -- storing -------------------------------------------------------------------------------------------------------

    def _entry(self, turn: ResponseTurn, past: FinishedTurn, *, is_open: bool) -> JournalEntry:
        store = self.recorder.store
        body = turn.request.written(store.cleaned) if turn.at is None else None
        return JournalEntry(store.tenant, RESPONSES_API, past, body, turn.at, sender=turn.sender, is_open=is_open)

    def _recording(self, turn: ResponseTurn, past: FinishedTurn, *, is_open: bool) -> Callable[[], RecordedTurn]:
        awaited = {name: given.began for name, given in turn.awaited.items()}
        unstored = UnstoredResponse(turn.request, turn.sender, awaited)
        return partial(self.recorder.record_response, unstored, past, is_open=is_open)

    def _settled(self, turn: ResponseTurn, recorded: RecordedTurn | None, *, is_away: bool) -> None:
        del is_away
        if recorded is None:
            return
        turn.at = recorded.branch
        for name, given in turn.awaited.items():
            self._let_go([name], given.began)
