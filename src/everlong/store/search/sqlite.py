"""The search index in SQLite: an FTS5 table of passages without content or positions.

The terms come prepared, so its tokenizer splits at spaces. FTS5 removes from such a table only if told exactly what was
put in, and drops what was removed when it merges segments. The table is listed in `search_purge` in the transaction
that removes something, so a purge that was interrupted goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import ask, in_batches
from everlong.store.search.index import Index, Rows, is_start
from everlong.store.search.text import INDEX_VERSION

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents INTEGER NOT NULL, "
    "summaries INTEGER NOT NULL, passages INTEGER NOT NULL, terms INTEGER NOT NULL)",
    "CREATE TABLE search_purge (is_begun INTEGER NOT NULL)",
    "CREATE VIRTUAL TABLE search_passages USING fts5(terms, content='', detail=none, tokenize='ascii')",
)
_NO_WORK = 2
"""A merge that finds nothing to do changes fewer rows than this."""


class SQLiteIndex(Index):
    """See `everlong.store.search.index.Index`."""

    table = "search_passages"
    key = "rowid"
    ids, id = "search_passages_docsize", "id"

    def match(self, terms: Collection[str], *, every: bool) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any, or all, of some terms, and its values."""
        named = [f'"{term}" *' if is_start(term) else f'"{term}"' for term in dict.fromkeys(terms)]
        return "p.search_passages MATCH ?", [(" AND " if every else " OR ").join(named)]

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if not ask(connection, "SELECT 1 FROM sqlite_master WHERE name = 'search_state'").fetchone():
            return None
        return int(ask(connection, "SELECT version FROM search_state").fetchone()[0])

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        for name in ("search_passages", "search_purge", "search_state"):
            ask(connection, f"DROP TABLE IF EXISTS {name}")
        for table in _TABLES:
            ask(connection, table)
        ask(connection, "INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; a writing transaction is alone, so what is deleted is ours."""
        del wait
        taken: set[int] = set()
        for part in in_batches(seqs):
            statement = f"DELETE FROM pending WHERE seq IN ({','.join('?' * len(part))}) RETURNING seq"  # noqa: S608
            taken.update(row[0] for row in ask(connection, statement, part))
        return taken

    def add(self, connection: Connection, rows: Rows) -> None:
        """Add passages that are not in it."""
        self._database.backend.run(connection, "INSERT INTO search_passages (rowid, terms) VALUES (?, ?)", rows)

    def remove(self, connection: Connection, documents: Iterable[Rows]) -> list[Rows]:
        """Take documents out; to take out what is not there would damage the index."""
        by_key = {rows[0][0]: rows for rows in documents}
        held: list[Rows] = []
        for part in in_batches(list(by_key)):
            statement = f"SELECT id FROM search_passages_docsize WHERE id IN ({','.join('?' * len(part))})"  # noqa: S608
            held += [by_key[row[0]] for row in ask(connection, statement, part)]
        if held:
            statement = "INSERT INTO search_passages (search_passages, rowid, terms) VALUES ('delete', ?, ?)"
            self._database.backend.run(connection, statement, [row for rows in held for row in rows])
            ask(connection, "DELETE FROM search_purge")
            ask(connection, "INSERT INTO search_purge VALUES (0)")
        return held

    def has_traces(self, connection: Connection) -> bool:
        """Return whether removed terms may still stand in the table's pages."""
        return self.version(connection) is not None and bool(ask(connection, "SELECT 1 FROM search_purge").fetchone())

    def clear_pages(self, connection: Connection, pages: int) -> None:
        """Merge about so many pages, which leaves removed terms out.

        The first merge takes in all segments there are. Those that are added meanwhile do not stop it, because two
        segments are enough for one.
        """
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - FTS5 is a part of SQLite
        is_begun = ask(connection, "SELECT is_begun FROM search_purge").fetchone()[0]
        command = "INSERT INTO search_passages (search_passages, rank) VALUES (?, ?)"
        if not is_begun:
            ask(connection, command, ("usermerge", 2))
        before = raw.total_changes
        ask(connection, command, ("merge", pages if is_begun else -pages))
        is_done = raw.total_changes - before < _NO_WORK
        ask(connection, "DELETE FROM search_purge" if is_done else "UPDATE search_purge SET is_begun = 1")
