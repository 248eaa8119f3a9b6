"""The search index in PostgreSQL: a row for each passage, its terms as an array of numbers.

Arrays of numbers take a third of a `tsvector`. Rows that are deleted leave the index's pages with the server's own
vacuum.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import ask
from everlong.store.search.index import Index, Rows, is_start
from everlong.store.search.text import INDEX_VERSION, is_dense

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents BIGINT NOT NULL, summaries BIGINT NOT NULL, "
    "passages BIGINT NOT NULL, terms BIGINT NOT NULL)",
    "CREATE TABLE search_passage (passage BIGINT PRIMARY KEY, words INTEGER[] NOT NULL)",
    "ALTER TABLE search_passage ALTER words SET STATISTICS 300",
    # Kilobytes of new entries that the server collects before it sorts them in; their pages stay in the file.
    "CREATE INDEX ix_search_passage_words ON search_passage USING gin (words) WITH (gin_pending_list_limit = 1024)",
)


class PostgresIndex(Index):
    """See `everlong.store.search.index.Index`."""

    table = "search_passage"
    key = "passage"
    ids, id = "search_passage", "passage"

    def match(self, terms: Collection[str], *, every: bool) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any, or all, of some terms, and its values."""
        # Not as a parameter, because the plan depends on the numbers.
        return f"p.words {'@>' if every else '&&'} '{_array(terms)}'::integer[]", []

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if ask(connection, "SELECT to_regclass('search_state')").fetchone()[0] is None:
            return None
        return int(ask(connection, "SELECT version FROM search_state").fetchone()[0])

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        for name in ("search_passage", "search_state"):
            ask(connection, f"DROP TABLE IF EXISTS {name}")
        for table in _TABLES:
            ask(connection, table)
        ask(connection, "INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; without ``wait``, those that others are working on stay theirs."""
        lock = "FOR UPDATE" if wait else "FOR UPDATE SKIP LOCKED"
        gone = ask(
            connection,
            f"DELETE FROM pending WHERE seq IN (SELECT seq FROM pending WHERE seq = ANY(?) ORDER BY seq {lock}) "  # noqa: S608 - a constant
            "RETURNING seq",
            (list(seqs),),
        )
        return {row[0] for row in gone}

    def add(self, connection: Connection, rows: Rows) -> None:
        """Add passages that are not in it."""
        ask(
            connection,
            "INSERT INTO search_passage SELECT passage, CAST(words AS integer[]) "
            "FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS new(passage, words) ON CONFLICT DO NOTHING",
            ([key for key, _ in rows], [_words(terms) for _, terms in rows]),
        )

    def remove(self, connection: Connection, documents: Iterable[Rows]) -> list[Rows]:
        """Take documents out."""
        documents = list(documents)
        keys = [key for rows in documents for key, _ in rows]
        statement = "DELETE FROM search_passage WHERE passage = ANY(?) RETURNING passage"
        gone = {row[0] for row in ask(connection, statement, (keys,))}
        return [rows for rows in documents if rows[0][0] in gone]


def _code(term: str) -> int:
    """Return the number of a term; two terms seldom have the same."""
    text = f"{term}*" if is_start(term) else term
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) - (1 << 31)


def _array(terms: Collection[str]) -> str:
    return f"{{{','.join(map(str, set(map(_code, terms))))}}}"


def _words(terms: str) -> str:
    """Return the array of a passage, with the characters that each term of dense script begins with."""
    found = terms.split()
    return _array(found if terms.isascii() else [*found, *(term[0] for term in found if is_dense(term))])
