"""The search index in PostgreSQL: a row for each passage, its terms as an array of numbers.

Arrays of numbers take a third of a `tsvector`. Rows that are deleted leave the index's pages with the server's own
vacuum. The statistics of the server say how frequent a frequent term is; only rare ones are counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection

from everlong.store.search.index import COUNTED, KEY_BITS, Index, IndexText, is_start
from everlong.store.search.text import INDEX_VERSION, is_dense

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents BIGINT NOT NULL, summaries BIGINT NOT NULL, "
    "passages BIGINT NOT NULL, terms BIGINT NOT NULL)",
    "CREATE TABLE search_passage (passage BIGINT PRIMARY KEY, words INTEGER[] NOT NULL)",
    "ALTER TABLE search_passage ALTER words SET STATISTICS 300",
    # Kilobytes of new entries that the server collects before it sorts them in; their pages stay in the file.
    "CREATE INDEX ix_search_passage_words ON search_passage USING gin (words) WITH (gin_pending_list_limit = 1024)",
)
_FREQUENT = (
    "SELECT term, share FROM pg_stats, unnest(CAST(CAST(most_common_elems AS text) AS integer[]), "
    "most_common_elem_freqs) AS common(term, share) WHERE schemaname = ANY(current_schemas(false)) "
    "AND tablename = 'search_passage' AND attname = 'words' AND term = ANY(CAST(? AS integer[]))"
)


class PostgresIndex(Index):
    """See `everlong.store.search.index.Index`."""

    table = "search_passage"
    key = "passage"

    def run(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement that is written with question marks."""
        return connection.exec_driver_sql(statement.replace("%", "%%").replace("?", "%s"), tuple(values))

    def match(self, terms: Collection[str], *, every: bool) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any, or all, of some terms, and its values."""
        # Not as a parameter, because the plan depends on the numbers.
        return f"p.words {'@>' if every else '&&'} '{_array(map(_code, terms))}'::integer[]", []

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if self.run(connection, "SELECT to_regclass('search_state')").scalar() is None:
            return None
        return int(self.run(connection, "SELECT version FROM search_state").scalar())

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        for name in ("search_passage", "search_state"):
            self.run(connection, f"DROP TABLE IF EXISTS {name}")
        for table in _TABLES:
            self.run(connection, table)
        self.run(connection, "INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; without ``wait``, those that others are working on stay theirs."""
        lock = "FOR UPDATE" if wait else "FOR UPDATE SKIP LOCKED"
        gone = self.run(
            connection,
            f"DELETE FROM pending WHERE seq IN (SELECT seq FROM pending WHERE seq = ANY(?) ORDER BY seq {lock}) "  # noqa: S608 - a constant
            "RETURNING seq",
            (list(seqs),),
        )
        return {row[0] for row in gone}

    def add(self, connection: Connection, documents: Sequence[IndexText]) -> None:
        """Index documents that are not in it."""
        if not documents:
            return
        rows = [row for document in documents for row in _rows(document)]
        self.run(
            connection,
            "INSERT INTO search_passage SELECT passage, CAST(words AS integer[]) "
            "FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS new(passage, words) ON CONFLICT DO NOTHING",
            [list(column) for column in zip(*rows, strict=True)],
        )
        self._count(connection, documents, 1)

    def remove(self, connection: Connection, documents: Sequence[IndexText]) -> None:
        """Take documents out; one that is not in it is passed over."""
        passages = [key for document in documents for key, _ in document.passages]
        statement = "DELETE FROM search_passage WHERE passage = ANY(?) RETURNING passage >> ?"
        gone = {row[0] for row in self.run(connection, statement, (passages, KEY_BITS))}
        self._count(connection, [document for document in documents if document.seq in gone], -1)

    def has_traces(self, connection: Connection) -> bool:
        """Return False: the server's vacuum clears the pages."""
        del connection
        return False

    def purge(self, connection: Connection, pages: int) -> None:
        """Do nothing, for the same reason."""

    def frequencies(self, connection: Connection, terms: Collection[str], upto: int | None = None) -> dict[str, int]:
        """Return about how many passages hold each of some terms; terms in none are left out."""
        bound = "" if upto is None else f" AND p.passage < {upto + 1 << KEY_BITS:d}"
        passages = self.size(connection).passages
        shares = {row[0]: row[1] for row in self.run(connection, _FREQUENT, ([*map(_code, terms)],))}
        found: dict[str, int] = {}
        for term in terms:
            count = int(shares.get(_code(term), 0.0) * passages)
            if count < COUNTED:
                condition = f"{self.match([term], every=True)[0]}{bound}"
                some = f"SELECT 1 FROM search_passage p WHERE {condition} LIMIT {5 * COUNTED}"  # noqa: S608
                count = self.run(connection, f"SELECT count(*) FROM ({some}) AS found").scalar()  # noqa: S608
            if count:
                found[term] = count
        return found


def _code(term: str) -> int:
    """Return the number of a term; two terms seldom have the same."""
    text = f"{term}*" if is_start(term) else term
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) - (1 << 31)


def _array(codes: Iterator[int] | set[int]) -> str:
    return f"{{{','.join(map(str, codes))}}}"


def _rows(document: IndexText) -> Iterator[tuple[int, str]]:
    """Yield the rows of a document's passages."""
    for key, terms in document.passages:
        found = terms.split()
        codes = set(map(_code, found))
        if not terms.isascii():
            codes |= {_code(term[0]) for term in found if is_dense(term)}
        yield key, _array(codes)
