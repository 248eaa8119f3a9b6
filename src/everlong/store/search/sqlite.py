"""The search index in SQLite: an FTS5 table of passages without content or positions.

The terms come prepared, so its tokenizer splits at spaces. FTS5 removes from such a table only if told exactly what was
put in, and drops what was removed when it merges segments. The table is listed in `search_purge` in the transaction
that removes something, so a purge that was interrupted goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search.index import COUNTED, KEY_BITS, MAX_NUMBER, Index, IndexText, is_start, seq_of
from everlong.store.search.text import INDEX_VERSION
from everlong.store.sqlite import run_plain

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents INTEGER NOT NULL, "
    "summaries INTEGER NOT NULL, passages INTEGER NOT NULL, terms INTEGER NOT NULL)",
    "CREATE TABLE search_purge (is_begun INTEGER NOT NULL)",
    "CREATE VIRTUAL TABLE search_passages USING fts5(terms, content='', detail=none, tokenize='ascii')",
)
_NO_WORK = 2
"""A merge that finds nothing to do changes fewer rows than this."""
_ENDS = (
    "SELECT (SELECT max(id) FROM search_passages_docsize), (SELECT min(id) FROM search_passages_docsize WHERE id > 0)"
)


class SQLiteIndex(Index):
    """See `everlong.store.search.index.Index`."""

    table = "search_passages"
    key = "rowid"

    def run(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement that is written with question marks."""
        return connection.exec_driver_sql(statement, tuple(values))

    def rows(self, connection: Connection, statement: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a statement that may give thousands."""
        return run_plain(connection, statement, tuple(values)).fetchall()

    def match(self, terms: Collection[str], *, every: bool) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any, or all, of some terms, and its values."""
        return "p.search_passages MATCH ?", [(" AND " if every else " OR ").join(map(_quoted, dict.fromkeys(terms)))]

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if not self.run(connection, "SELECT 1 FROM sqlite_master WHERE name = 'search_state'").first():
            return None
        return int(self.run(connection, "SELECT version FROM search_state").scalar())

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        for name in ("search_passages", "search_purge", "search_state"):
            self.run(connection, f"DROP TABLE IF EXISTS {name}")
        for table in _TABLES:
            self.run(connection, table)
        self.run(connection, "INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; a writing transaction is alone, so what is deleted is ours."""
        del wait
        taken: set[int] = set()
        for part in in_batches(seqs):
            statement = f"DELETE FROM pending WHERE seq IN ({','.join('?' * len(part))}) RETURNING seq"  # noqa: S608
            taken.update(row[0] for row in self.run(connection, statement, part))
        return taken

    def add(self, connection: Connection, documents: Sequence[IndexText]) -> None:
        """Index documents that are not in it."""
        if rows := _rows(documents):
            connection.exec_driver_sql("INSERT INTO search_passages (rowid, terms) VALUES (?, ?)", rows)
            self._count(connection, documents, 1)

    def remove(self, connection: Connection, documents: Sequence[IndexText]) -> None:
        """Take documents out, given exactly what was indexed of them; one that is not in it is passed over."""
        held: set[int] = set()
        for part in in_batches([document.passages[0][0] for document in documents]):
            statement = f"SELECT id FROM search_passages_docsize WHERE id IN ({','.join('?' * len(part))})"  # noqa: S608
            held.update(seq_of(row[0]) for row in self.run(connection, statement, part))
        documents = [document for document in documents if document.seq in held]
        if rows := _rows(documents):  # to take out what is not there damages the index
            statement = "INSERT INTO search_passages (search_passages, rowid, terms) VALUES ('delete', ?, ?)"
            connection.exec_driver_sql(statement, rows)
            self._count(connection, documents, -1)
            self.run(connection, "DELETE FROM search_purge")
            self.run(connection, "INSERT INTO search_purge VALUES (0)")

    def has_traces(self, connection: Connection) -> bool:
        """Return whether removed terms may still stand in the table's pages."""
        return self.version(connection) is not None and bool(self.run(connection, "SELECT 1 FROM search_purge").first())

    def purge(self, connection: Connection, pages: int) -> None:
        """Merge about so many pages, which leaves removed terms out.

        The first merge takes in all segments there are. Those that are added meanwhile do not stop it, because two
        segments are enough for one.
        """
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - FTS5 is a part of SQLite
        is_begun = self.run(connection, "SELECT is_begun FROM search_purge").scalar()
        command = "INSERT INTO search_passages (search_passages, rank) VALUES (?, ?)"
        if not is_begun:
            self.run(connection, command, ("usermerge", 2))
        before = raw.total_changes
        self.run(connection, command, ("merge", pages if is_begun else -pages))
        is_done = raw.total_changes - before < _NO_WORK
        self.run(connection, "DELETE FROM search_purge" if is_done else "UPDATE search_purge SET is_begun = 1")

    def frequencies(self, connection: Connection, terms: Collection[str], upto: int | None = None) -> dict[str, int]:
        """Return about how many passages hold each of some terms; of a frequent one, only the newest are counted."""
        last, first = (end or 0 for end in self.run(connection, _ENDS).one())
        highest = (MAX_NUMBER if upto is None else upto + 1) << KEY_BITS
        newest = (
            "SELECT rowid FROM search_passages WHERE search_passages MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        )
        found: dict[str, int] = {}
        counted = " UNION ALL ".join([f"SELECT ?, count(*), min(rowid) FROM ({newest})"] * len(terms))  # noqa: S608
        values = [value for term in terms for value in (term, _quoted(term), highest, COUNTED)]
        for term, count, oldest in self.rows(connection, counted, values) if terms else ():
            if count == COUNTED and oldest > 0:
                found[term] = max(count, int(count * (last - first + 1) / (last - oldest + 1)))
            elif count:
                found[term] = count
        return found


def _quoted(term: str) -> str:
    return f'"{term}" *' if is_start(term) else f'"{term}"'


def _rows(documents: Sequence[IndexText]) -> list[tuple[int, str]]:
    return [row for document in documents for row in document.passages]
