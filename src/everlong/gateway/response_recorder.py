"""The recording of responses of the Responses API that name the one before them instead of repeating it."""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.errors import NotStored, StoreUnavailable
from everlong.gateway.body import dumped, meant
from everlong.gateway.formats import OPENAI, ResponsesRequest, asked, folder_in, looks_aside
from everlong.gateway.journal import AWAY, Journal, JournalEntry
from everlong.gateway.recorder import ConversationRecorder, OpenTurn, Stored, TurnQueue
from everlong.model import Node, text_of
from everlong.store.content import blob, encoded, is_large
from everlong.store.stateless import Placed, Sender, StatelessRequest
from everlong.store.tree import Branch
from everlong.store.turns import is_name, storable

if TYPE_CHECKING:
    from everlong.gateway.recorder import EndedRequest
    from everlong.gateway.stream import StreamTap, WholeTap
    from everlong.gateway.writer import Writer
    from everlong.model import Message
    from everlong.store import Store

__all__ = ["RESPONSES_API", "ResponseRecorder", "ResponseTurn", "TenantResponses", "read_asked"]

RESPONSES_API = "responses"
"""What the journal calls this API."""


class ResponseRecorder(ConversationRecorder):
    """Keeps the conversations of one tenant that come in by the Responses API."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, OPENAI)

    def asked(
        self,
        said: ResponsesRequest,
        sender: Sender,
        awaited: Mapping[str, float] | None = None,
        before: float | None = None,
    ) -> Placed:
        """Store what a request says where it belongs.

        Args:
            said: the request.
            sender: who sends it.
            awaited: when the turns were begun whose replies had these names last, where somebody remembers it.
                `StoreUnavailable` says that one that the request follows is not in the database yet.
            before: of turns in a conversation that the upstream keeps, it can only follow those begun earlier.
        """
        for name in said.follows:
            found = self.store.turns.named(name, before=before if name == said.conversation else None)
            if awaited and name in awaited and (found is None or found.began < awaited[name]):
                raise StoreUnavailable(f"the reply {name!r} that a request follows is not in the database yet")
            reply = None if found is None else self.store.turns.reply(found.id)
            if found is not None and reply is not None:
                at = Branch(found.branch, found.node, found.depth)
                with suppress(NotStored):
                    return self._placed(said, sender, [reply, *said.messages], at)
        return self._placed(said, sender, list(said.messages))

    def count_new(self, said: ResponsesRequest) -> int:
        """Count the blocks of a request that are not stored yet, or are repeated after a reply that it follows."""
        store = self.store
        trace = store.chain.trace(map(store.cleaned, said.messages), None)
        return len(trace.ids) if said.follows else store.stateless.count_unknown(trace)

    def _placed(
        self, said: ResponsesRequest, sender: Sender, messages: list[Message], at: Branch | None = None
    ) -> Placed:
        store = self.store
        mark = b"" if at is None else store.stateless.mark_of(at)
        trace = store.chain.trace(map(store.cleaned, messages), None if at is None else Node(mark, at.depth))
        preamble = None
        if said.system or said.tools:
            told = {"system": list(map(store.cleaned, said.system)), "tools": said.tools or None}
            preamble = blob(store.tenant, encoded(told))
        system = "\n".join(map(text_of, said.system))
        about = replace(
            sender,
            model=storable(said.model) or None,
            folder=folder_in(system, messages),
            is_aside=looks_aside(has_tools=bool(said.tools), max_tokens=0, system_text=system, messages=messages),
        )
        return store.stateless.place(StatelessRequest(messages, trace, about, preamble, at, mark))

    def replayed(self, entry: JournalEntry) -> None:
        """Store what had to wait for the database, unless it is there."""
        known = (self.store.turns.named(name) for name in entry.names)
        if not any(turn is not None and turn.began == entry.began for turn in known):
            super().replayed(entry)

    def _place_of(self, entry: JournalEntry) -> tuple[Branch, str]:
        if entry.body is not None:
            placed = self.asked(ResponsesRequest.read(entry.body), entry.sent_by, before=entry.began)
            return placed.at, placed.session
        if entry.at is None:
            return super()._place_of(entry)
        at = Branch(entry.at[0], bytes.fromhex(entry.at[1]), entry.at[2])  # there is a turn already, which was begun
        return at, ""


_MOST = 20_000
"""Names of responses that may wait for a database that is away; what follows older ones begins anew."""


class _Given(NamedTuple):
    """A response that clients have and the database may not have yet."""

    began: float
    stored: asyncio.Future[Any] | None
    """Done when it is there; None where it waits in the journal."""


@dataclass(slots=True)
class ResponseTurn(OpenTurn):
    """A request that is under way."""

    asked: ResponsesRequest
    sender: Sender
    awaited: dict[str, _Given]
    """What it follows that may not be stored yet, by name."""
    at: Branch | None = None
    """Where it stands, once its turn is begun."""
    is_over: bool = False
    """Whether it is known what came of it."""
    tap: StreamTap | WholeTap | None = None
    """Listens to the answer, once there is one."""
    warning: str = ""
    """What is wrong with keeping it, where it passes all the same."""

    def names(self, ended: EndedRequest) -> tuple[str, ...]:
        """By what later requests may name the response."""
        if ended.reply is None:
            return ()
        names = (ended.reply.id, self.asked.conversation)
        return tuple(name for name in names if isinstance(name, str) and is_name(name))

    def unsettled(self) -> list[asyncio.Future[Any]]:
        """What it follows of which it is not known yet whether it can be stored."""
        waiting = (given.stored for given in self.awaited.values())
        return [stored for stored in waiting if stored is not None and not stored.done()]


def read_asked(body: bytes) -> ResponsesRequest:
    """Return what a request says; `Broken` where it cannot be read."""
    return asked(meant(body))


class TenantResponses(TurnQueue[ResponseTurn, Branch]):
    """The conversations of one tenant."""

    def __init__(self, recorder: ResponseRecorder, writer: Writer, journal: Journal) -> None:
        super().__init__(writer, journal)
        self._recorder = recorder
        self._unstored: OrderedDict[str, _Given] = OrderedDict()

    def enter(self, said: ResponsesRequest, sender: Sender) -> ResponseTurn:
        """Take a request in."""
        named = said.conversation if said.conversation and is_name(said.conversation) else None
        awaited = {name: self._unstored[name] for name in said.follows if name in self._unstored}
        sender = replace(sender, session=sender.session or named)
        turn = ResponseTurn(said, sender, awaited, is_large=is_large([said.system, said.messages]))
        self._watch(turn)
        return turn

    def count_new(self, said: ResponsesRequest) -> int:
        """Count the blocks of a request that would have to be stored. Blocks."""
        return self._recorder.count_new(said)

    def owns(self, name: str) -> bool:
        """Return whether a response or a conversation of this name is one of this tenant's. Blocks."""
        return name in self._unstored or self._recorder.store.turns.named(name) is not None

    def _overdue(self, turn: ResponseTurn) -> None:
        """Store a request that takes its time, after what it follows."""
        unsettled = turn.unsettled()
        if unsettled:
            unsettled[0].add_done_callback(lambda _: self._overdue(turn))
        elif not turn.is_over:
            self.begin(turn)

    async def finish(self, turn: ResponseTurn, ended: EndedRequest) -> asyncio.Future[Any]:
        """Write down what became of a request; from now on others may follow it."""
        stored, names = await super().finish(turn, ended), turn.names(ended)
        for name in names:
            if name not in self._unstored or self._unstored[name].began <= turn.began:
                self._unstored[name] = _Given(turn.began, stored)
                self._unstored.move_to_end(name)
        while len(self._unstored) > _MOST:
            self._unstored.popitem(last=False)
        stored.add_done_callback(partial(self._given, names, turn.began))
        return stored

    def finish_in_store(self, turn: ResponseTurn, ended: EndedRequest) -> asyncio.Future[Any]:
        """Store what became of a request, after what it follows; done when it is there."""
        unsettled = turn.unsettled()
        if unsettled:
            return asyncio.ensure_future(self._finished_after(unsettled, turn, ended))
        return super().finish_in_store(turn, ended)

    async def _finished_after(self, others: list[asyncio.Future[Any]], turn: ResponseTurn, ended: EndedRequest) -> None:
        await asyncio.wait(others)
        await super().finish_in_store(turn, ended)

    def _given(self, names: Sequence[str], began: float, stored: asyncio.Future[Any]) -> None:
        if stored.cancelled() or isinstance(stored.exception(), AWAY):
            for name in self._still(names, began):
                self._unstored[name] = _Given(began, None)
        else:
            self._let_go(names, began)

    def _let_go(self, names: Iterable[str], began: float) -> None:
        """Forget the names of a response that is stored, or never will be."""
        for name in self._still(names, began):
            del self._unstored[name]

    def _still(self, names: Iterable[str], began: float) -> list[str]:
        """Those names that are not those of a newer response by now."""
        return [name for name in names if name in self._unstored and self._unstored[name].began == began]

    # -- storing -------------------------------------------------------------------------------------------------------

    def _lane(self, turn: ResponseTurn) -> int:
        said = turn.asked
        first = said.follows[0].encode("utf-8", "replace") if said.follows else dumped(said.messages[:1])
        return zlib.crc32(first)

    def _entry(self, turn: ResponseTurn, ended: EndedRequest) -> JournalEntry:
        store, at = self._recorder.store, turn.at
        return JournalEntry(
            tenant=store.tenant,
            api=RESPONSES_API,
            body=turn.asked.written(store.cleaned) if at is None else None,
            at=None if at is None else (at.id, at.head.hex(), at.depth),
            messages=[],
            model=turn.asked.model or None,
            hint=turn.sender.session,
            reply=None if ended.message is None else store.cleaned(ended.message),
            usage=ended.usage,
            status=ended.status,
            error=ended.error,
            began=turn.began,
            cost=ended.cost,
            names=turn.names(ended),
            sender=turn.sender,
        )

    def _work(self, turn: ResponseTurn, ended: EndedRequest | None) -> Callable[[], Stored[Branch]]:
        return lambda: self._stored(turn, ended)

    def _stored(self, turn: ResponseTurn, ended: EndedRequest | None) -> Stored[Branch]:
        """In the writer's thread."""
        recorder, said, model = self._recorder, turn.asked, turn.asked.model or None
        placed = recorder.asked(said, turn.sender, {name: given.began for name, given in turn.awaited.items()})
        branch, session, turns = placed.at, placed.session, recorder.store.turns
        if ended is None:
            return Stored(turns.begin(branch, model=model, session=session, began=turn.began).id, branch)
        return Stored(turns.whole(branch, ended.past(session, model, turn.began, turn.names(ended))), branch)

    def _end(self, turn: ResponseTurn, number: int, ended: EndedRequest) -> None:
        self._recorder.finished(number, ended, turn.names(ended))

    def _settled(self, turn: ResponseTurn, stored: Stored[Branch] | None, *, is_away: bool) -> None:
        del is_away
        if stored is None:
            return
        turn.at = stored.also
        for name, given in turn.awaited.items():
            self._let_go([name], given.began)
