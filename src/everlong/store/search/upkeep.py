"""The upkeep of the index: create it, add what is pending, take out what is forgotten.

Documents are cut into terms before the write lock is taken. Whoever takes a document off the list of pending ones adds
it, in the same transaction; so several processes may drain at once, and one that dies has changed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from sqlalchemy import Connection

from everlong.store.database import Database, ShortWrites
from everlong.store.search.corpus import Corpus, SearchDocument, answered_calls
from everlong.store.search.index import PERSON, SPEAKER, SPOKEN, WHOLE, Index, IndexText, passage_key
from everlong.store.search.text import INDEX_VERSION, passage_terms, terms_of
from everlong.store.search.vectors import VectorTable

MOST_AT_ONCE = 200_000
"""Characters that are indexed in one transaction, unless a single document has more."""
_LEAST_PAUSE = 0.03
_MOST_PAGES = 64
"""Pages that one step of a purge clears, at most."""


class IndexUpkeep:
    """The upkeep of a database's index: creation, additions and removals."""

    def __init__(self, database: Database, index: Index, corpus: Corpus) -> None:
        self._database = database
        self._index = index
        self._corpus = corpus
        self._vectors = VectorTable(database)
        self._is_ready = False

    def ensure(self) -> None:
        """Create the index; replace one that an older version of Everlong made."""
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

    def index_pending(self, limit: int, *, gives_way: bool = False) -> int:
        """Index up to so many pending documents; return how many were taken off the list.

        With ``gives_way`` others who write have as much time as is taken from them.
        """
        self.ensure()
        with self._database.read() as connection:
            seqs = self._corpus.pending_numbers(connection, limit)
            documents = self._documents(connection, seqs)
        taken = 0
        for part in _divide(seqs, documents):
            began = time.monotonic()
            taken += self._database.write(partial(self._add, part, documents))
            if gives_way:
                time.sleep(max(_LEAST_PAUSE, time.monotonic() - began))
        return taken

    def _add(self, seqs: list[int], documents: Mapping[int, IndexText], connection: Connection) -> int:
        taken = self._index.claim(connection, seqs, wait=False)
        self._index.add(connection, [documents[seq] for seq in seqs if seq in taken and seq in documents])
        self._vectors.list_messages(connection, taken)
        return len(taken)

    def forget(self, connection: Connection, seqs: Iterable[int]) -> None:
        """Take documents out, in the transaction that forgets them and before their contents are gone.

        Their terms stand in the index's own pages until it is purged.
        """
        seqs = list(seqs)
        self._vectors.remove(connection, seqs)
        if self._index.version(connection) != INDEX_VERSION:
            return
        pending = self._index.claim(connection, seqs, wait=True)
        made = self._documents(connection, [seq for seq in seqs if seq not in pending])
        self._index.remove(connection, list(made.values()))

    def purge(self) -> None:
        """Leave no trace of removed documents in the index's own pages, in steps between which others write."""
        steps = ShortWrites(self._database, _MOST_PAGES)
        while True:
            with self._database.read() as connection:
                if not self._index.has_traces(connection):
                    return
            steps.write(partial(self._index.purge, pages=steps.count))

    def _documents(self, connection: Connection, seqs: list[int]) -> dict[int, IndexText]:
        """Return documents as they are indexed."""
        loaded = self._corpus.load(connection, seqs)
        return {seq: index_text(loaded.pop(seq)) for seq in sorted(loaded)}


def index_text(document: SearchDocument) -> IndexText:
    """Return a document as it is indexed; what a client wrapped around a person's words has passages of its own."""
    own = passage_terms(document.own_text)
    marks = SPOKEN * bool(document.speaker) + WHOLE * (len(own) == 1)
    if document.role == "user" and not answered_calls(document.message):
        marks += PERSON
    told = [(terms, marks) for terms in own]
    if document.own_text != document.text:
        told += [(terms, 0) for terms in passage_terms(document.text)]
    rows: list[tuple[int, str]] = []
    speaker = [SPEAKER + term for term in terms_of(document.speaker)]
    for place, (terms, its) in enumerate(told):
        key = passage_key(document.seq, place, its, terms.count(" ") + 1)
        rows.append((key, " ".join([terms, *speaker])))
    return IndexText(document.seq, tuple(rows))


def _size(made: IndexText) -> int:
    return sum(len(terms) for _, terms in made.passages)


def _divide(seqs: list[int], documents: Mapping[int, IndexText]) -> Iterator[list[int]]:
    """Divide documents into those that are indexed in one transaction, for which others have to wait."""
    part: list[int] = []
    size = 0
    for seq in seqs:
        made = documents.get(seq)
        weight = 0 if made is None else _size(made)
        if part and size + weight > MOST_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(seq)
        size += weight
    if part:
        yield part


def index_for(database: Database) -> Index:
    """Return the index that goes with a database."""
    if database.backend.name == "sqlite":
        from everlong.store.search.sqlite import SQLiteIndex  # noqa: PLC0415 - only the one that is used

        return SQLiteIndex()
    from everlong.store.search.postgres import PostgresIndex  # noqa: PLC0415 - as above

    return PostgresIndex()
