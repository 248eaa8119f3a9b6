"""The search index in PostgreSQL: a row for each passage, its terms as an array of numbers.

Arrays of numbers take a third of a `tsvector`. Rows that are deleted leave the index's pages with the server's own
vacuum.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import ask
from everlong.store.search.index import Index, Rows, is_start
from everlong.store.search.text import is_dense


class PostgresIndex(Index):
    """See `everlong.store.search.index.Index`."""

    table = "search_passage"
    key = "passage"
    creations = (
        "CREATE TABLE search_passage (passage BIGINT PRIMARY KEY, words INTEGER[] NOT NULL)",
        "ALTER TABLE search_passage ALTER words SET STATISTICS 300",
        # Kilobytes of new entries that the server collects before it sorts them in; their pages stay in the file.
        "CREATE INDEX ix_search_passage_words ON search_passage USING gin (words) WITH (gin_pending_list_limit = 1024)",
    )

    def match(self, terms: Collection[str]) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any of some terms, and its values."""
        # Not as a parameter, because the plan depends on the numbers.
        return f"p.words && '{_array(terms)}'::integer[]", []

    def add(self, connection: Connection, rows: Rows) -> None:
        """Add passages that are not in it."""
        ask(
            connection,
            "INSERT INTO search_passage SELECT passage, CAST(words AS integer[]) "
            "FROM unnest(CAST(? AS bigint[]), CAST(? AS text[])) AS new(passage, words) ON CONFLICT DO NOTHING",
            ([key for key, _ in rows], [_words(terms) for _, terms in rows]),
        )

    def remove(self, connection: Connection, documents: Iterable[Rows]) -> None:
        """Take documents out."""
        keys = [key for rows in documents for key, _ in rows]
        ask(connection, "DELETE FROM search_passage WHERE passage = ANY(?)", (keys,))


@lru_cache(maxsize=100_000)
def _code(term: str) -> str:
    """Return the number of a term; two terms seldom have the same."""
    text = f"{term}*" if is_start(term) else term
    return str(zlib.crc32(text.encode("utf-8", "surrogatepass")) - (1 << 31))


def _array(terms: Collection[str]) -> str:
    return f"{{{','.join(set(map(_code, terms)))}}}"


def _words(terms: str) -> str:
    """Return the array of a passage, with the characters that each term of dense script begins with."""
    found = terms.split()
    return _array(found if terms.isascii() else [*found, *(term[0] for term in found if is_dense(term))])
