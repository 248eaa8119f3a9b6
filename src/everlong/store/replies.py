"""Replies: what a model answers is a message of the conversation as soon as it exists.

A reply follows the last message of its request. Where the conversation ends there, it goes on with the reply; where the
same reply stands there already, it is that message; where another one stands there, the reply begins a conversation of
its own. A reply that was cancelled or broke off is kept as far as it came, beside the conversation. Runs inside of
transactions that others open.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from everlong.model import Message, Trace
from everlong.store.content import Blob, blob, encoded
from everlong.store.recognition import Recognizer
from everlong.store.stateless import Stateless
from everlong.store.tree import Branch, Match, Request

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


class Answered(NamedTuple):
    """Where a reply came to stand: its request, itself, and the session that both are in."""

    at: Branch
    """The last message of the request."""
    node: bytes | None
    """The reply as a message; None where it says nothing."""
    session: str | None


class Replies:
    """Puts the replies of one store into their conversations."""

    def __init__(self, core: StoreCore, stateless: Stateless, recognizer: Recognizer) -> None:
        self._core = core
        self._stateless = stateless
        self._recognizer = recognizer
        self._run = core.database.backend.run
        sql = core.database.sql
        self._place = sql("SELECT branch, mark FROM node WHERE id = ?")
        self._parent = sql("SELECT p.id, p.branch, p.depth FROM node n JOIN node p ON p.id = n.parent WHERE n.id = ?")

    def content(self, reply: Message | None) -> list[tuple[Blob, list[bytes]]]:
        """Return a reply as it is stored, with the hashes of its blocks; nothing where there is none."""
        if reply is None:
            return []
        said = self._core.cleaned(reply)
        return [(blob(self._core.tenant, encoded(said)), self._core.chain.trace([said]).blocks)]

    def add(self, connection: Connection, at: Branch, session: str | None, reply: Message) -> Answered:
        """Put a whole reply after a request, on a conversation of its own where another one stands there."""
        core = self._core
        place, mark = self._placed(connection, at)
        request = self._request(place, mark, reply)
        if not request.trace.ids:
            return Answered(at, None, session)
        match = Match(place.id, place.head, place.depth)
        locked = core.recorder.locked(connection, match)
        known = self._known(connection, request, session)  # asked under the lock: the client may send it back just now
        if known is not None:
            return known
        # A host that knows its conversation decides itself where it goes on; others are told apart by their replies.
        is_told_apart = session is not None and self._stateless.is_recognised(connection, session)
        if is_told_apart and session is not None and locked is not None:
            has_left = self._stateless.has_left(connection, session, place.id)
            if has_left or locked.head != place.head:
                before = place.id
                place, session = self._stateless.split(connection, place, session)
                request = self._request(place, mark, reply)
                match = Match(place.id, place.head, place.depth)
                locked = core.recorder.locked(connection, match)
                if has_left and place.id == before and locked is not None:
                    locked = locked._replace(head=b"")  # what stands here is not where the conversation ends
        additions = list(request.additions(place.depth))
        done = core.recorder.add_at(locked, request, match, additions, time.time(), connection)
        if is_told_apart and session is not None and done.id != place.id:
            session = self._stateless.begin_fork(connection, session, done, place.depth)
            place = Branch(done.id, place.head, place.depth)
        return Answered(place, done.head, session)

    def add_broken(self, connection: Connection, at: Branch, reply: Message) -> bytes | None:
        """Keep what came of a reply beside the conversation, which does not go on with it; its id."""
        place, mark = self._placed(connection, at)
        request = self._request(place, mark, reply)
        if not request.trace.ids:
            return None
        last = request.trace.ids[-1]
        if self._run(connection, self._place, (last,)).fetchone() is not None:
            return last
        match = Match(place.id, place.head, place.depth)
        locked = self._core.recorder.locked(connection, match)
        apart = None if locked is None else locked._replace(head=b"")  # on a branch of its own, wherever it stands
        additions = list(request.additions(place.depth))
        return self._core.recorder.add_at(apart, request, match, additions, time.time(), connection).head

    def _placed(self, connection: Connection, at: Branch) -> tuple[Branch, bytes]:
        """Return a place by the branch that its node is on, and the id by which stateless requests find it."""
        row = self._run(connection, self._place, (at.head,)).fetchone() if at.depth else None
        if row is None:
            return at, at.head
        return Branch(row[0], at.head, at.depth), at.head if row[1] is None else bytes(row[1])

    def _request(self, at: Branch, mark: bytes, reply: Message) -> Request:
        core, now = self._core, time.time()
        said = core.cleaned(reply)
        trace = core.chain.trace([said], at.node)
        marks = None if mark == at.head else core.chain.rechain([said], trace, mark)
        return Request(core.chain, at.node, [said], [now], [None], at.id, known=Trace(*trace), marks=marks)

    def _known(self, connection: Connection, request: Request, session: str | None) -> Answered | None:
        """Return where the same reply stands already, after the same words of the same client."""
        ids = {request.trace.ids[-1]} | ({request.marks[-1]} if request.marks is not None else set())
        found = self._recognizer.known(connection, sorted(ids))
        own = next((one for one in found if one.id == request.trace.ids[-1]), None)
        for one in [own] if own is not None else found:
            row = self._run(connection, self._parent, (one.id,)).fetchone()
            above = Branch(one.branch, request.start.id, 0) if row is None else Branch(row[1], bytes(row[0]), row[2])
            if session is None:
                if own is not None:
                    return Answered(above, one.id, None)
                continue
            its = self._stateless.session_at(connection, one.branch, one.depth)
            if its is not None and (own is not None or self._stateless.are_alike(connection, its, session)):
                return Answered(above, one.id, its)
            if own is not None:  # it broke off before, and is whole now
                self._stateless.adopt(connection, session, one.branch)
                return Answered(above, one.id, session)
        return None
