"""The search index in PostgreSQL: rows of documents and of passages, with terms as `tsvector` and trigrams as numbers.

Needs no extension and keeps no text. PostgreSQL counts no document frequencies for ranking, so a first score is made
here from the same figures that BM25 uses; the order of a page comes from the texts themselves, as with SQLite.
Rows that are deleted leave the index's pages with the server's own vacuum.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from sqlalchemy import Connection, CursorResult

from everlong.store.search.index import (
    NAMED,
    PERSON,
    FoundPassage,
    IndexSize,
    RankedDocuments,
    RequiredContents,
    SearchPlace,
    SearchScope,
    SearchTerms,
    lookups,
    scope_of_messages,
    scope_of_summaries,
    size_of,
    with_named,
)
from everlong.store.search.text import INDEX_VERSION, IndexText

MANY = 20_000
SCORED_ROWS = 20_000
PAIRED = 6
"""The limits as for SQLite: words counted, rows scored, frequent words of which two must meet."""

MAX_BYTES = 900_000
"""A `tsvector` holds a megabyte; of texts with more different words, the rest is looked for in the text itself."""

_MAX_PLACES = 20
_LAST_PLACE = 16_383
_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents BIGINT NOT NULL, summaries BIGINT NOT NULL, "
    "passages BIGINT NOT NULL, terms BIGINT NOT NULL)",
    "CREATE TABLE search_passage (seq BIGINT NOT NULL, number INTEGER NOT NULL, length INTEGER NOT NULL, "
    "words TSVECTOR NOT NULL, PRIMARY KEY (seq, number))",
    "CREATE INDEX ix_search_passages ON search_passage USING gin (words)",
    "CREATE TABLE search_document (seq BIGINT PRIMARY KEY, length INTEGER NOT NULL, words TSVECTOR NOT NULL, "
    "grams INTEGER[] NOT NULL, is_cut BOOLEAN NOT NULL)",
    "CREATE INDEX ix_search_words ON search_document USING gin (words)",
    "CREATE INDEX ix_search_grams ON search_document USING gin (grams)",
    "CREATE INDEX ix_search_cut ON search_document (seq) WHERE is_cut",
)


class PostgresIndex:
    """See `everlong.store.search.index.Index`."""

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if _run(connection, "SELECT to_regclass('search_state')").scalar() is None:
            return None
        row = _run(connection, "SELECT version FROM search_state").first()
        return None if row is None else int(row[0])

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        _run(connection, "DROP TABLE IF EXISTS search_passage, search_document, search_state")
        for table in _TABLES:
            _run(connection, table)
        _run(connection, "INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; without ``wait``, those that others are working on stay theirs."""
        lock = "FOR UPDATE" if wait else "FOR UPDATE SKIP LOCKED"
        gone = _run(
            connection,
            f"DELETE FROM pending WHERE seq IN (SELECT seq FROM pending WHERE seq = ANY(?) ORDER BY seq {lock}) "  # noqa: S608 - a constant
            "RETURNING seq",
            (list(seqs),),
        )
        return {row[0] for row in gone}

    def add(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Index documents that are not in it."""
        if not documents:
            return
        connection.exec_driver_sql(
            "INSERT INTO search_document (seq, length, words, grams, is_cut) "
            "VALUES (%s, %s, %s::tsvector, %s::integer[], %s) ON CONFLICT (seq) DO NOTHING",
            [(seq, *_row(text)) for seq, text in documents],
        )
        passages = [
            (seq, number, terms.count(" ") + 1, _vector(terms.split())[0])
            for seq, text in documents
            for number, terms in enumerate(text.passages)
        ]
        connection.exec_driver_sql(
            "INSERT INTO search_passage (seq, number, length, words) VALUES (%s, %s, %s, %s::tsvector) "
            "ON CONFLICT (seq, number) DO NOTHING",
            passages,
        )
        self._count(connection, documents, 1)

    def remove(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Take documents out."""
        if not documents:
            return
        seqs = [seq for seq, _ in documents]
        gone = {
            row[0] for row in _run(connection, "DELETE FROM search_document WHERE seq = ANY(?) RETURNING seq", (seqs,))
        }
        _run(connection, "DELETE FROM search_passage WHERE seq = ANY(?)", (seqs,))
        self._count(connection, [(seq, text) for seq, text in documents if seq in gone], -1)

    def has_traces(self, connection: Connection) -> bool:
        """Return False: the server's vacuum clears the pages."""
        del connection
        return False

    def purge(self, connection: Connection, pages: int) -> None:
        """Do nothing, for the same reason."""

    def _count(self, connection: Connection, documents: Sequence[tuple[int, IndexText]], sign: int) -> None:
        _run(
            connection,
            "UPDATE search_state SET documents = documents + ?, summaries = summaries + ?, passages = passages + ?, "
            "terms = terms + ?",
            tuple(sign * number for number in size_of(documents)),
        )

    def size(self, connection: Connection) -> IndexSize:
        """Return the size of the index."""
        return IndexSize(*_run(connection, "SELECT documents, summaries, passages, terms FROM search_state").one())

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents whose best passage answers best: by the weights of its words, less if it is long."""
        size = self.size(connection)
        if asked.rows and set(asked.terms) == {term for row in asked.rows for term in row}:
            exact = self._score(connection, " | ".join(map(_in_a_row, asked.rows)), {}, size, scope, limit)
            if exact:
                return RankedDocuments(exact, False, {})
        frequencies = self._frequencies(connection, asked.terms)
        expression, is_all = _promising(asked, frequencies)
        weights = {
            term: math.log(1 + (size.passages - min(count, size.passages) + 0.5) / (count + 0.5))
            for term, count in frequencies.items()
        }
        found = self._score(connection, expression, weights, size, scope, limit) if expression else []
        is_all = is_all and len(found) < limit and not self._has_cut(connection)
        if asked.rows and not is_all:
            words = " | ".join(map(_quoted, frequencies))
            named = f"({' | '.join(map(_in_a_row, asked.rows))}) & ({words})"
            found = with_named(found, self._score(connection, named, weights, size, scope, NAMED) if words else [])
        if not found and not is_all:
            newest = self.matching(connection, asked, scope, None, limit, by_time=False)
            found = [FoundPassage(place.seq, 0, 0.0) for place in newest]
            is_all = len(found) < limit
        return RankedDocuments(found, is_all, frequencies)

    def _has_cut(self, connection: Connection) -> bool:
        return _run(connection, "SELECT 1 FROM search_document WHERE is_cut LIMIT 1").first() is not None

    def _frequencies(self, connection: Connection, terms: Sequence[str]) -> dict[str, int]:
        """Return in how many passages each term stands, counted as far as it matters; terms in none are left out."""
        statement = (
            "SELECT count(*) FROM (SELECT 1 FROM search_passage WHERE words @@ CAST(? AS tsquery) LIMIT ?) AS counted"
        )
        found: dict[str, int] = {}
        for term in terms:
            if count := _run(connection, statement, (_quoted(term), MANY)).scalar_one():
                found[term] = count
        return found

    def _score(
        self,
        connection: Connection,
        expression: str,
        weights: dict[str, float],
        size: IndexSize,
        scope: SearchScope,
        limit: int,
    ) -> list[FoundPassage]:
        parts = ["CASE WHEN w.words @@ CAST(? AS tsquery) THEN CAST(? AS float8) ELSE 0 END" for _ in weights]
        score = f"(0.01 + {' + '.join(parts) or '0'}) / (0.6 + 0.5 * w.length / CAST(? AS float8))"
        values: list[Any] = [value for term, weight in weights.items() for value in (_quoted(term), weight)]
        values.append(size.average_length)
        found: list[FoundPassage] = []
        for rows, (where, scoped) in _sources(scope):
            person = f" * CASE n.role WHEN 'user' THEN {PERSON} ELSE 1.0 END" if rows.startswith("node") else ""
            statement = (
                "SELECT seq, number, score FROM (SELECT DISTINCT ON (w.seq) w.seq AS seq, w.number AS number, "  # noqa: S608 - only constants
                f"{score}{person} AS score FROM search_passage w JOIN {rows} "
                f"WHERE w.words @@ CAST(? AS tsquery) AND {where} ORDER BY w.seq, score DESC, w.number) AS best "
                "ORDER BY score DESC, seq DESC LIMIT ?"
            )
            answer = _run(connection, statement, (*values, expression, *scoped, limit))
            found += [FoundPassage(*row) for row in answer]
        return sorted(found, key=lambda one: (-one.score, -one.seq))[:limit]

    def matching(
        self,
        connection: Connection,
        asked: SearchTerms,
        scope: SearchScope,
        after: SearchPlace | None,
        limit: int,
        *,
        by_time: bool,
    ) -> list[SearchPlace]:
        """Return documents with any of what is asked, newest first, after a place."""
        expression = " | ".join([*map(_quoted, asked.terms), *map(_begins, asked.starts)])
        if not expression:
            return []
        condition = "(w.words @@ CAST(? AS tsquery) OR w.is_cut)"
        return self._newest(connection, condition, [expression], scope, after, limit, by_time)

    def containing(
        self,
        connection: Connection,
        wanted: RequiredContents,
        scope: SearchScope,
        after: SearchPlace | None,
        limit: int,
        *,
        by_time: bool,
    ) -> list[SearchPlace]:
        """Return documents that may contain all that is wanted, newest first, after a place."""
        words = [_quoted(term) for terms, _ in wanted.near for term in terms]
        grams: list[int] = []
        for lookup in lookups(wanted.needles):
            if lookup.kind == "gram":
                grams.append(_hashed(lookup.text))
            elif lookup.kind == "pair":
                words.append(_quoted(lookup.text))
            elif lookup.kind == "start":
                words.append(_begins(lookup.text))
        conditions: list[str] = []
        values: list[Any] = []
        if words:
            conditions.append("w.words @@ CAST(? AS tsquery)")
            values.append(" & ".join(words))
        if grams:
            conditions.append("w.grams @> CAST(? AS integer[])")
            values.append(grams)
        condition = f"({' AND '.join(conditions)} OR w.is_cut)" if conditions else ""
        return self._newest(connection, condition, values, scope, after, limit, by_time)

    def _newest(
        self,
        connection: Connection,
        condition: str,
        values: list[Any],
        scope: SearchScope,
        after: SearchPlace | None,
        limit: int,
        by_time: bool,
    ) -> list[SearchPlace]:
        found: list[SearchPlace] = []
        for rows, (where, scoped) in _sources(scope):
            is_message = rows.startswith("node")
            ts = "n.ts" if is_message else "v.ts"
            seq = "n.seq" if is_message else "-i.seq"
            source = f"search_document w JOIN {rows}" if condition else rows.replace(_key(is_message), "")
            conditions = [condition, where] if condition else [where]
            given = [*values, *scoped]
            if after is not None:
                conditions.append(f"({ts}, {seq}) < (?, ?)" if by_time else f"{seq} < ?")
                given += (after.ts, after.seq) if by_time else (after.seq,)
            order = f"{ts} DESC, {seq} DESC" if by_time else f"{seq} DESC"
            statement = f"SELECT {ts}, {seq} FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ?"  # noqa: S608
            found += [SearchPlace(row[0], row[1]) for row in _run(connection, statement, (*given, limit))]
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[:limit]


def _key(is_message: bool) -> str:
    return " ON n.seq = w.seq" if is_message else " ON i.seq = -w.seq"


def _sources(scope: SearchScope) -> list[tuple[str, tuple[str, list[Any]]]]:
    """Return the tables that documents are joined with, each with the conditions of a scope."""
    sources = []
    if scope.has_messages:
        sources.append((f"node n{_key(is_message=True)}", scope_of_messages(scope)))
    if scope.has_summaries:
        rows = f"view_item i{_key(is_message=False)} JOIN view v ON v.id = i.view"
        sources.append((rows, scope_of_summaries(scope)))
    return sources


def _promising(asked: SearchTerms, frequencies: dict[str, int]) -> tuple[str, bool]:
    """Return the expression to score, and whether it finds all that is asked."""
    known = sorted(frequencies, key=lambda term: (frequencies[term], term))
    rare: list[str] = []
    room = SCORED_ROWS
    for term in known:
        if frequencies[term] > room:
            break
        room -= frequencies[term]
        rare.append(term)
    chosen = [*map(_in_a_row, asked.rows), *map(_begins, asked.starts), *map(_quoted, rare)]
    if chosen:
        return " | ".join(chosen), len(rare) == len(known)
    pairs = combinations(map(_quoted, known[:PAIRED]), 2)
    return " | ".join(f"({one} & {other})" for one, other in pairs), not known


def _row(text: IndexText) -> tuple[int, str, list[int], bool]:
    terms = text.terms.split()
    words, is_cut = _vector(terms)
    characters = text.characters
    grams = {_hashed(characters[at : at + 3]) for at in range(len(characters) - 2)}
    return len(terms), words, sorted(grams), is_cut


def _vector(terms: Sequence[str]) -> tuple[str, bool]:
    """Return terms as the text of a `tsvector`, and whether some had no room in it."""
    places: dict[str, list[int]] = {}
    for place, term in enumerate(terms, 1):
        places.setdefault(term, []).append(min(place, _LAST_PLACE))
    room = MAX_BYTES
    entries: list[str] = []
    for term, found in places.items():
        room -= len(term.encode()) + 4 + 2 * min(len(found), _MAX_PLACES)
        if room < 0:
            return " ".join(entries), True
        entries.append(f"{_quoted(term)}:{','.join(map(str, found[:_MAX_PLACES]))}")
    return " ".join(entries), False


def _hashed(gram: str) -> int:
    return zlib.crc32(gram.encode("utf-8", "surrogatepass")) & 0x7FFF_FFFF


def _quoted(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


def _begins(term: str) -> str:
    return f"{_quoted(term)}:*"


def _in_a_row(terms: Sequence[str]) -> str:
    return "(" + " <-> ".join(map(_quoted, terms)) + ")"


def _run(connection: Connection, statement: str, values: Sequence[Any] = ()) -> CursorResult[*tuple[Any, ...]]:
    return connection.exec_driver_sql(statement.replace("?", "%s"), tuple(values))
