"""The maintenance of a store: backup, vacuum, figures. This module never changes a message."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select, text, union

from everlong.errors import StoreError, StoreUnavailable
from everlong.store.database import ShortWrites
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
