"""Replies that come back: each is linked with the message in which its client sends it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from everlong.store.identity.rewrites import is_echo
from everlong.store.paths import UPWARDS, Segment, segments_of
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

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

    def link(self, connection: Connection, at: Branch) -> None:
        """Link replies with the messages on the way to a place that repeat them."""
        path = segments_of(self._run(connection, self._upwards, (at.id,)).fetchall(), at.depth)
        for waiting in self._waiting(connection, path, at.depth):
            echo = self._echo_of(connection, waiting, path)
            if echo is not None:
                self._run(connection, self._linked, (echo, waiting.id))

    def link_next(self, connection: Connection, at: Branch, ident: bytes) -> None:
        """Link replies to requests that end at a place with the message after it, if that repeats them.

        The same as `link` for one place.
        """
        waiting = self._run(connection, self._here, (at.id, at.depth, at.head)).fetchall()
        row = self._run(connection, self._digest, (ident,)).fetchone() if waiting else None
        for number, reply in waiting:
            if row is not None and self._repeats(connection, bytes(row[0]), bytes(reply)):
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
