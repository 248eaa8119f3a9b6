"""Requests of the Responses API on their way through: bytes untouched, and every word stored.

The upstream keeps these conversations itself, so nothing is compacted here. A request goes on from a response or a
conversation that it names, or repeats everything; both are known again, after a restart too. In memory are only the
names of responses that are not in the database yet, so that what follows them waits for them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.gateway.items import Asked, asked
from everlong.gateway.raw import dumped, meant
from everlong.gateway.response_keeper import RESPONSES_API
from everlong.gateway.spool import AWAY, Spool, Spooled
from everlong.gateway.storing import Stored, Storing, Underway
from everlong.store.content import is_large
from everlong.store.names import is_name
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.gateway.keeper import Ended
    from everlong.gateway.response_keeper import ResponseKeeper
    from everlong.gateway.taps import StreamTap, WholeTap
    from everlong.gateway.writing import Writer
    from everlong.store.stateless import Sender

__all__ = ["Call", "Responses", "read_asked"]

_MOST = 20_000
"""Names of responses that may wait for a database that is away; what follows older ones begins anew."""


class _Given(NamedTuple):
    """A response that clients have and the database may not have yet."""

    began: float
    stored: asyncio.Future[Any] | None
    """Done when it is there; None where it waits in the journal."""


@dataclass(slots=True)
class Call(Underway):
    """A request that is under way."""

    asked: Asked
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

    def names(self, ended: Ended) -> tuple[str, ...]:
        """By what later requests may name the response."""
        if ended.reply is None:
            return ()
        names = (ended.reply.id, self.asked.conversation)
        return tuple(name for name in names if isinstance(name, str) and is_name(name))

    def unsettled(self) -> list[asyncio.Future[Any]]:
        """What it follows of which it is not known yet whether it can be stored."""
        waiting = (given.stored for given in self.awaited.values())
        return [stored for stored in waiting if stored is not None and not stored.done()]


def read_asked(body: bytes) -> Asked:
    """Return what a request says; `Broken` where it cannot be read."""
    return asked(meant(body))


class Responses(Storing[Call, Branch]):
    """The conversations of one tenant."""

    def __init__(self, keeper: ResponseKeeper, writer: Writer, spool: Spool) -> None:
        super().__init__(writer, spool)
        self._keeper = keeper
        self._unstored: OrderedDict[str, _Given] = OrderedDict()

    def enter(self, said: Asked, sender: Sender) -> Call:
        """Take a request in."""
        named = said.conversation if said.conversation and is_name(said.conversation) else None
        awaited = {name: self._unstored[name] for name in said.follows if name in self._unstored}
        sender = replace(sender, session=sender.session or named)
        call = Call(said, sender, awaited, is_large=is_large([said.system, said.messages]))
        self._watch(call)
        return call

    def count_new(self, said: Asked) -> int:
        """Count the blocks of a request that would have to be stored. Blocks."""
        return self._keeper.count_new(said)

    def owns(self, name: str) -> bool:
        """Return whether a response or a conversation of this name is one of this tenant's. Blocks."""
        return name in self._unstored or self._keeper.store.turns.named(name) is not None

    def _overdue(self, call: Call) -> None:
        """Store a request that takes its time, after what it follows."""
        unsettled = call.unsettled()
        if unsettled:
            unsettled[0].add_done_callback(lambda _: self._overdue(call))
        elif not call.is_over:
            self.begin(call)

    async def finish(self, call: Call, ended: Ended) -> asyncio.Future[Any]:
        """Write down what became of a request; from now on others may follow it."""
        stored, names = await super().finish(call, ended), call.names(ended)
        for name in names:
            if name not in self._unstored or self._unstored[name].began <= call.began:
                self._unstored[name] = _Given(call.began, stored)
                self._unstored.move_to_end(name)
        while len(self._unstored) > _MOST:
            self._unstored.popitem(last=False)
        stored.add_done_callback(partial(self._given, names, call.began))
        return stored

    def finish_in_store(self, call: Call, ended: Ended) -> asyncio.Future[Any]:
        """Store what became of a request, after what it follows; done when it is there."""
        unsettled = call.unsettled()
        if unsettled:
            return asyncio.ensure_future(self._finished_after(unsettled, call, ended))
        return super().finish_in_store(call, ended)

    async def _finished_after(self, others: list[asyncio.Future[Any]], call: Call, ended: Ended) -> None:
        await asyncio.wait(others)
        await super().finish_in_store(call, ended)

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

    def _lane(self, call: Call) -> int:
        said = call.asked
        first = said.follows[0].encode("utf-8", "replace") if said.follows else dumped(said.messages[:1])
        return zlib.crc32(first)

    def _entry(self, call: Call, ended: Ended) -> Spooled:
        store, at = self._keeper.store, call.at
        return Spooled(
            tenant=store.tenant,
            api=RESPONSES_API,
            body=call.asked.written(store.cleaned) if at is None else None,
            at=None if at is None else (at.id, at.head.hex(), at.depth),
            messages=[],
            model=call.asked.model or None,
            hint=call.sender.session,
            reply=None if ended.message is None else store.cleaned(ended.message),
            usage=ended.usage,
            status=ended.status,
            error=ended.error,
            began=call.began,
            cost=ended.cost,
            names=call.names(ended),
            sender=call.sender,
        )

    def _work(self, call: Call, ended: Ended | None) -> Callable[[], Stored[Branch]]:
        return lambda: self._stored(call, ended)

    def _stored(self, call: Call, ended: Ended | None) -> Stored[Branch]:
        """In the writer's thread."""
        keeper, said, model = self._keeper, call.asked, call.asked.model or None
        placed = keeper.asked(said, call.sender, {name: given.began for name, given in call.awaited.items()})
        branch, session, turns = placed.at, placed.session, keeper.store.turns
        if ended is None:
            return Stored(turns.begin(branch, model=model, session=session, began=call.began).id, branch)
        return Stored(turns.whole(branch, ended.past(session, model, call.began, call.names(ended))), branch)

    def _end(self, call: Call, turn: int, ended: Ended) -> None:
        self._keeper.finished(turn, ended, call.names(ended))

    def _settled(self, call: Call, stored: Stored[Branch] | None, *, is_away: bool) -> None:
        del is_away
        if stored is None:
            return
        call.at = stored.also
        for name, given in call.awaited.items():
            self._let_go([name], given.began)
