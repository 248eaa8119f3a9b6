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
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.gateway.drafts import Draft, draft_of
from everlong.gateway.hints import hint_in
from everlong.gateway.keeper import Added, Ended, first_answer
from everlong.gateway.lines import Applied, Line, Lines, Shelf
from everlong.gateway.raw import Broken, Read, meant, read_body, read_more
from everlong.gateway.spool import AWAY, Spool, Spooled
from everlong.gateway.views import applied_view, moved_view, with_view

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.keeper import Keeper
    from everlong.gateway.writing import Writer
    from everlong.model import Message
    from everlong.store.tree import Branch

__all__ = ["Visit", "Visits"]

_PATIENCE = 0.1
"""Seconds after which a request is stored though nothing has come of it yet."""

_MOVING = 4
"""So many of the last entries may come again in other bytes: clients move their cache markers along."""


class _New(NamedTuple):
    """What a request adds to a conversation, and where."""

    at: Branch
    added: Added


class _Stored(NamedTuple):
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
    """What has to be stored; None where it is, or is about to be."""
    about_to: _New | None = None
    """What is about to be stored."""
    turn: asyncio.Future[int] | None = None
    """The number of its turn, once it is begun."""
    began: float = field(default_factory=time.time)
    timer: asyncio.TimerHandle | None = None

    @property
    def model(self) -> str:
        """The model that the client asks for."""
        return str(self.read.field("model") or "")

    def sent(self, dialect: Dialect) -> bytes:
        """The body by the view in force."""
        return self.draft(dialect).body

    def draft(self, dialect: Dialect) -> Draft:
        """The same, with the places of what stands in it."""
        line = self.line
        if line.view is None or line.view.covers > len(line.ends):
            return draft_of(self.body, self.read, line.ends)
        return with_view(self.body, self.read, dialect, line, line.view)


class Visits:
    """The requests of one tenant by one API."""

    def __init__(self, keeper: Keeper, writer: Writer, spool: Spool, shelf: Shelf) -> None:
        self.keeper = keeper
        self._spool = spool
        self._writer = writer
        self.lines = Lines(shelf)

    # -- coming in -----------------------------------------------------------------------------------------------------

    async def enter(self, body: bytes, hint: str | None = None) -> Visit:
        """Find the conversation of a body; `Broken` where it is none. One that is not in memory is looked up."""
        found = self.lines.find(body)
        if found is None:
            return await self._looked_up(body, hint)
        place = found.place
        read = read_more(body, place.line.read, place.line.ends[place.number - 1])
        hint = hint or hint_in(read.field("metadata"))
        line = place.line.cut(place.number, place.branch, hint)
        added = self.keeper.added(read.entries, place.branch, line.last or self._last(read, line))
        line.ends.extend(entry.end for entry in read.entries)
        line.depths.extend(at.depth for at in added.branches)
        line.answered = line.answered or first_answer(read.entries, place.number)
        if added.messages:
            line.branch, line.last = added.branches[-1], added.last
        if place.number >= len(place.line.ends) - _MOVING:
            self.lines.forget(place.line)  # this one takes its place; whoever else goes on from there is looked up
        branches = {**dict(enumerate(added.branches, place.number + 1)), place.number: place.branch}
        self.lines.keep(body, line, branches, found)
        visit = Visit(body, read, line, hint, _New(place.branch, added))
        visit.timer = asyncio.get_running_loop().call_later(_PATIENCE, self.begin, visit)
        return visit

    def _last(self, read: Read, line: Line) -> Message | None:
        """The message at the end of a conversation that has gone on differently before."""
        entry = draft_of(read.body, read, line.ends).entry(len(line.ends) - 1)
        said = self.keeper.dialect.messages_of(meant(read.body[slice(*entry)]), None)
        return said[-1] if said else None

    async def _looked_up(self, body: bytes, hint: str | None) -> Visit:
        read = read_body(body, "messages")
        named = hint or hint_in(read.field("metadata"))
        line, places = await self._writer.submit(lambda: self.keeper.opened(read, named))
        self.lines.keep(body, line, places)
        visit = Visit(body, read, line, named)
        visit.timer = asyncio.get_running_loop().call_later(_PATIENCE, self.begin, visit)
        return visit

    async def peek(self, body: bytes) -> bytes:
        """A body by the view that would be in force for it, as far as its conversation is in memory; leaves no trace.

        Such a body comes by another way and begins with other fields, so its messages tell, and not its bytes.
        """
        if not self.lines.has_view:
            return body
        read = read_body(body, "messages")
        try:
            line, added = await asyncio.to_thread(self.keeper.glanced, read)
        except Broken:
            return body
        known = (self.lines.at(branch.head) for branch in reversed(added.branches))
        place = next((found for found in known if found is not None), None)
        view = None if place is None else moved_view(place.line.cut(place.number, place.branch), line)
        return body if view is None else with_view(body, read, self.keeper.dialect, line, view).body

    # -- storing -------------------------------------------------------------------------------------------------------

    def begin(self, visit: Visit) -> asyncio.Future[int]:
        """Store a request before anything has come of it."""
        return visit.turn if visit.turn is not None else self._store(visit, None)

    def finish(self, visit: Visit, ended: Ended) -> asyncio.Future[Any]:
        """Write down what became of a request, and see to it that it gets into the store.

        It is in the journal when this returns, so that nobody has to wait for what it returns; `OSError` says that the
        journal cannot be written.
        """
        entry = self._spooled(visit, ended)
        number = self._spool.put(entry)
        stored = self.finish_in_store(visit, ended)
        stored.add_done_callback(partial(self._journaled, number, entry))
        return stored

    def finish_in_store(self, visit: Visit, ended: Ended) -> asyncio.Future[Any]:
        """Store what became of a request, without the journal; done when it is there."""
        if visit.turn is None:
            return self._store(visit, ended)
        return asyncio.ensure_future(self._finished_later(visit, visit.turn, ended))

    async def _finished_later(self, visit: Visit, turn: asyncio.Future[int], ended: Ended) -> None:
        number = await turn
        await self._writer.submit(lambda: self.keeper.finished(number, ended), visit.line.branch.id, can_wait=True)

    def _journaled(self, number: int, entry: Spooled, stored: asyncio.Future[Any]) -> None:
        error = None if stored.cancelled() else stored.exception()
        if stored.cancelled() or isinstance(error, AWAY):
            self._spool.keep(number, entry)
        elif isinstance(error, Exception):
            self._spool.put_aside(number, entry, error)
        else:
            self._spool.done(number)

    def _store(self, visit: Visit, ended: Ended | None) -> asyncio.Future[int]:
        if visit.timer is not None:
            visit.timer.cancel()
            visit.timer = None
        new, visit.new = visit.new, None
        visit.about_to = new
        stored = self._writer.submit(
            lambda: self._stored(visit, new, ended), visit.line.branch.id, can_wait=ended is not None
        )
        visit.turn = turn = stored.get_loop().create_future()
        stored.add_done_callback(partial(self._settle, visit, new, turn))
        return turn

    def _spooled(self, visit: Visit, ended: Ended) -> Spooled:
        new = visit.new or visit.about_to  # which may still fail
        at = visit.line.branch if new is None else new.at
        clean = self.keeper.store.cleaned  # what may not be stored may not lie in a file either
        return Spooled(
            tenant=self.keeper.store.tenant,
            api=self.keeper.dialect.name,
            body=None,
            at=(at.id, at.head.hex(), at.depth),
            messages=[] if new is None else [clean(message) for message in new.added.messages],
            model=visit.model or None,
            hint=visit.hint,
            reply=None if ended.message is None else clean(ended.message),
            usage=ended.usage,
            status=ended.status,
            error=ended.error,
            began=visit.began,
            cost=ended.cost,
        )

    def _stored(self, visit: Visit, new: _New | None, ended: Ended | None) -> _Stored:
        """In the writer's thread."""
        line, keeper, model = visit.line, self.keeper, visit.model or None
        branch, view = line.branch, line.view
        if new is not None and ended is not None:
            line.session = keeper.known_session(new.at, visit.hint) if line.answered else None
            if line.session is not None or not line.answered:
                followed = keeper.followed(line, new.at, new.added, ended.past(line, model, visit.began))
                if followed is not None:  # which is the rule
                    line.branch, turn = followed
                    return _Stored(turn, view)
        if new is not None:
            at = keeper.owned(new.at) if new.at.depth else new.at
            if at is None:  # what it follows is not stored, or not yet
                branch = keeper.opened(read_body(visit.body, "messages"), visit.hint)[0].branch
            else:
                branch = keeper.appended(at, new.added.messages)
            shown = keeper.view_in_force(branch)
            if branch.id != line.branch.id or shown != (view.view_id if view is not None else None):
                # It goes on apart from where it came from, or another replica has compacted it meanwhile.
                line.branch = branch
                keeper.forget_session(branch, visit.hint)
                view = applied_view(keeper.store, keeper.dialect, line)
        line.branch = branch
        line.session = keeper.session(branch, model, visit.hint, is_second=line.answered > 0)
        if ended is None:
            return _Stored(keeper.begun(line, model, visit.began), view)
        return _Stored(keeper.recorded(line, ended.past(line, model, visit.began)), view)

    def _settle(
        self, visit: Visit, new: _New | None, turn: asyncio.Future[int], stored: asyncio.Future[_Stored]
    ) -> None:
        """Say what became of a request's storing to whoever waits for it."""
        error = None if stored.cancelled() else stored.exception()
        visit.about_to = None
        if stored.cancelled() or error is not None:
            self.keeper.forget_sessions()
            if isinstance(error, AWAY):
                visit.new, visit.turn = new, None  # its view goes on to hold
            else:
                self.lines.forget(visit.line)  # the next request finds out where it stands
        elif new is not None:
            visit.line.view = stored.result().view
        if turn.cancelled():
            return
        if error is not None:
            turn.set_exception(error)
            turn.exception()  # seen, whether somebody waits for it or not
        elif stored.cancelled():
            turn.cancel()
        else:
            turn.set_result(stored.result().turn)
