"""The search index: which passages hold a term, whichever database keeps it, and its upkeep.

An index is keyed by the numbers of passages. One is made of the document's number (the ``seq`` of a node, or minus the
``seq`` of a view's item for a summary), the place of the passage in it, and in the lowest bits what the ranking wants
to know of it. The index holds terms, never the text.

Documents are cut into terms before the write lock is taken. Whoever takes a document off the list of pending ones adds
it, in the same transaction; so several processes may drain at once, and one that dies has changed nothing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection

from everlong.model import answered_calls
from everlong.store.database import Database, ShortWrites, ask, in_batches
from everlong.store.search.corpus import SearchDocument, load_documents
from everlong.store.search.scope import SearchScope, Source
from everlong.store.search.text import INDEX_VERSION, PLACE_BITS, is_dense, passage_terms, terms_of
from everlong.store.search.vectors import VectorTable

_LENGTHS = (1, 2, 3, 4, 6, 8, 11, 14, 18, 23, 29, 36, 45, 56, 70, 90)
LENGTHS = len(_LENGTHS)
"""The lengths that a passage's number tells apart, in its lowest four bits."""
PERSON, SPOKEN, WHOLE = 16, 32, 64
"""Marks in a passage's number: a person said it; somebody with a name said it; it is a whole text."""
_MARK_BITS = 7
KEY_BITS = _MARK_BITS + PLACE_BITS
SPEAKER = "§"
"""The beginning of a term that says who speaks."""

MOST_AT_ONCE = 200_000
"""Characters that are indexed in one transaction, unless a single document has more."""

_STATE_TABLE = "CREATE TABLE search_state (version INTEGER, has_traces INTEGER, is_merging INTEGER)"
"""The version of the terms; whether removed ones may stand in the index's own pages; whether these are merged."""

_LEAST_PAUSE = 0.03
_MOST_PAGES = 64
"""Pages that one step of a purge clears, at most."""

Rows = list[tuple[int, str]]
"""The passages of a document as they are indexed: the number of each, and its terms, separated by spaces."""


def seq_of(key: int) -> int:
    """Return the number of a passage's document."""
    return key >> KEY_BITS


def place_of(key: int) -> int:
    """Return the place of a passage in its document."""
    return (key >> _MARK_BITS) & ((1 << PLACE_BITS) - 1)


def length_of(key: int) -> int:
    """Return about how many terms a passage has."""
    return _LENGTHS[key % LENGTHS]


def index_rows(document: SearchDocument) -> Rows:
    """Return a document as it is indexed; what a client wrapped around a person's words has passages of its own."""
    own = passage_terms(document.own_text)
    marks = SPOKEN * bool(document.speaker) + WHOLE * (len(own) == 1)
    if document.role == "user" and not answered_calls(document.message):
        marks += PERSON
    told = [(terms, marks) for terms in own]
    if document.own_text != document.text:
        told += [(terms, 0) for terms in passage_terms(document.text)]
    speaker = [SPEAKER + term for term in terms_of(document.speaker)]
    rows: Rows = []
    for place, (terms, its) in enumerate(told):
        length = min(LENGTHS - 1, bisect_left(_LENGTHS, terms.count(" ") + 1))
        key = (document.seq << KEY_BITS) + (place << _MARK_BITS) + its + length
        rows.append((key, " ".join([terms, *speaker])))
    return rows


class SearchPlace(NamedTuple):
    """The end of a page: time and number of its last document."""

    ts: float
    seq: int


class Index(ABC):
    """A search index in one kind of database."""

    table: str
    """The table of passages."""
    key: str
    """Its column with the number of a passage."""
    creations: tuple[str, ...]
    """The statements that create the table."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._vectors = VectorTable(database)
        self._is_ready = False

    # -- each database for itself --------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, connection: Connection, rows: Rows) -> None:
        """Add passages that are not in it."""

    @abstractmethod
    def remove(self, connection: Connection, documents: Iterable[Rows]) -> None:
        """Take documents out, given exactly what was indexed of them, if they are in it."""

    @abstractmethod
    def match(self, terms: Collection[str]) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any of some terms, and its values.

        A single character of dense script stands for all terms that begin with it.
        """

    def clear_pages(self, connection: Connection, pages: int) -> None:  # noqa: B027 - a server clears its pages itself
        """Clear about so many of those pages; to be called until nothing is left."""

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if not connection.dialect.has_table(connection, "search_state"):
            return None
        return int(ask(connection, "SELECT version FROM search_state").fetchone()[0])

    def has_traces(self, connection: Connection) -> bool:
        """Return whether removed terms may still stand in the index's own pages."""
        if self.version(connection) is None:
            return False
        return bool(ask(connection, "SELECT has_traces FROM search_state").fetchone()[0])

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; return those that nobody else has taken.

        With ``wait``, until others who are at them are done with them.
        """
        lock = self._database.backend.lock
        lock = f"{lock} SKIP LOCKED" if lock and not wait else lock
        taken: set[int] = set()
        for some in in_batches(seqs):
            mine = f"SELECT seq FROM pending WHERE seq IN ({','.join(map(str, some))}) ORDER BY seq {lock}"  # noqa: S608
            gone = ask(connection, f"DELETE FROM pending WHERE seq IN ({mine}) RETURNING seq")  # noqa: S608 - numbers
            taken.update(row[0] for row in gone.fetchall())
        return taken

    def ensure(self) -> None:
        """Create the index; replace one that an older version of Everlong made."""
        if self._is_ready:
            return
        with self._database.read() as connection:
            self._is_ready = self.version(connection) == INDEX_VERSION
        if not self._is_ready:
            self._database.write(self._make)
            self._is_ready = True

    def _make(self, connection: Connection) -> None:
        self._database.backend.prepare(connection)
        if self.version(connection) != INDEX_VERSION:  # another process may have been quicker
            self.rebuild(connection)

    def rebuild(self, connection: Connection) -> None:
        """Begin again with an empty index and everything pending."""
        for name in ("search_state", self.table):
            ask(connection, f"DROP TABLE IF EXISTS {name}")
        for creation in (_STATE_TABLE, *self.creations):
            ask(connection, creation)
        ask(connection, "INSERT INTO search_state VALUES (?, 0, 0)", (INDEX_VERSION,))
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

    def has_pending(self) -> bool:
        """Return whether anything is stored that is not indexed yet."""
        with self._database.read() as connection:
            return ask(connection, "SELECT 1 FROM pending LIMIT 1").fetchone() is not None

    def index_pending(self, limit: int, *, gives_way: bool = False) -> int:
        """Index up to so many pending documents, newest first; return how many were taken off the list.

        With ``gives_way`` others who write have as much time as is taken from them.
        """
        self.ensure()
        with self._database.read() as connection:
            pending = ask(connection, "SELECT seq FROM pending ORDER BY seq DESC LIMIT ?", (limit,))
            seqs = [row[0] for row in pending.fetchall()]
            made = self._rows_of(connection, seqs)
        taken = 0
        for part in _divide(seqs, made):
            began = time.monotonic()
            taken += self._database.write(partial(self._add, part, made))
            if gives_way:
                time.sleep(max(_LEAST_PAUSE, time.monotonic() - began))
        return taken

    def _add(self, seqs: list[int], made: Mapping[int, Rows], connection: Connection) -> int:
        taken = self.claim(connection, seqs, wait=False)
        documents = [made[seq] for seq in seqs if seq in taken and seq in made]
        if documents:
            self.add(connection, [row for rows in documents for row in rows])
        return len(taken)

    def forget(self, connection: Connection, seqs: Iterable[int]) -> None:
        """Take documents out, in the transaction that forgets them and before their contents are gone.

        Their terms stand in the index's own pages until it is purged.
        """
        seqs = list(seqs)
        self._vectors.remove(connection, seqs)
        if self.version(connection) != INDEX_VERSION:
            return
        pending = self.claim(connection, seqs, wait=True)
        made = self._rows_of(connection, [seq for seq in seqs if seq not in pending])
        if made:
            self.remove(connection, made.values())

    def purge(self) -> None:
        """Leave no trace of removed documents in the index's own pages, in steps between which others write."""
        steps = ShortWrites(self._database, _MOST_PAGES)
        while True:
            with self._database.read() as connection:
                if not self.has_traces(connection):
                    return
            steps.write(partial(self.clear_pages, pages=steps.count))

    def _rows_of(self, connection: Connection, seqs: list[int]) -> dict[int, Rows]:
        """Return documents as they are indexed."""
        loaded = load_documents(connection, seqs)
        return {seq: index_rows(loaded.pop(seq)) for seq in sorted(loaded)}

    # -- look-ups ------------------------------------------------------------------------------------------------------

    def newest_passages(
        self, connection: Connection, terms: Sequence[str], limit: int, scope: SearchScope
    ) -> list[list[int]]:
        """Return for each term the numbers of the newest passages of a scope that have it."""
        found: list[list[int]] = [[] for _ in terms]
        for source in scope.sources():
            joined = self._joined(source)
            selects: list[str] = []
            values: list[Any] = []
            for place, term in enumerate(terms):
                condition, given = self.match([term])
                newest = f"SELECT {place} AS place, p.{self.key} AS key FROM {joined} AND {condition}"  # noqa: S608 - our own
                newest += f" ORDER BY p.{self.key} DESC LIMIT {limit}"
                selects.append(f"SELECT place, key FROM ({newest}) AS w{place}")  # noqa: S608 - as above
                values += (*source.values, *given)
            for place, key in ask(connection, " UNION ALL ".join(selects), values).fetchall():
                found[place].append(key)
        return found

    def offer(
        self,
        connection: Connection,
        groups: Sequence[Collection[str]],
        scope: SearchScope,
        after: SearchPlace | None,
        limit: int,
        *,
        by_time: bool,
        is_oldest_first: bool = False,
    ) -> list[SearchPlace]:
        """Return the documents with any term of each group, newest first (by time or by number), after a place.

        A document with several such passages comes several times in a row.
        """
        found: list[SearchPlace] = []
        for source in scope.sources():
            if after is not None and not by_time:
                source = source._replace(high=min(source.high, after.seq - 1))  # noqa: PLW2901 - a part of the same
            rows = f"{source.rows} WHERE {source.where} AND {source.seq} BETWEEN {source.low} AND {source.high}"
            order = f"{source.seq} DESC"
            if groups:
                rows, order = self._joined(source), f"p.{self.key} DESC"
            values = [*source.values]
            for place, group in enumerate(groups):
                condition, given = self.match(group)
                if place:
                    document = f"p.{self.key} >> {KEY_BITS}"
                    condition = f"{document} IN (SELECT {document} FROM {self.table} p WHERE {condition})"  # noqa: S608
                rows += f" AND {condition}"
                values += given
            if by_time:
                way, side = ("ASC", ">") if is_oldest_first else ("DESC", "<")
                order = f"{source.ts} {way}, {source.seq} {way}"
                if after is not None:
                    rows += f" AND ({source.ts}, {source.seq}) {side} (?, ?)"
                    values += after
            statement = f"SELECT {source.ts}, {source.seq} FROM {rows} ORDER BY {order} LIMIT {limit}"  # noqa: S608
            found += [SearchPlace(*row) for row in ask(connection, statement, values).fetchall()]
        found.sort(key=(lambda place: place) if by_time else (lambda place: place.seq), reverse=not is_oldest_first)
        return found[:limit]

    def _joined(self, source: Source) -> str:
        """Return the passages of a source's documents, to which conditions can be added."""
        return (
            f"{self.table} p CROSS JOIN {source.rows} WHERE {source.where} "
            f"AND {source.seq} = p.{self.key} >> {KEY_BITS} AND p.{self.key} >= {source.low << KEY_BITS} "
            f"AND p.{self.key} < {(source.high + 1) << KEY_BITS}"
        )


def is_start(term: str) -> bool:
    """Return whether a term is a single character of dense script, which stands for all that begin with it."""
    return len(term) == 1 and is_dense(term)


def _divide(seqs: list[int], made: Mapping[int, Rows]) -> Iterator[list[int]]:
    """Divide documents into those that are indexed in one transaction, for which others have to wait."""
    part: list[int] = []
    size = 0
    for seq in seqs:
        weight = sum(len(terms) for _, terms in made.get(seq, ()))
        if part and size + weight > MOST_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(seq)
        size += weight
    if part:
        yield part
