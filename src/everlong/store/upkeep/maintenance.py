"""The maintenance of a store: backup, vacuum, figures, and retention.

Retention is off by default: conversations that ended long ago leave the store, in short transactions between which
others write, and the garbage is collected once for all of them.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select, text, union

from everlong.errors import NotStored, StoreError, StoreUnavailable
from everlong.store.database import Counts, ShortWrites, in_batches
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
    view,
)
from everlong.store.sessions import Session, Sessions
from everlong.store.sqlite import WriteCounter, copy_file
from everlong.store.upkeep.garbage import DAY, CollectedGarbage, collect_garbage

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.database import Database

_LOCAL = "local"
"""The tenant of conversations without a gateway key."""


def tenants(database: Database) -> list[str]:
    """Return everybody who has something in a store: the user first, then the keys of gateways by name."""
    held = union(*(select(table.c.tenant) for table in (session, branch, content, turn)))
    with database.read() as connection:
        found = {str(name) for name in connection.execute(held).scalars()}
    return [_LOCAL, *sorted(found - {_LOCAL})]


def vacuum(core: StoreCore, min_age: float = DAY) -> CollectedGarbage:
    """Remove garbage and give the room back to the disk.

    A file is written anew, without free pages, for which others wait. A server frees its pages for new rows.
    """
    collected = collect_garbage(core, min_age)
    with core.database.translating(), core.database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        if isinstance(raw, sqlite3.Connection):
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            with connection.execution_options(isolation_level="AUTOCOMMIT") as alone:
                alone.execute(text("VACUUM"))
    return collected


def _number(core: StoreCore, statement: str) -> int:
    with core.database.read() as connection:
        return int(connection.exec_driver_sql(statement).scalar_one())


def backup(core: StoreCore, path: Path) -> None:
    """Copy a SQLite store into a new file while others go on writing; a whole copy or none."""
    if core.database.backend.name != "sqlite":
        raise StoreError("a PostgreSQL store is backed up with its own tools, such as pg_dump")
    if path.exists():
        raise StoreError(f"{path} is there already; name a new file for the backup")
    try:
        with core.database.read() as connection:
            written = core.database.backend.counts(connection)
        copy_file(core.database.engine, path)
        counter = WriteCounter(path)
        counter.reset()
        counter.note(written or Counts(0, 0))
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(f"the backup to {path} failed: {error}; the store itself is untouched") from error


def size_of(core: StoreCore) -> int:
    """Return how many bytes the database takes on the disk."""
    if core.database.backend.name == "sqlite":
        return _number(core, "PRAGMA page_count") * _number(core, "PRAGMA page_size")
    return _number(core, "SELECT pg_database_size(current_database())")


def stats(core: StoreCore) -> dict[str, int]:
    """Return figures for people: how many of everything, and how large it is."""
    from everlong.store.search.vectors import VectorTable  # noqa: PLC0415 - most who open a store search nothing

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
        vectors = VectorTable(core.database)
        found["unembedded"] = vectors.count_missing(connection) if vectors.model(connection) else 0
    return {**found, "bytes": size_of(core)}


# -- retention ---------------------------------------------------------------------------------------------------------

SESSIONS_AT_ONCE = 32
"""The most sessions that are deleted in one transaction."""


def retain(core: StoreCore, days: float) -> list[str]:
    """Delete conversations that ended more than so many days ago.

    Returns:
        The ids of the deleted sessions, which are the parts of those conversations.
    """
    limit = time.time() - days * DAY
    conversations: dict[str, list[Session]] = {}
    for one in reversed(Sessions(core).newest()):
        conversations.setdefault(one.conversation, []).append(one)
    old = [parts for parts in conversations.values() if all(one.ended and one.ended < limit for one in parts)]
    return _delete_conversations(core, [one for parts in old for one in parts])


def _delete_conversations(core: StoreCore, parts: Sequence[Session]) -> list[str]:
    """Delete conversations with all that only they need; return the ids of their parts."""
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
