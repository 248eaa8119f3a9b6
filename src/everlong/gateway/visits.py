"""One request on its way in: which conversation it continues, what of it is new, and what it becomes upstream.

Runs in the event loop; what blocks is handed to the writer. A request that continues one in memory costs what it adds.
It is stored together with what came of it where that comes soon, and before it where that takes longer, so that what a
user said outlives a gateway that is killed while the model thinks. What came of it is in the journal before the client
has its last byte, and in the database soon after.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from everlong.gateway.keeper import Ended
from everlong.gateway.lines import Applied, Line, Lines
from everlong.gateway.raw import Read, read_body, read_more
from everlong.gateway.spool import AWAY, Spool, Spooled
from everlong.gateway.views import applied_view, with_view
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.keeper import Keeper
    from everlong.gateway.writing import Writer
    from everlong.model import Message

__all__ = ["Visit", "Visits"]

_PATIENCE = 0.1
"""Seconds after which a request is stored though nothing has come of it yet."""


class _New(NamedTuple):
    """What a request adds to a conversation."""

    at: Branch
    messages: list[Message]
    after: int
    """Entries before it."""
    branches: list[Branch]


class _Stored(NamedTuple):
    branch: Branch
    turn: int
    view: Applied | None


@dataclass(slots=True)
class Visit:
    """A request whose conversation is known."""

    body: bytes
    read: Read
    line: Line
    hint: str | None = None
    new: _New | None = None
    """What has to be stored; None where it is."""
    turn: asyncio.Future[int] | None = None
    """The number of its turn, once it is begun."""
    began: float = field(default_factory=time.time)
    timer: asyncio.TimerHandle | None = None

    @property
    def model(self) -> str:
        """The model that the client asks for."""
        return str(self.read.field("model") or "")

    def sent(self, dialect: Dialect) -> bytes:
        """The body as it goes upstream, by the view in force."""
        view = self.line.view
        if view is None or view.covers > len(self.line.ends):
            return self.body
        return with_view(self.body, self.read, dialect, self.line, view)


class Visits:
    """The requests of one tenant by one API."""

    def __init__(self, keeper: Keeper, writer: Writer, spool: Spool) -> None:
        self.keeper = keeper
        self._spool = spool
        self._writer = writer
        self.lines = Lines()

    # -- coming in -----------------------------------------------------------------------------------------------------

    async def enter(self, body: bytes, hint: str | None = None) -> Visit:
        """Find the conversation of a body; `Broken` where it is none. One that is not in memory is looked up."""
        place = self.lines.find(body)
        if place is not None and place.number != len(place.line.ends) and place.line.pending is not None:
            await asyncio.wait([place.line.pending])  # where it forks may still be on its way into the store
            place = self.lines.find(body)
        if place is None:
            return await self._looked_up(body, hint)
        read = read_more(body, place.line.read, place.line.ends[place.number - 1])
        added = self.keeper.added(read.entries, place.branch, place.line.last)
        line = place.line
        if place.number != len(line.ends):
            line = line.cut(place.number, place.branch)
        line.ends += [entry.end for entry in read.entries]
        line.depths += [at.depth for at in added.branches]
        if added.messages:
            line.last = added.messages[-1]
        self.lines.keep(body, line, {**dict(enumerate(added.branches, place.number + 1)), place.number: place.branch})
        new = _New(place.branch, added.messages, place.number, added.branches)
        visit = Visit(body, read, line, hint, new)
        visit.timer = asyncio.get_running_loop().call_later(_PATIENCE, self.begin, visit)
        return visit

    async def _looked_up(self, body: bytes, hint: str | None) -> Visit:
        read = read_body(body, "messages")
        line, places = await self._writer.submit(lambda: self.keeper.opened(read, hint))
        self.lines.keep(body, line, places)
        visit = Visit(body, read, line, hint)
        visit.timer = asyncio.get_running_loop().call_later(_PATIENCE, self.begin, visit)
        return visit

    # -- storing -------------------------------------------------------------------------------------------------------

    def begin(self, visit: Visit) -> asyncio.Future[int]:
        """Store a request before anything has come of it."""
        return visit.turn if visit.turn is not None else self._store(visit, None)

    def finish(self, visit: Visit, ended: Ended) -> asyncio.Task[None]:
        """Write down what became of a request, and see to it that it gets into the store.

        It is in the journal when this returns, so that nobody has to wait for what it returns.
        """
        entry = self._spooled(visit, ended)
        return asyncio.ensure_future(self._finished(visit, ended, self._spool.put(entry), entry))

    async def _finished(self, visit: Visit, ended: Ended, number: int, entry: Spooled) -> None:
        try:
            if visit.turn is None:
                await self._store(visit, ended)
            else:
                turn = await visit.turn
                await self._writer.submit(
                    lambda: self.keeper.finished(turn, ended), visit.line.branch.id, can_wait=True
                )
        except AWAY:
            self._spool.keep(number, entry)
        else:
            self._spool.done(number)

    def _store(self, visit: Visit, ended: Ended | None) -> asyncio.Future[int]:
        if visit.timer is not None:
            visit.timer.cancel()
            visit.timer = None
        new, visit.new = visit.new, None
        stored = self._writer.submit(
            lambda: self._stored(visit, new, ended), visit.line.branch.id, can_wait=ended is not None
        )
        visit.turn = asyncio.ensure_future(self._settled(stored, visit, new))
        visit.line.pending = visit.turn
        return visit.turn

    def _spooled(self, visit: Visit, ended: Ended) -> Spooled:
        at = visit.line.branch if visit.new is None else visit.new.at
        return Spooled(
            tenant=self.keeper.store.tenant,
            api=self.keeper.dialect.name,
            body=None,
            at=(at.id, at.head.hex(), at.depth),
            messages=[] if visit.new is None else visit.new.messages,
            model=visit.model or None,
            hint=visit.hint,
            reply=ended.message,
            usage=ended.usage,
            status=ended.status,
            error=ended.error,
            began=visit.began,
        )

    def _stored(self, visit: Visit, new: _New | None, ended: Ended | None) -> _Stored:
        """In the writer's thread, where works are done in order: what came before this one is stored."""
        line, keeper = visit.line, self.keeper
        branch, view = line.branch, line.view
        if new is not None and line.is_unsure:
            whole, _ = keeper.opened(read_body(visit.body, "messages"), visit.hint)
            line.session, line.is_unsure = None, False
            branch, view = whole.branch, whole.view
        elif new is not None:
            at = Branch(branch.id, new.at.head, new.at.depth)
            branch = keeper.appended(at, new.messages)
            shown = keeper.view_in_force(branch)
            if branch.id != at.id:
                line.session = None  # it goes on apart from where it came from
            if branch.id != at.id or shown != (view.view_id if view is not None else None):
                # Another replica may have compacted meanwhile: its view holds from the next request on.
                line.branch = branch
                view = applied_view(keeper.store, keeper.dialect, line)
        line.branch = branch
        model = visit.model or None
        if line.session is None:
            line.session = keeper.session(line, model, visit.hint, is_second=len(line.depths) - line.lead > 1)
        if ended is None:
            return _Stored(branch, keeper.begun(line, model), view)
        return _Stored(branch, keeper.recorded(line, model, ended, visit.began), view)

    async def _settled(self, stored: asyncio.Future[_Stored], visit: Visit, new: _New | None) -> int:
        line = visit.line
        try:
            branch, turn, view = await stored
        except AWAY:
            line.is_unsure, visit.new, visit.turn = True, new, None  # its view goes on to hold
            raise
        except BaseException:
            self.lines.forget(line)  # the next request finds out where it stands
            raise
        if new is not None:
            line.view = view
            if new.branches and branch.id != new.at.id and len(line.ends) == new.after + len(new.branches):
                moved = {
                    number: Branch(branch.id, at.head, at.depth)
                    for number, at in enumerate(new.branches, new.after + 1)
                }
                self.lines.keep(visit.body, line, moved)
        return turn
