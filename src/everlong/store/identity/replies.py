"""Replies: stored as messages of their conversations, and linked with the messages in which clients send them back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from everlong.model import Message, Trace
from everlong.store.content import Blob, blob, encoded
from everlong.store.identity.rewrites import is_echo
from everlong.store.paths import UPWARDS, Segment, segments_of
from everlong.store.tree import Branch, Match, RecordRequest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.identity.known_messages import Recognizer
    from everlong.store.identity.placing import Identity

ATTEMPTS_IN_PLACE = 8
"""Attempts to store a turn in its conversation; then it gets a conversation of its own."""
_MOST_LINKED = 8
"""The number of newest turns whose reply never came back that are compared with each request."""

_NEWEST_OF_BRANCH = 64
"""The number of a branch's newest turns that are searched for them."""


class _Waiting(NamedTuple):
    """A turn whose reply its client has not sent back yet."""

    id: int
    node: bytes
    depth: int
    reply: bytes


class ReplyLinker:
    """The linker of replies with the messages in which clients send them back."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._run = core.database.backend.run
        sql = core.database.sql
        self._newest = sql(
            "SELECT id, node, depth, reply FROM (SELECT id, node, depth, reply, echo_node, status FROM turn"  # noqa: S608
            f" WHERE branch = ? AND depth <= ? ORDER BY depth DESC LIMIT {_NEWEST_OF_BRANCH}) AS newest"
            " WHERE reply IS NOT NULL AND (echo_node IS NULL OR status <> 'done') ORDER BY id DESC LIMIT ?"
        )
        self._upwards = sql(UPWARDS)
        self._here = sql(
            "SELECT id, reply FROM turn WHERE branch = ? AND depth = ? AND node = ? AND reply IS NOT NULL"
            " AND (echo_node IS NULL OR status <> 'done')"
        )
        self._digest = sql("SELECT digest FROM node WHERE id = ?")
        self._linked = sql("UPDATE turn SET echo_node = ? WHERE id = ?")
        self._next = sql("SELECT id, parent, digest FROM node WHERE branch = ? AND depth > ? ORDER BY depth LIMIT 1")

    def link(self, connection: Connection, at: Branch) -> int:
        """Link replies with the messages on the way to a place that repeat them; return how many were found."""
        path = segments_of(self._run(connection, self._upwards, (at.id,)).fetchall(), at.depth)
        count = 0
        for waiting in self._waiting(connection, path, at.depth):
            echo = self._echo_of(connection, waiting, path)
            if echo is not None:
                self._run(connection, self._linked, (echo, waiting.id))
                count += 1
        return count

    def link_next(self, connection: Connection, at: Branch, ident: bytes, digest: bytes | None = None) -> None:
        """Link replies to requests that end at a place with the message after it, if that repeats them.

        The same as `link` for one place. The digest is read if it is not given.
        """
        waiting = self._run(connection, self._here, (at.id, at.depth, at.head)).fetchall()
        if not waiting:
            return
        if digest is None:
            row = self._run(connection, self._digest, (ident,)).fetchone()
            if row is None:
                return
            digest = bytes(row[0])
        for number, reply in waiting:
            if self._repeats(connection, digest, bytes(reply)):
                self._run(connection, self._linked, (ident, number))

    def _waiting(self, connection: Connection, path: list[Segment], below: int) -> list[_Waiting]:
        found: list[_Waiting] = []
        for part in reversed(path):
            asked = (part.branch, min(below - 1, part.high), _MOST_LINKED - len(found))
            rows = self._run(connection, self._newest, asked).fetchall()
            found += [_Waiting(ident, bytes(node), depth, bytes(reply)) for ident, node, depth, reply in rows]
            if len(found) >= _MOST_LINKED:
                break
        return found

    def _echo_of(self, connection: Connection, turn: _Waiting, path: list[Segment]) -> bytes | None:
        """Return the message that follows a turn's request on a path, if it repeats the turn's reply."""
        after = next((part for part in path if part.high > turn.depth), None)
        if after is None:
            return None
        found = self._run(connection, self._next, (after.branch, max(after.low, turn.depth))).fetchone()
        if found is None:
            return None
        ident, parent, digest = bytes(found[0]), found[1], bytes(found[2])
        is_after = turn.depth == 0 if parent is None else bytes(parent) == turn.node
        if not is_after:  # the turn was on a stretch that this path does not take
            return None
        return ident if self._repeats(connection, digest, turn.reply) else None

    def _repeats(self, connection: Connection, message: bytes, reply: bytes) -> bool:
        """Return whether a stored message repeats a stored reply."""
        if message == reply:
            return True
        values = self._core.reader.values(connection, [message, reply])
        return is_echo(self._core.chain, values[reply], values[message])


class StoredReply(NamedTuple):
    """The place of a reply: its request, the message it became, and the session of both."""

    at: Branch
    """The last message of the request."""
    node: bytes | None
    """The reply as a message; None if it says nothing."""
    session: str | None


class Replies:
    """The writer of replies into their conversations."""

    def __init__(self, core: StoreCore, identity: Identity, recognizer: Recognizer) -> None:
        self._core = core
        self._identity = identity
        self._recognizer = recognizer
        self._run = core.database.backend.run
        sql = core.database.sql
        self._place = sql("SELECT branch, mark FROM node WHERE id = ?")
        self._parent = sql("SELECT p.id, p.branch, p.depth FROM node n JOIN node p ON p.id = n.parent WHERE n.id = ?")

    def content(self, reply: Message | None) -> list[tuple[Blob, Sequence[bytes]]]:
        """Return a reply as it is stored, with the hashes of its blocks; empty if there is none."""
        if reply is None:
            return []
        said = self._core.cleaned(reply)
        return [(blob(self._core.tenant, encoded(said)), self._core.chain.trace([said]).blocks)]

    def add(
        self, connection: Connection, at: Branch, session: str | None, reply: Message, *, is_apart: bool = False
    ) -> StoredReply:
        """Store a whole reply after a request, in a fork if another reply stands there, or if it ``is_apart``."""
        core = self._core
        place, mark = self._resolve(connection, at)
        request = self._request(place, mark, reply)
        if not request.trace.ids:
            return StoredReply(at, None, session)
        match = Match(place.id, place.head, place.depth)
        locked = core.recorder.lock(connection, match)
        # Asked under the lock: the client may send the reply back at this moment.
        known = self._find_known(connection, request, session)
        if known is not None:
            return known
        # A host that knows its conversation decides itself where it goes on; others are told apart by their replies.
        is_told_apart = session is not None and self._identity.is_recognised(connection, session)
        if is_told_apart and session is not None and locked is not None:
            has_left = self._identity.has_left(connection, session, place.id)
            if has_left or locked.head != place.head:
                before = place.id
                place, session = self._identity.split(connection, place, session)
                request = self._request(place, mark, reply)
                match = Match(place.id, place.head, place.depth)
                locked = core.recorder.lock(connection, match)
                if has_left and place.id == before and locked is not None:
                    locked = locked._replace(head=b"")  # what stands here is not where the conversation ends
        if is_apart and locked is not None:
            locked = locked._replace(head=b"")
        additions = list(request.additions(place.depth))
        done = core.recorder.add_at(locked, request, match, additions, time.time(), connection)
        if is_told_apart and session is not None and done.id != place.id:
            session = self._identity.begin_fork(connection, session, done, place.depth)
            place = Branch(done.id, place.head, place.depth)
        return StoredReply(place, done.head, session)

    def add_broken(self, connection: Connection, at: Branch, reply: Message) -> bytes | None:
        """Store a reply that broke off beside the conversation, which does not go on with it; return its id."""
        place, mark = self._resolve(connection, at)
        request = self._request(place, mark, reply)
        if not request.trace.ids:
            return None
        last = request.trace.ids[-1]
        if self._run(connection, self._place, (last,)).fetchone() is not None:
            return last
        match = Match(place.id, place.head, place.depth)
        locked = self._core.recorder.lock(connection, match)
        apart = None if locked is None else locked._replace(head=b"")  # on a branch of its own, wherever it stands
        additions = list(request.additions(place.depth))
        return self._core.recorder.add_at(apart, request, match, additions, time.time(), connection).head

    def _resolve(self, connection: Connection, at: Branch) -> tuple[Branch, bytes]:
        """Return a place on the branch that holds its node, and the id by which stateless requests find it."""
        row = self._run(connection, self._place, (at.head,)).fetchone() if at.depth else None
        if row is None:
            return at, at.head
        return Branch(row[0], at.head, at.depth), at.head if row[1] is None else bytes(row[1])

    def _request(self, at: Branch, mark: bytes, reply: Message) -> RecordRequest:
        core, now = self._core, time.time()
        said = core.cleaned(reply)
        trace = core.chain.trace([said], at.node)
        marks = None if mark == at.head else core.chain.rechain([said], trace, mark)
        return RecordRequest(core.chain, at.node, [said], [now], [None], at.id, known=Trace(*trace), marks=marks)

    def _find_known(self, connection: Connection, request: RecordRequest, session: str | None) -> StoredReply | None:
        """Return the place of the same reply after the same words of the same client, if it is stored."""
        ids = {request.trace.ids[-1]} | ({request.marks[-1]} if request.marks is not None else set())
        found = self._recognizer.known(connection, sorted(ids))
        own = next((one for one in found if one.id == request.trace.ids[-1]), None)
        for one in [own] if own is not None else found:
            row = self._run(connection, self._parent, (one.id,)).fetchone()
            above = Branch(one.branch, request.start.id, 0) if row is None else Branch(row[1], bytes(row[0]), row[2])
            if session is None:
                if own is not None:
                    return StoredReply(above, one.id, None)
                continue
            its = self._identity.session_at(connection, one.branch, one.depth)
            if its is not None and (own is not None or self._identity.are_alike(connection, its, session)):
                return StoredReply(above, one.id, its)
            if own is not None:  # it broke off before, and is whole now
                self._identity.adopt(connection, session, one.branch)
                return StoredReply(above, one.id, session)
        return None
