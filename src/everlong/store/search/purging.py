"""The purging of FTS5 tables: removed terms leave their pages, step by step, while others go on writing.

FTS5 notes a removal beside what was there, and drops both when it merges their segments. The tables that hold such
notes are listed in `search_purge` in the transaction that removes something, so a purge that was interrupted goes on.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection

_CREATE = "CREATE TABLE IF NOT EXISTS search_purge (name TEXT PRIMARY KEY, is_begun INTEGER NOT NULL) WITHOUT ROWID"
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) = 'search_'"
    " AND instr(sql, 'USING fts5(') > 0"
)
_NO_WORK = 2
"""A merge that finds nothing to do changes fewer rows than this."""


def list_tables(connection: Connection) -> None:
    """List all tables of the index as those whose pages hold removed terms."""
    connection.exec_driver_sql(_CREATE)
    connection.exec_driver_sql(f"INSERT OR REPLACE INTO search_purge SELECT name, 0 FROM ({_TABLES})")  # noqa: S608 - ours


def is_due(connection: Connection) -> bool:
    """Return whether removed terms may stand in a table's pages."""
    if not connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'search_purge'").first():
        return False
    return connection.exec_driver_sql("SELECT 1 FROM search_purge LIMIT 1").first() is not None


def purge_some(connection: Connection, pages: int) -> None:
    """Merge about so many pages of the first table that is listed; take it off the list when it is done."""
    query = f"SELECT p.name, p.is_begun, t.name FROM search_purge p LEFT JOIN ({_TABLES}) t ON t.name = p.name LIMIT 1"  # noqa: S608
    row = connection.exec_driver_sql(query).first()
    if row is None:
        return
    name, is_begun, there = row
    if there is not None and _merge(connection, there, pages, is_begun=bool(is_begun)):
        connection.exec_driver_sql("UPDATE search_purge SET is_begun = 1 WHERE name = ?", (name,))
    else:
        connection.exec_driver_sql("DELETE FROM search_purge WHERE name = ?", (name,))


def _merge(connection: Connection, name: str, pages: int, *, is_begun: bool) -> bool:
    """Merge some pages of a table; return whether there was something to merge.

    The first merge takes in all segments there are. Those that are added meanwhile do not stop it, because two segments
    are enough for one.
    """
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - FTS5 is a part of SQLite
    command = f'INSERT INTO "{name}" ("{name}", rank) VALUES (?, ?)'  # noqa: S608 - the name of a table of ours
    if not is_begun:
        connection.exec_driver_sql(command, ("usermerge", 2))
    before = raw.total_changes
    connection.exec_driver_sql(command, ("merge", pages if is_begun else -pages))
    return raw.total_changes - before >= _NO_WORK
