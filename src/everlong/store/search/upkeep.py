"""Keeping the index up with what is stored: making it, draining what is pending, taking out what is forgotten.

Documents are cut into terms before the write lock is taken. Whoever takes a document off the list of pending ones adds
it, in the same transaction; so several processes may drain at once, and one that dies has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from everlong.store.database import Database
from everlong.store.search.corpus import Corpus
from everlong.store.search.index import Index
from everlong.store.search.words import INDEX_VERSION, IndexText, index_text


class Upkeep:
    """Changes the index of one database."""

    def __init__(self, database: Database, index: Index, corpus: Corpus) -> None:
        self._database = database
        self._index = index
        self._corpus = corpus
        self._is_ready = False

    def ensure(self) -> None:
        """Make the index, or make it anew where an older version of the software made it."""
        if self._is_ready:
            return
        with self._database.read() as connection:
            self._is_ready = self._index.version(connection) == INDEX_VERSION
        if not self._is_ready:
            self._database.write(self._create)
            self._is_ready = True

    def _create(self, connection: Connection) -> None:
        self._database.backend.prepare(connection)
        if self._index.version(connection) != INDEX_VERSION:  # another process may have been quicker
            self.rebuild(connection)

    def rebuild(self, connection: Connection) -> None:
        """Begin again with an empty index and everything pending."""
        self._index.create(connection)
        connection.exec_driver_sql("DELETE FROM pending")
        # Others go on writing meanwhile: what one of them has just put on the list is on it.
        connection.exec_driver_sql("INSERT INTO pending (seq) SELECT seq FROM node WHERE true ON CONFLICT DO NOTHING")
        # As when a view is written: what the view before, or the one that it repeats, told already stands there once.
        connection.exec_driver_sql(
            "INSERT INTO pending (seq) SELECT -i.seq FROM view_item i JOIN view v ON v.id = i.view"
            " WHERE i.kind = 'new' AND i.digest IS NOT NULL AND v.state <> 'void' AND NOT EXISTS"
            " (SELECT 1 FROM view_item o WHERE o.view = COALESCE(v.origin, v.prev) AND o.digest = i.digest)"
            " ON CONFLICT DO NOTHING"
        )

    def index_pending(self, limit: int) -> int:
        """Index up to so many pending documents; how many were taken off the list."""
        self.ensure()
        with self._database.read() as connection:
            seqs = self._corpus.pending_numbers(connection, limit)
            if not seqs:
                return 0
            documents = self._documents(connection, seqs)

        def add(connection: Connection) -> int:
            taken = self._index.claim(connection, seqs, wait=False)
            self._index.add(connection, [document for document in documents if document[0] in taken])
            return len(taken)

        return self._database.write(add)

    def forget(self, connection: Connection, seqs: Iterable[int], *, purge: bool = True) -> None:
        """Take documents out, in the transaction that forgets them and before their contents are gone."""
        if self._index.version(connection) != INDEX_VERSION:
            return
        wanted = list(seqs)
        pending = self._index.claim(connection, wanted, wait=True)
        indexed = [seq for seq in wanted if seq not in pending]
        self._index.remove(connection, self._documents(connection, indexed))
        if purge and indexed:
            self._index.purge(connection)

    def _documents(self, connection: Connection, seqs: list[int]) -> list[tuple[int, IndexText]]:
        loaded = self._corpus.load(connection, seqs)
        return [(seq, index_text(document.text)) for seq, document in sorted(loaded.items())]
