"""Linking a turn's reply with the message that repeats it: the one that follows its request on the way to a place.

A whole reply is linked when it is stored; this is for those that broke off and came back all the same, and for turns
of older stores. Runs inside of transactions that others open. Whether a message repeats a reply is decided in
`everlong.store.echo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from everlong.store.echo import is_echo
from everlong.store.paths import UPWARDS, Segment, segments_of

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.tree import Branch

LINKED_AT_ONCE = 8
"""Of turns whose reply never came back, so many of the newest are looked at again with each request."""

LOOKED_THROUGH = 64
"""Only so many of the newest turns of a branch are looked through for them, however many there have been."""


class _Waiting(NamedTuple):
    """A turn whose reply has not come back yet."""

    id: int
    node: bytes
    depth: int
    reply: bytes


class Linker:
    """Links the turns of one store."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._run = core.database.backend.run
        sql = core.database.sql
        self._newest = sql(
            "SELECT id, node, depth, reply FROM (SELECT id, node, depth, reply, echo_node, status FROM turn"  # noqa: S608
            f" WHERE branch = ? AND depth <= ? ORDER BY depth DESC LIMIT {LOOKED_THROUGH}) AS newest"
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
        """Link replies with the messages on the way to a place that repeat them; how many were found."""
        path = segments_of(self._run(connection, self._upwards, (at.id,)).fetchall(), at.depth)
        count = 0
        for waiting in self._waiting(connection, path, at.depth):
            echo = self._echo_of(connection, waiting, path)
            if echo is not None:
                self._run(connection, self._linked, (echo, waiting.id))
                count += 1
        return count

    def link_next(self, connection: Connection, at: Branch, ident: bytes, digest: bytes | None = None) -> None:
        """Link the replies to requests that end at a place with a message that follows it, where it repeats them.

        The same as `link`, without a look at what came before the place. The digest is looked up if it is not given.
        """
        waiting = self._run(connection, self._here, (at.id, at.depth, at.head)).fetchall()
        if not waiting:
            return
        if digest is None:
            row = self._run(connection, self._digest, (ident,)).fetchone()
            if row is None:
                return
            digest = bytes(row[0])
        for turn, reply in waiting:
            if self._repeats(connection, digest, bytes(reply)):
                self._run(connection, self._linked, (ident, turn))

    def _waiting(self, connection: Connection, path: list[Segment], below: int) -> list[_Waiting]:
        found: list[_Waiting] = []
        for part in reversed(path):
            asked = (part.branch, min(below - 1, part.high), LINKED_AT_ONCE - len(found))
            rows = self._run(connection, self._newest, asked).fetchall()
            found += [_Waiting(ident, bytes(node), depth, bytes(reply)) for ident, node, depth, reply in rows]
            if len(found) >= LINKED_AT_ONCE:
                break
        return found

    def _echo_of(self, connection: Connection, turn: _Waiting, path: list[Segment]) -> bytes | None:
        """The message that follows a turn's request on a path, if it repeats the turn's reply."""
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
        """Whether a stored message repeats a stored reply."""
        if message == reply:
            return True
        values = self._core.reader.values(connection, [message, reply])
        return is_echo(self._core.chain, values[reply], values[message])
