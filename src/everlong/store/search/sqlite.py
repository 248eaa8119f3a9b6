"""The search index in SQLite: three FTS5 tables without content, of passages, of whole texts, and of trigrams.

`search_passages` answers ranked queries; a row's number is its document's with the passage's number in the low bits.
`search_words` says which texts have a word. The terms of both come prepared, so their tokenizer splits at spaces.
`search_grams` says which texts may contain a run of characters. None keeps positions, so the caller checks; signs of
neighbouring words take their place. `search_times` says for each 1,024 numbers when the messages were said.
`search_tags` has the tags of texts that have several: of an answer, they come from the message before it.
FTS5 removes from such a table only if told exactly what was put in, and clears old pages when it merges all segments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search import purging
from everlong.store.search.index import (
    BLOCK_BITS,
    MAX_NUMBER,
    IndexLookup,
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
)
from everlong.store.search.latest import TimeBlock, latest_places
from everlong.store.search.scoring import rank_passages
from everlong.store.search.sqlite_passages import SQLitePassages, quoted, tagged
from everlong.store.search.text import INDEX_VERSION, PASSAGE_BITS, IndexText

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents INTEGER NOT NULL, "
    "summaries INTEGER NOT NULL, passages INTEGER NOT NULL, terms INTEGER NOT NULL)",
    "CREATE TABLE search_times (block INTEGER PRIMARY KEY, first REAL NOT NULL, last REAL NOT NULL)",
    "CREATE TABLE search_tags (seq INTEGER PRIMARY KEY, tags TEXT NOT NULL)",
    "CREATE VIRTUAL TABLE search_passages USING fts5(terms, content='', detail=none, tokenize='ascii')",
    "CREATE VIRTUAL TABLE search_words USING fts5(terms, signs, content='', columnsize=0, detail=none, "
    "tokenize='ascii')",
    "CREATE VIRTUAL TABLE search_grams USING fts5(characters, content='', columnsize=0, detail=none, "
    "tokenize='trigram case_sensitive 1')",
    "CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab('search_passages', 'row')",
    "CREATE VIRTUAL TABLE search_gram_vocabulary USING fts5vocab('search_grams', 'row')",
)
_NAMES = (
    "search_gram_vocabulary",
    "search_vocabulary",
    "search_grams",
    "search_words",
    "search_passages",
    "search_times",
    "search_tags",
    "search_state",
)


class SQLiteIndex:
    """See `everlong.store.search.index.Index`."""

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if not connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'search_state'").first():
            return None
        return _integer(connection, "SELECT version FROM search_state")

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        for name in _NAMES:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
        for table in _TABLES:
            connection.exec_driver_sql(table)
        connection.exec_driver_sql("INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; a writing transaction is alone, so what is deleted is ours."""
        del wait
        taken: set[int] = set()
        for part in in_batches(seqs):
            marks = ",".join("?" * len(part))
            gone = connection.exec_driver_sql(f"DELETE FROM pending WHERE seq IN ({marks}) RETURNING seq", tuple(part))  # noqa: S608
            taken.update(row[0] for row in gone)
        return taken

    def add(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Index documents that are not in it."""
        if not documents:
            return
        passages, words, grams = _rows(documents)
        connection.exec_driver_sql("INSERT INTO search_passages (rowid, terms) VALUES (?, ?)", passages)
        connection.exec_driver_sql("INSERT INTO search_words (rowid, terms, signs) VALUES (?, ?, ?)", words)
        connection.exec_driver_sql("INSERT INTO search_grams (rowid, characters) VALUES (?, ?)", grams)
        tagged = [(seq, text.tags) for seq, text in documents if " " in text.tags]
        if tagged:
            connection.exec_driver_sql("INSERT OR REPLACE INTO search_tags (seq, tags) VALUES (?, ?)", tagged)
        for part in in_batches([seq for seq, _ in documents if seq > 0]):
            marks = ",".join("?" * len(part))
            connection.exec_driver_sql(
                f"INSERT INTO search_times SELECT seq >> {BLOCK_BITS}, min(ts), max(ts) FROM node "  # noqa: S608 - only marks
                f"WHERE seq IN ({marks}) GROUP BY 1 ON CONFLICT (block) DO UPDATE "
                "SET first = min(first, excluded.first), last = max(last, excluded.last)",
                tuple(part),
            )
        self._count(connection, documents, 1)

    def remove(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Take documents out, given exactly what was indexed of them; one that is not in it is passed over."""
        held: set[int] = set()
        for part in in_batches([seq << PASSAGE_BITS for seq, _ in documents]):
            statement = f"SELECT id FROM search_passages_docsize WHERE id IN ({','.join('?' * len(part))})"  # noqa: S608
            held.update(row[0] >> PASSAGE_BITS for row in connection.exec_driver_sql(statement, tuple(part)))
        documents = [(seq, text) for seq, text in documents if seq in held]
        if not documents:  # to take out what is not there damages the index
            return
        documents = [(seq, text._replace(tags=tags)) for (seq, text), tags in self._tagged(connection, documents)]
        passages, words, grams = _rows(documents)
        connection.exec_driver_sql(
            "INSERT INTO search_passages (search_passages, rowid, terms) VALUES ('delete', ?, ?)", passages
        )
        connection.exec_driver_sql(
            "INSERT INTO search_words (search_words, rowid, terms, signs) VALUES ('delete', ?, ?, ?)", words
        )
        connection.exec_driver_sql(
            "INSERT INTO search_grams (search_grams, rowid, characters) VALUES ('delete', ?, ?)", grams
        )
        self._count(connection, documents, -1)
        purging.list_tables(connection)

    def _tagged(
        self, connection: Connection, documents: Sequence[tuple[int, IndexText]]
    ) -> Iterator[tuple[tuple[int, IndexText], str]]:
        """Yield documents with the tags that they were indexed with, and take off the list of tags."""
        kept: dict[int, str] = {}
        for part in in_batches([seq for seq, _ in documents]):
            statement = f"DELETE FROM search_tags WHERE seq IN ({','.join('?' * len(part))}) RETURNING seq, tags"  # noqa: S608
            kept.update((row[0], row[1]) for row in connection.exec_driver_sql(statement, tuple(part)))
        for seq, text in documents:
            yield (seq, text), kept.get(seq, text.tags.partition(" ")[0])

    def has_traces(self, connection: Connection) -> bool:
        """Return whether removed terms may still stand in the tables' pages."""
        return purging.is_due(connection)

    def purge(self, connection: Connection, pages: int) -> None:
        """Merge about so many pages, which leaves removed terms out."""
        purging.purge_some(connection, pages)

    def _count(self, connection: Connection, documents: Sequence[tuple[int, IndexText]], sign: int) -> None:
        connection.exec_driver_sql(
            "UPDATE search_state SET documents = documents + ?, summaries = summaries + ?, passages = passages + ?, "
            "terms = terms + ?",
            tuple(sign * number for number in size_of(documents)),
        )

    def size(self, connection: Connection) -> IndexSize:
        """Return the size of the index."""
        row = connection.exec_driver_sql("SELECT documents, summaries, passages, terms FROM search_state").one()
        return IndexSize(*row)

    def numbers_between(self, connection: Connection, since: float | None, before: float | None) -> tuple[int, int]:
        """Return numbers between which all indexed messages of a time are; there may be others between them."""
        row = connection.exec_driver_sql(
            "SELECT min(block), max(block) FROM search_times WHERE last >= ? AND first < ?",
            (-math.inf if since is None else since, math.inf if before is None else before),
        ).one()
        return (1, 0) if row[0] is None else (row[0] << BLOCK_BITS, ((row[1] + 1) << BLOCK_BITS) - 1)

    def frequencies(self, connection: Connection, terms: Sequence[str]) -> dict[str, int]:
        """Return how many passages hold each of some terms, counted as far as it matters."""
        spread = SQLitePassages(connection, SearchScope("")).spread(terms)
        return {term: one.holding for term, one in spread.items()}

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents whose best passage answers best, by BM25; of too many, only the most promising."""

        def find_newest() -> list[int]:
            return [place.seq for place in self.matching(connection, asked, scope, None, limit, by_time=False)]

        return rank_passages(SQLitePassages(connection, scope), self.size(connection), asked, scope, limit, find_newest)

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
        expression = _any_of(asked)
        return (
            self._newest(connection, "search_words", [expression], scope, after, limit, by_time) if expression else []
        )

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
        expressions = {"search_words": " AND ".join(map(quoted, wanted.words)), "search_grams": ""}
        looked_up = lookups(wanted.needles)
        if after is None and not wanted.words and all(lookup.kind == "short" for lookup in looked_up):
            # Such a run is mostly frequent, and then the newest texts have it; if not, its trigrams are quickly listed.
            return self._newest(connection, "", [], scope, after, limit, by_time)
        for lookup in looked_up:
            table, expression = self._expression(connection, lookup)
            if not expression:
                return []
            joined = expressions[table]
            expressions[table] = f"{joined} AND {expression}" if joined else expression
        tables = [table for table, expression in expressions.items() if expression]
        if not tables and scope.tags():
            tables = ["search_words"]
        if not tables:
            return self._newest(connection, "", [], scope, after, limit, by_time)
        first, *others = tables
        return self._newest(
            connection, first, [expressions[table] for table in (first, *others)], scope, after, limit, by_time
        )

    def _expression(self, connection: Connection, lookup: IndexLookup) -> tuple[str, str]:
        if lookup.kind == "pair":
            return "search_words", quoted(lookup.text)
        if lookup.kind == "start":
            return "search_words", f"{quoted(lookup.text)} *"
        if lookup.kind == "gram":
            return "search_grams", quoted(lookup.text)
        # One or two characters: whatever trigrams begin with them.
        begun = connection.exec_driver_sql(
            "SELECT term FROM search_gram_vocabulary WHERE term >= ? AND term < ?",
            (lookup.text, lookup.text + "\U0010ffff"),
        )
        grams = [quoted(row[0]) for row in begun]
        return "search_grams", f"({' OR '.join(grams)})" if grams else ""

    def _newest(
        self,
        connection: Connection,
        table: str,
        expressions: list[str],
        scope: SearchScope,
        after: SearchPlace | None,
        limit: int,
        by_time: bool,
    ) -> list[SearchPlace]:
        """Return the rows of one table that match, with two expressions also in the other one; all rows without any."""
        if table == "search_words":
            expressions = [tagged(expressions[0], scope), *expressions[1:]]
        found: list[SearchPlace] = []
        for is_message in (True, False):
            if not (scope.has_messages if is_message else scope.has_summaries):
                continue
            where, scoped = scope_of_messages(scope) if is_message else scope_of_summaries(scope)
            seq, ts = ("n.seq", "n.ts") if is_message else ("-i.seq", "v.ts")
            rows = "node n" if is_message else "view_item i JOIN view v ON v.id = i.view"
            values: list[Any] = []
            if table:
                key = "n.seq = w.rowid" if is_message else "i.seq = -w.rowid"
                tail = "" if is_message else " JOIN view v ON v.id = i.view"
                rows = f"{table} w CROSS JOIN {'node n' if is_message else 'view_item i'} ON {key}{tail}"
                where = f"w.{table} MATCH ? AND {where}"
                seq = "w.rowid"
                values.append(expressions[0])
            values += scoped
            if len(expressions) > 1:
                where += f" AND +{seq} IN (SELECT rowid FROM search_grams WHERE search_grams MATCH ?)"  # noqa: S608
                values.append(expressions[1])
            if after is not None:
                where += f" AND ({ts}, {seq}) < (?, ?)" if by_time else f" AND {seq} < ?"
                values += (after.ts, after.seq) if by_time else (after.seq,)
            order = f"{ts} DESC, {seq} DESC" if by_time else f"{seq} DESC"
            statement = (
                f"SELECT {ts}, {seq} FROM {rows} WHERE {where} AND {seq} BETWEEN ? AND ? ORDER BY {order} LIMIT ?"  # noqa: S608
            )
            low, high = (scope.bounds or (1, MAX_NUMBER)) if is_message else (-MAX_NUMBER, -1)
            between = partial(_places_between, connection, statement, values, limit)
            if by_time and is_message:
                blocks = _time_blocks(connection, low, high, after)
                found += latest_places(blocks, between, limit, low, high)
            else:
                found += between(low, high)
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[:limit]


def _places_between(
    connection: Connection, statement: str, values: Sequence[Any], limit: int, low: int, high: int
) -> list[SearchPlace]:
    return [SearchPlace(*row) for row in connection.exec_driver_sql(statement, (*values, low, high, limit))]


def _time_blocks(connection: Connection, low: int, high: int, after: SearchPlace | None) -> list[TimeBlock]:
    """Return the blocks of messages between two numbers that can be after a place, the latest first."""
    rows = connection.exec_driver_sql(
        "SELECT block, last FROM search_times WHERE block BETWEEN ? AND ? AND first <= ? ORDER BY last DESC",
        (low >> BLOCK_BITS, high >> BLOCK_BITS, math.inf if after is None else after.ts),
    )
    return [TimeBlock(*row) for row in rows]


def _any_of(asked: SearchTerms) -> str:
    return " OR ".join([*map(quoted, asked.terms), *(f"{quoted(start)} *" for start in asked.starts)])


def _rows(
    documents: Sequence[tuple[int, IndexText]],
) -> tuple[list[tuple[int, str]], list[tuple[int, str, str]], list[tuple[int, str]]]:
    """Return the rows of documents in the three tables."""
    passages = [
        ((seq << PASSAGE_BITS) + number, f"{terms} {text.tags}")
        for seq, text in documents
        for number, terms in enumerate(text.passages)
    ]
    words = [(seq, text.terms, " ".join([*text.signs, text.between, text.tags])) for seq, text in documents]
    return passages, words, [(seq, text.characters) for seq, text in documents]


def _integer(connection: Connection, statement: str) -> int | None:
    row = connection.exec_driver_sql(statement).first()
    return None if row is None else int(row[0])
