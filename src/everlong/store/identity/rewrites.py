"""Rewritten messages: whether what a client sends is what it made of a stored message.

Clients rewrite the replies they got, and take off again what they had added to their newest question: a reminder, a
listing of files, whole messages before or behind it. A reply is linked with the message in which its client sends it
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from everlong.model import HashChain, Message, blocks_of, calls_of, parts_of, text_of
from everlong.store.paths import UPWARDS, Segment, segments_of
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


FEWEST_COMMON = 16
"""The fewest characters by which a common beginning of two texts tells that one is made from the other."""
MOST_ADDED = 32
"""The most whole messages that a client may take off along with one question."""


def is_echo(chain: HashChain, reply: Message, said: Message) -> bool:
    """Return whether ``said`` is what a client made of ``reply``: by identity, by a call's id, or by its text."""
    if said.get("role") != "assistant":
        return False
    ours, theirs = chain.trace([reply]).ids, chain.trace([said]).ids
    if ours and theirs and ours[0] == theirs[0]:  # the rest may have been split off, merged or dropped
        return True
    calls = call_ids(reply)
    if calls and not calls.isdisjoint(call_ids(said)):
        return True
    words, other = _words(reply), _words(said)
    shorter, longer = sorted((words, other), key=len)
    return bool(shorter) and (shorter == longer or (len(shorter) >= FEWEST_COMMON and longer.startswith(shorter)))


def call_ids(message: Message) -> set[str]:
    """Return the ids of the calls that a message makes, in either wire format."""
    found = {call.id for call in calls_of(message)}
    found |= {str(part.get("id") or "") for part in parts_of(message) if part.get("type") == "tool_use"}
    return found - {""}


def _words(message: Message) -> str:
    return "".join(text_of(message).casefold().split())


def is_left_of(stored: Sequence[Message], sent: Sequence[Message], *, follows_question: bool = False) -> bool:
    """Return whether a client sends what is left of the messages of a request once it has taken off its additions.

    Args:
        stored: the messages of the request, up to its reply.
        sent: what stands in their place one request later.
        follows_question: whether both come right after a user's message, so that all of the stored ones may be gone.
    """
    if not sent or not stored:
        is_gone = not sent and (not stored or follows_question)
        return is_gone and _may_go(stored)
    told, said = [_identities(one) for one in stored], [_identities(one) for one in sent]
    for place in reversed(range(len(stored))):
        if any(one.get("role") == "assistant" for one in stored[place + 1 :]):
            return False  # what stands before a reply is not the newest question
        if not _is_shortened(stored[place], sent[-1]):
            continue
        kept = _places_in(told[:place], said[:-1])
        if kept is not None:
            return _may_go([one for at, one in enumerate(stored) if at != place and at not in kept])
    return False


def _may_go(messages: Sequence[Message]) -> bool:
    """Return whether whole messages may be additions: none calls a tool or answers a call."""
    return len(messages) <= MOST_ADDED and not any(
        one.get("role") == "tool" or any(told.startswith((b"call:", b"result:")) for told in _identities(one))
        for one in messages
    )


def _identities(message: Message) -> list[bytes]:
    return [block.identity for block in blocks_of(message)]


def _places_in(stored: Sequence[list[bytes]], sent: Sequence[list[bytes]]) -> set[int] | None:
    """Return where the sent messages stand among the stored ones, in order; None where one is not there."""
    found: set[int] = set()
    place = 0
    for told in sent:
        while place < len(stored) and stored[place] != told:
            place += 1
        if place == len(stored):
            return None
        found.add(place)
        place += 1
    return found


def _is_shortened(stored: Message, sent: Message) -> bool:
    """Return whether a message is a stored one without blocks, or text, at its start and end."""
    if stored.get("role") != sent.get("role") or sent.get("role") == "tool":
        return False
    longer, shorter = _identities(stored), _identities(sent)
    if not shorter:
        return False
    for shift in range(len(longer) - len(shorter) + 1):
        some = longer[shift : shift + len(shorter)]
        if some[1:-1] != shorter[1:-1]:
            continue
        if len(some) == 1 and (_is_end(some[0], shorter[0]) or _is_start(some[0], shorter[0])):
            return True
        if len(some) > 1 and _is_end(some[0], shorter[0]) and _is_start(some[-1], shorter[-1]):
            return True
    return False


def _is_start(longer: bytes, shorter: bytes) -> bool:
    """Return whether a block is the start of another one."""
    if longer == shorter:
        return True
    return longer.startswith(b"text:") and bool(_text(shorter).strip()) and longer.startswith(shorter)


def _is_end(longer: bytes, shorter: bytes) -> bool:
    """Return whether a block is the end of another one."""
    if longer == shorter:
        return True
    if not longer.startswith(b"text:") or not shorter.startswith(b"text:"):
        return False
    words = _text(shorter).strip()
    return bool(words) and _text(longer).rstrip().endswith(words)


def _text(identity: bytes) -> str:
    return identity.removeprefix(b"text:").decode("utf-8", "surrogatepass")


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
