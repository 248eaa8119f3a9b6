"""Requests of the Responses API on their way through: bytes untouched, and every word stored.

The upstream keeps these conversations itself, so nothing is compacted here. A request goes on from a response or a
conversation that it names, or repeats everything; both are known again, after a restart too.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.gateway.items import Asked, asked, messages_of
from everlong.gateway.keeper import PLATFORM
from everlong.gateway.raw import meant
from everlong.store.tree import Branch
from everlong.store.turns import storable

if TYPE_CHECKING:
    from everlong.gateway.keeper import Ended
    from everlong.gateway.writing import Writer
    from everlong.model import Message
    from everlong.providers.base import Reply
    from everlong.store import Store

__all__ = ["Call", "Responses"]

_MOST = 20_000
"""Responses whose place is kept in memory; older ones are looked up."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


class _Place(NamedTuple):
    """Where a response was given: the request, and what was answered."""

    branch: Branch
    messages: list[Message]


class _Begun(NamedTuple):
    turn: int
    branch: Branch


@dataclass(slots=True)
class Call:
    """A request that is under way."""

    asked: Asked
    begun: asyncio.Future[_Begun]
    is_over: bool = False
    """Whether it is known what came of it."""


class Responses:
    """The conversations of one tenant."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def enter(self, body: bytes, hint: str | None) -> Call:
        """Take a request in; `Broken` where it cannot be read."""
        said = asked(meant(body))
        place = next((self._places[name] for name in said.follows if name in self._places), None)
        return Call(said, self._writer.submit(lambda: self._begin(said, place, hint)))

    async def finish(self, call: Call, ended: Ended) -> None:
        """Store what became of it, the first time that something is told."""
        if call.is_over:
            return
        call.is_over = True
        begun = await call.begun
        reply = ended.reply
        usage = None if reply is None else {**reply.usage.to_dict(), **_names(call.asked, reply)}

        def work() -> None:
            self._store.turns.finish(begun.turn, ended.message, usage=usage, status=ended.status, error=ended.error)

        await self._writer.submit(work)
        if reply is None:
            return
        place = _Place(begun.branch, messages_of(reply.raw["output"]))
        for name in _names(call.asked, reply).values():
            self._places[name] = place
            self._places.move_to_end(name)
        while len(self._places) > _MOST:
            self._places.popitem(last=False)

    # -- in the writer's thread ----------------------------------------------------------------------------------------

    def _begin(self, said: Asked, place: _Place | None, hint: str | None) -> _Begun:
        store = self._store
        place = place or self._looked_up(said.follows)
        if place is not None:
            branch = store.append(place.branch, [*place.messages, *said.messages])
        else:
            branch = store.record([*said.system, *said.messages], tools=said.tools, ext_id=hint)
        session = self._session(branch, said, hint) if said.is_answered else None
        return _Begun(store.turns.begin(branch, model=said.model or None, session=session).id, branch)

    def _session(self, at: Branch, said: Asked, hint: str | None) -> str:
        statement = "SELECT id FROM session WHERE tenant = ? AND branch = ? AND ended IS NULL ORDER BY started DESC"
        found = self._rows(statement, self._store.tenant, at.id)
        if found:
            return str(found[0][0])
        name = hint or said.conversation
        origin = {"client_session": name} if name else None
        model = storable(said.model) or None
        return self._store.sessions.started(at, platform=PLATFORM, model=model, origin=origin, from_depth=0)

    def _looked_up(self, names: Sequence[str]) -> _Place | None:
        """The place of a response that is not in memory: it was given before a restart, or by another replica."""
        statement = (
            "SELECT id, branch, node, depth, usage FROM turn"
            " WHERE tenant = ? AND usage LIKE ? ORDER BY id DESC LIMIT 20"
        )
        for name in filter(_NAME.fullmatch, names):
            for ident, branch, node, depth, usage in self._rows(statement, self._store.tenant, f'%"{name}"%'):
                message = self._store.turns.reply(ident)
                if name in json.loads(usage).values() and message is not None:
                    return _Place(Branch(branch, bytes(node), depth), [message])
        return None

    def _rows(self, statement: str, *values: Any) -> Sequence[Any]:
        database = self._store.database
        with database.read() as connection:
            rows: Sequence[Any] = database.backend.run(connection, database.sql(statement), values).fetchall()
        return rows


def _names(said: Asked, reply: Reply) -> dict[str, str]:
    """By what later requests may name this response."""
    named = {"response_id": reply.id, "conversation_id": said.conversation}
    return {kind: name for kind, name in named.items() if isinstance(name, str) and name}
