"""One request on its way in: which conversation it continues, what of it is new, and what it becomes upstream.

Runs in the event loop; what blocks is handed to the writer. A request that continues one in memory costs what it adds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everlong.gateway.lines import Line, Lines
from everlong.gateway.raw import Read, read_body, read_more
from everlong.gateway.views import applied_view, with_view
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.gateway.keeper import Keeper
    from everlong.gateway.writing import Writer
    from everlong.model import Message

__all__ = ["Visit", "Visits"]


@dataclass(slots=True)
class Visit:
    """A request whose conversation is known."""

    body: bytes
    read: Read
    line: Line
    count: int
    """Entries of the body."""
    turn: asyncio.Future[int] | None = None
    """The number of the turn, once it is stored."""

    @property
    def model(self) -> str:
        """The model that the client asks for."""
        return str(self.read.field("model") or "")

    def sent(self, dialect: Dialect) -> bytes:
        """The body as it goes upstream, by the view in force."""
        view = self.line.view
        if view is None or view.covers > self.count:
            return self.body
        return with_view(self.body, self.read, dialect, self.line, view)


class Visits:
    """The requests of one tenant by one API."""

    def __init__(self, keeper: Keeper, writer: Writer, lines: Lines | None = None) -> None:
        self.keeper = keeper
        self._writer = writer
        self.lines = lines or Lines()

    async def enter(self, body: bytes, hint: str | None = None) -> Visit:
        """Find the conversation of a body and record what is new; `Broken` where it is no conversation.

        What is new is stored while the request is under way; a conversation that is not in memory is looked up first.
        """
        place = self.lines.find(body)
        if place is not None and place.line.pending is not None:
            await asyncio.wait([place.line.pending])
            place = self.lines.find(body)
        if place is None:
            return await self._looked_up(body, hint)
        read = read_more(body, place.line.read, place.line.ends[place.count - 1])
        new = self.keeper.added(read.entries, place.branch, place.line.last)
        line = place.line
        if place.count != len(line.ends):
            line = line.cut(place.count, place.branch)
        line.ends += [entry.end for entry in read.entries]
        line.depths += [at.depth for at in new.branches]
        if new.messages:
            line.branch, line.last = new.branches[-1], new.messages[-1]
        branches = dict(enumerate(new.branches, place.count + 1)) | {place.count: place.branch}
        self.lines.keep(body, line, branches)
        visit = Visit(body, read, line, len(line.ends))
        stored = self._writer.submit(lambda: self._stored(visit, place.branch, new.messages, hint), place.branch.id)
        line.pending = stored
        stored.add_done_callback(lambda done: self._settled(done, visit, place.count, new.branches))
        visit.turn = asyncio.ensure_future(_second(stored))
        return visit

    async def _looked_up(self, body: bytes, hint: str | None) -> Visit:
        read = read_body(body, "messages")

        def work() -> tuple[Line, dict[int, Branch], int]:
            line, places = self.keeper.opened(read, hint)
            return line, places, self._begun(line, read, hint)

        line, places, turn = await self._writer.submit(work)
        self.lines.keep(body, line, places)
        known: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        known.set_result(turn)
        return Visit(body, read, line, len(line.ends), known)

    # -- in the writer's thread ----------------------------------------------------------------------------------------

    def _stored(self, visit: Visit, at: Branch, messages: list[Message], hint: str | None) -> tuple[Branch, int, Any]:
        line = visit.line
        branch = self.keeper.appended(at, messages)
        shown = self.keeper.view_in_force(branch)
        view = line.view
        if branch.id != at.id or shown != (view.view_id if view is not None else None):
            # A fork, or another replica has compacted meanwhile: what holds from the next request on.
            line.branch = branch
            line.session = None
            view = applied_view(self.keeper.store, self.keeper.dialect, line)
        line.branch = branch
        return branch, self._begun(line, visit.read, hint), view

    def _begun(self, line: Line, read: Read, hint: str | None) -> int:
        model = str(read.field("model") or "") or None
        if line.session is None:
            is_second = any(depth > 1 for depth in line.depths) and len(line.depths) - line.lead > 1
            line.session = self.keeper.session(line, model, hint, is_second=is_second)
        return self.keeper.begun(line, model)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def _settled(
        self, done: asyncio.Future[tuple[Branch, int, Any]], visit: Visit, count: int, branches: list[Branch]
    ) -> None:
        line = visit.line
        line.pending = None
        if done.cancelled() or done.exception() is not None:
            self.lines.forget(line)  # the next request finds out where it stands
            return
        branch, _, view = done.result()
        line.view = view
        if branches and branch.id != branches[-1].id:
            line.branch = branch
            moved = {number: Branch(branch.id, at.head, at.depth) for number, at in enumerate(branches, count + 1)}
            self.lines.keep(visit.body, line, moved)


async def _second(stored: asyncio.Future[tuple[Branch, int, Any]]) -> int:
    return (await stored)[1]
