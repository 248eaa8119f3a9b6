"""One request on its way in: which conversation it continues, what of it is new, and what it becomes upstream.

Runs in the event loop; what blocks is handed to the writer. A request that continues one in memory costs what it adds.
When it is stored is decided in `everlong.gateway.storing`; here it is said what that means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from everlong.gateway.drafts import Draft, draft_of
from everlong.gateway.hints import hint_in
from everlong.gateway.keeper import Added, Ended, first_answer
from everlong.gateway.lines import Applied, Line, Lines, Shelf
from everlong.gateway.raw import Broken, Read, meant, read_body, read_more
from everlong.gateway.spool import Spool, Spooled
from everlong.gateway.storing import Stored, Storing, Underway
from everlong.gateway.views import applied_view, moved_view, with_view

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.keeper import Keeper
    from everlong.gateway.writing import Writer
    from everlong.model import Message
    from everlong.store.tree import Branch

__all__ = ["Visit", "Visits"]

_MOVING = 4
"""So many of the last entries may come again in other bytes: clients move their cache markers along."""


class _New(NamedTuple):
    """What a request adds to a conversation, and where."""

    at: Branch
    added: Added


@dataclass(slots=True)
class Visit(Underway):
    """A request whose conversation is known."""

    body: bytes
    read: Read
    line: Line
    hint: str | None = None
    new: _New | None = None
    """What has to be stored; None where it is, or is about to be."""
    about_to: _New | None = None
    """What is about to be stored."""

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
        line = self.line
        if line.view is None or line.view.covers > len(line.ends):
            return draft_of(self.body, self.read, line.ends)
        return with_view(self.body, self.read, dialect, line, line.view)


class Visits(Storing[Visit, Applied | None]):
    """The requests of one tenant by one API."""

    def __init__(self, keeper: Keeper, writer: Writer, spool: Spool, shelf: Shelf) -> None:
        super().__init__(writer, spool)
        self.keeper = keeper
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
        self._watch(visit)
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
        self._watch(visit)
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

    def _lane(self, visit: Visit) -> int:
        return visit.line.branch.id

    def _entry(self, visit: Visit, ended: Ended) -> Spooled:
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

    def _work(self, visit: Visit, ended: Ended | None) -> Callable[[], Stored[Applied | None]]:
        new, visit.new = visit.new, None
        visit.about_to = new
        return lambda: self._stored(visit, new, ended)

    def _end(self, visit: Visit, turn: int, ended: Ended) -> None:
        del visit
        self.keeper.finished(turn, ended)

    def _stored(self, visit: Visit, new: _New | None, ended: Ended | None) -> Stored[Applied | None]:
        """In the writer's thread."""
        line, keeper, model = visit.line, self.keeper, visit.model or None
        branch, view = line.branch, line.view
        if new is not None and ended is not None:
            line.session = keeper.known_session(new.at, visit.hint) if line.answered else None
            if line.session is not None or not line.answered:
                followed = keeper.followed(line, new.at, new.added, ended.past(line.session, model, visit.began))
                if followed is not None:  # which is the rule
                    line.branch, turn = followed
                    return Stored(turn, view)
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
            return Stored(keeper.begun(line, model, visit.began), view)
        return Stored(keeper.recorded(line, ended.past(line.session, model, visit.began)), view)

    def _settled(self, visit: Visit, stored: Stored[Applied | None] | None, *, is_away: bool) -> None:
        new, visit.about_to = visit.about_to, None
        if stored is None:
            self.keeper.forget_sessions()
            if is_away:
                visit.new = new  # its view goes on to hold
            else:
                self.lines.forget(visit.line)  # the next request finds out where it stands
        elif new is not None:
            visit.line.view = stored.also
