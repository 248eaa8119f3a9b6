"""The maintenance of a store: backup, vacuum, figures, and retention.

Retention is off by default: conversations that ended long ago leave the store, or the oldest ones until it is small
enough. The oldest go first, in short transactions between which others write, and the garbage is collected once for all
of them. A conversation whose room would not be freed (another one shows all its messages) is never deleted to make the
store smaller.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select, text, union

from everlong.errors import NotStored, StoreError, StoreUnavailable
from everlong.store.database import ShortWrites, in_batches
from everlong.store.schema import (
    branch,
    compaction,
    content,
    node,
    output,
    pending,
    receipt,
    session,
    turn,
    vector,
    vector_pending,
    view,
)
from everlong.store.sessions import Session, Sessions
from everlong.store.sqlite import copy_file
from everlong.store.upkeep.garbage import DAY, CollectedGarbage, collect_garbage

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.database import Database

_PAGES_AT_ONCE = 256
"""The most free pages that are given back in one transaction."""
_LOCAL = "local"
"""The tenant of conversations without a gateway key."""


def tenants(database: Database) -> list[str]:
    """Return everybody who has something in a store: the user first, then the keys of gateways by name."""
    held = union(*(select(table.c.tenant) for table in (session, branch, content, turn)))
    with database.read() as connection:
        found = {str(name) for name in connection.execute(held).scalars()}
    return [_LOCAL, *sorted(found - {_LOCAL})]


def vacuum(core: StoreCore, min_age: float = DAY) -> CollectedGarbage:
    """Remove garbage and give the room back to the disk."""
    collected = collect_garbage(core, min_age)
    _rewrite(core)
    return collected


def _rewrite(core: StoreCore) -> None:
    """Write the whole file anew, without free pages; others wait meanwhile. A server frees its pages for new rows."""
    with core.database.translating(), core.database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        if isinstance(raw, sqlite3.Connection):
            raw.execute("PRAGMA auto_vacuum=INCREMENTAL")  # from now on pages can be given back one by one
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            with connection.execution_options(isolation_level="AUTOCOMMIT") as alone:
                alone.execute(text("VACUUM"))


def release_room(core: StoreCore) -> None:
    """Give free pages back to the disk, some at a time, so that others can write meanwhile."""
    if core.database.backend.name != "sqlite":
        _rewrite(core)
        return
    steps = ShortWrites(core.database, _PAGES_AT_ONCE)
    while free := _number(core, "PRAGMA freelist_count"):
        steps.write(partial(_release_pages, core, steps.count))
        if _number(core, "PRAGMA freelist_count") >= free:
            break
    with core.database.translating(), core.database.engine.connect() as connection:
        core.database.backend.run(connection, "PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _release_pages(core: StoreCore, count: int, connection: Connection) -> None:
    for _ in range(count):  # the driver ends this pragma after its first page, however many are asked for
        core.database.backend.run(connection, "PRAGMA incremental_vacuum(1)").fetchall()


def _number(core: StoreCore, statement: str) -> int:
    with core.database.read() as connection:
        return int(connection.exec_driver_sql(statement).scalar_one())


def backup(core: StoreCore, path: Path) -> None:
    """Copy a SQLite store into a new file while others go on writing; a whole copy or none.

    Contents in an object store are fetched into the copy.
    """
    if core.database.backend.name != "sqlite":
        raise StoreError("a PostgreSQL store is backed up with its own tools, such as pg_dump")
    if path.exists():
        raise StoreError(f"{path} is there already; name a new file for the backup")
    try:
        copy_file(core.database.engine, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(f"the backup to {path} failed: {error}; the store itself is untouched") from error


def size_of(core: StoreCore) -> int:
    """Return how many bytes the database takes on the disk."""
    if core.database.backend.name == "sqlite":
        return _number(core, "PRAGMA page_count") * _number(core, "PRAGMA page_size")
    return _number(core, "SELECT pg_database_size(current_database())")


def used_bytes(core: StoreCore) -> int:
    """Return how many bytes of the database are in use: pages that are not free, or on a server the rows."""
    if core.database.backend.name == "sqlite":
        pages = _number(core, "PRAGMA page_count") - _number(core, "PRAGMA freelist_count")
        return pages * _number(core, "PRAGMA page_size")
    tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
    with core.database.read() as connection:
        names = connection.execute(text(tables)).scalars().all()
    sums = (f"SELECT coalesce(sum(pg_column_size(one.*)), 0) FROM {name} one" for name in names)  # noqa: S608 - quoted
    return sum(_number(core, statement) for statement in sums)


def stats(core: StoreCore) -> dict[str, int]:
    """Return figures for people: how many of everything, and how large it is."""
    tables = {"messages": node, "contents": content, "branches": branch, "views": view, "sessions": session}
    with core.database.read() as connection:
        found = {
            name: connection.execute(
                select(func.count()).select_from(table).where(table.c.tenant == core.tenant)
            ).scalar_one()
            for name, table in (
                tables | {"compactions": compaction, "outputs": output, "receipts": receipt, "vectors": vector}
            ).items()
        }
        found["pending"] = connection.execute(select(func.count()).select_from(pending)).scalar_one()
        found["unembedded"] = connection.execute(select(func.count()).select_from(vector_pending)).scalar_one()
    return {**found, "bytes": size_of(core)}


# -- retention ---------------------------------------------------------------------------------------------------------

SESSIONS_AT_ONCE = 32
"""The most sessions that are deleted in one transaction."""

MARGIN = 1.25
"""The part of the estimate that goes at once: every further round rewrites the search index once more."""

ROW_BYTES = 400
"""About the bytes that a message takes beside its words: its rows, and their places in the indexes."""


def retain(core: StoreCore, *, days: float | None = None, max_bytes: int | None = None) -> list[str]:
    """Delete conversations that ended long ago, then the oldest ones until the store is small enough.

    Returns:
        The ids of the deleted sessions, which are the parts of those conversations.
    """
    gone: list[str] = []
    if days is not None:
        limit = time.time() - days * DAY
        old = [parts for parts in _ended_conversations(core) if all((one.ended or 0) < limit for one in parts)]
        gone += _delete_conversations(core, old)
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
            words = connection.execute(select(func.sum(func.length(content.c.bytes)))).scalar() or 0
            count = connection.execute(select(func.count()).select_from(node)).scalar_one()
        share = 1 - max_bytes / used  # rows and index shrink with the messages: a part of these is to go
        batch = list(_batch(core, waiting, int((words + ROW_BYTES * count) * share * MARGIN) + 1))
        if not batch:
            break
        gone += _delete_conversations(core, batch)
        before, used = used, used_bytes(core)
        if used >= before:
            break
    return gone


def _batch(core: StoreCore, waiting: Iterator[list[Session]], wanted: int) -> Iterator[list[Session]]:
    """Yield the next conversations that free some room, until they free so many bytes of messages together."""
    for parts in waiting:
        with core.database.read() as connection:
            room = _room_of(connection, parts)
        if room:
            yield parts
            wanted -= room
        if wanted <= 0:
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
        room += ROW_BYTES * count + (held or 0)
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
    sessions = Sessions(core)
    gone: list[str] = []
    waiting, steps = [one.id for one in parts], ShortWrites(core.database, SESSIONS_AT_ONCE)
    while waiting:
        some, waiting = waiting[: steps.count], waiting[steps.count :]
        gone += steps.write(partial(_delete_sessions, sessions, some))
    if gone:
        collect_garbage(core, released=released)
    return gone


def _delete_sessions(sessions: Sessions, idents: Sequence[str], connection: Connection) -> list[str]:
    gone: list[str] = []
    for ident in idents:
        with suppress(NotStored):  # somebody else was quicker
            sessions.delete_in(connection, ident)
            gone.append(ident)
    return gone
