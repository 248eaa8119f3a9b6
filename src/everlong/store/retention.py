"""Retention: conversations that ended long ago leave the store, or the oldest ones until it is small enough.

Off by default. Conversations go in batches, oldest first, and others can write meanwhile. A conversation whose room
would not be freed (another one shows all its messages) is never deleted to make the store smaller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from everlong.store.database import in_batches
from everlong.store.garbage import DAY, collect_garbage
from everlong.store.maintenance import release_room, size_of, used_bytes
from everlong.store.schema import branch, content, node, session, turn
from everlong.store.sessions import Session, Sessions

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

CONVERSATIONS_AT_ONCE = 50
"""Conversations that are deleted before the size is measured again."""


def retain(core: StoreCore, *, days: float | None = None, max_bytes: int | None = None) -> list[str]:
    """Delete conversations that ended long ago, then the oldest ones until the store is small enough.

    Returns:
        The ids of the deleted sessions, which are the parts of those conversations.
    """
    gone: list[str] = []
    if days is not None:
        limit = time.time() - days * DAY
        old = [parts for parts in _ended_conversations(core) if all((one.ended or 0) < limit for one in parts)]
        for some in in_batches(old, CONVERSATIONS_AT_ONCE):
            gone += _delete_conversations(core, some)
    if max_bytes is not None:
        gone += _shrink(core, max_bytes)
    is_file = core.database.backend.name == "sqlite"
    if gone or (is_file and max_bytes is not None and size_of(core) > max_bytes):
        release_room(core)
    return gone


def _shrink(core: StoreCore, max_bytes: int) -> list[str]:
    """Delete the oldest conversations until the store is small enough; stop if nothing comes of it."""
    gone: list[str] = []
    used = used_bytes(core)
    waiting = iter(_ended_conversations(core) if used > max_bytes else ())
    while used > max_bytes:
        with core.database.read() as connection:
            words = connection.execute(select(func.sum(func.length(content.c.bytes)))).scalar() or 1
        share = 1 - max_bytes / used  # rows and index shrink with the words: a part of these is to go
        batch = list(_batch(core, waiting, int(words * share) + 1))
        if not batch:
            break
        gone += _delete_conversations(core, batch)
        before, used = used, used_bytes(core)
        if used >= before:
            break
    return gone


def _batch(core: StoreCore, waiting: Iterator[list[Session]], wanted: int) -> Iterator[list[Session]]:
    """Yield the next conversations that free some room, until they free so many bytes of messages together."""
    count = 0
    for parts in waiting:
        with core.database.read() as connection:
            room = _room_of(connection, parts)
        if room:
            yield parts
            count, wanted = count + 1, wanted - room
        if wanted <= 0 or count == CONVERSATIONS_AT_ONCE:
            return


def _room_of(connection: Connection, parts: Sequence[Session]) -> int:
    """Return about how many bytes of messages only this conversation needs."""
    numbers = sorted({one.branch for one in parts if one.branch is not None})
    own = [one.id for one in parts]
    room = 0
    for number in numbers:
        others = select(session.c.id).where(session.c.branch == number, session.c.id.not_in(own))
        if connection.execute(others.limit(1)).first() is not None:
            continue
        forks = select(func.max(branch.c.fork_depth)).where(branch.c.parent == number, branch.c.id.not_in(numbers))
        low = connection.execute(forks).scalar() or 0
        size = select(func.count(), func.sum(func.length(content.c.bytes))).select_from(
            node.join(content, content.c.digest == node.c.digest)
        )
        count, held = connection.execute(size.where(node.c.branch == number, node.c.depth > low)).one()
        room += count + (held or 0)
    return room


def _ended_conversations(core: StoreCore) -> list[list[Session]]:
    """Return the parts of each conversation that has ended, the oldest conversation first."""
    found: dict[str, list[Session]] = {}
    for one in reversed(Sessions(core).newest()):
        found.setdefault(one.conversation, []).append(one)
    return [parts for parts in found.values() if all(one.ended is not None for one in parts)]


def _delete_conversations(core: StoreCore, conversations: Sequence[list[Session]]) -> list[str]:
    """Delete conversations with all that only they need; return the ids of their parts."""
    parts = [one for some in conversations for one in some]
    with core.database.read() as connection:
        released = {one.branch for one in parts if one.branch is not None}
        for some in in_batches([one.id for one in parts]):
            asked = select(turn.c.branch).where(turn.c.session.in_(some)).distinct()
            said = select(node.c.branch).join(turn, turn.c.echo_node == node.c.id).where(turn.c.session.in_(some))
            released.update(connection.execute(asked).scalars())
            released.update(connection.execute(said.distinct()).scalars())
    for one in parts:
        Sessions(core).delete(one.id)
    collect_garbage(core, released=released)
    return [one.id for one in parts]
