"""The search index in SQLite: an FTS5 table of passages without content or positions.

The terms come prepared, so its tokenizer splits at spaces. FTS5 removes from such a table only if told exactly what was
put in, and drops what was removed when it merges segments. The transaction that removes something says so in
`search_state`, so a purge that was interrupted goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import ask, in_batches
from everlong.store.search.index import Index, Rows, is_start

_NO_WORK = 2
"""A merge that finds nothing to do changes fewer rows than this."""


class SQLiteIndex(Index):
    """See `everlong.store.search.index.Index`."""

    table = "search_passages"
    key = "rowid"
    creations = ("CREATE VIRTUAL TABLE search_passages USING fts5(terms, content='', detail=none, tokenize='ascii')",)

    def match(self, terms: Collection[str]) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any of some terms, and its values."""
        named = [f'"{term}" *' if is_start(term) else f'"{term}"' for term in dict.fromkeys(terms)]
        return "p.search_passages MATCH ?", [" OR ".join(named)]

    def add(self, connection: Connection, rows: Rows) -> None:
        """Add passages that are not in it."""
        self._database.backend.run(connection, "INSERT INTO search_passages (rowid, terms) VALUES (?, ?)", rows)

    def remove(self, connection: Connection, documents: Iterable[Rows]) -> None:
        """Take documents out; to take out what is not there would damage the index."""
        by_key = {rows[0][0]: rows for rows in documents}
        held: list[Rows] = []
        for part in in_batches(list(by_key)):
            statement = f"SELECT id FROM search_passages_docsize WHERE id IN ({','.join('?' * len(part))})"  # noqa: S608
            held += [by_key[row[0]] for row in ask(connection, statement, part)]
        if held:
            statement = "INSERT INTO search_passages (search_passages, rowid, terms) VALUES ('delete', ?, ?)"
            self._database.backend.run(connection, statement, [row for rows in held for row in rows])
            ask(connection, "UPDATE search_state SET has_traces = 1, is_merging = 0")

    def clear_pages(self, connection: Connection, pages: int) -> None:
        """Merge about so many pages, which leaves removed terms out.

        The first merge takes in all segments there are. Those that are added meanwhile do not stop it, because two
        segments are enough for one.
        """
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - FTS5 is a part of SQLite
        is_begun = ask(connection, "SELECT is_merging FROM search_state").fetchone()[0]
        command = "INSERT INTO search_passages (search_passages, rank) VALUES (?, ?)"
        if not is_begun:
            ask(connection, command, ("usermerge", 2))
        before = raw.total_changes
        ask(connection, command, ("merge", pages if is_begun else -pages))
        is_left = raw.total_changes - before >= _NO_WORK
        ask(connection, "UPDATE search_state SET has_traces = ?, is_merging = ?", (is_left, is_left))
