"""The search index in SQLite: three FTS5 tables without content, of passages, of whole texts, and of trigrams.

`search_passages` answers ranked queries; a row's number is its document's with the passage's number in the low bits.
`search_words` says which texts have a word. The terms of both come prepared, so their tokenizer splits at spaces.
`search_grams` says which texts may contain a run of characters; it keeps no positions, so the caller checks.
FTS5 removes from such a table only if told exactly what was put in, and clears old pages when it merges all segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search.index import (
    NAMED,
    PERSON,
    FoundPassage,
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
    with_named,
)
from everlong.store.search.text import INDEX_VERSION, PASSAGE_BITS, IndexText

SCORED_ROWS = 2_000
"""Rows that one query may score; with more, rare words decide and frequent ones only refine."""

ENOUGH = 10
"""Documents with the rarest word of an all-frequent query and another one; of fewer, any two words will do."""

MANY = 20_000
"""Words are counted up to here; what stands in more texts is frequent, however frequent."""

PAIRED = 6
"""The rarest words of an all-frequent query, of which a text must have two to be scored."""

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents INTEGER NOT NULL, "
    "summaries INTEGER NOT NULL, passages INTEGER NOT NULL, terms INTEGER NOT NULL)",
    "CREATE VIRTUAL TABLE search_passages USING fts5(terms, content='', tokenize='ascii')",
    "CREATE VIRTUAL TABLE search_words USING fts5(terms, content='', tokenize='ascii')",
    "CREATE VIRTUAL TABLE search_grams USING fts5(characters, content='', columnsize=0, detail=none, "
    "tokenize='trigram case_sensitive 1')",
    "CREATE VIRTUAL TABLE search_vocabulary USING fts5vocab('search_passages', 'row')",
    "CREATE VIRTUAL TABLE search_gram_vocabulary USING fts5vocab('search_grams', 'row')",
)
_DOCUMENT = f"w.rowid >> {PASSAGE_BITS}"
_NAMES = (
    "search_gram_vocabulary",
    "search_vocabulary",
    "search_grams",
    "search_words",
    "search_passages",
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
        connection.exec_driver_sql("INSERT INTO search_words (rowid, terms) VALUES (?, ?)", words)
        connection.exec_driver_sql("INSERT INTO search_grams (rowid, characters) VALUES (?, ?)", grams)
        self._count(connection, documents, 1)

    def remove(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Take documents out, given exactly what was indexed of them; one that is not in it is passed over."""
        held: set[int] = set()
        for part in in_batches([seq for seq, _ in documents]):
            marks = ",".join("?" * len(part))
            rows = connection.exec_driver_sql(f"SELECT rowid FROM search_words WHERE rowid IN ({marks})", tuple(part))  # noqa: S608
            held.update(row[0] for row in rows)
        documents = [(seq, text) for seq, text in documents if seq in held]
        if not documents:  # to take out what is not there damages the index
            return
        passages, words, grams = _rows(documents)
        connection.exec_driver_sql(
            "INSERT INTO search_passages (search_passages, rowid, terms) VALUES ('delete', ?, ?)", passages
        )
        connection.exec_driver_sql(
            "INSERT INTO search_words (search_words, rowid, terms) VALUES ('delete', ?, ?)", words
        )
        connection.exec_driver_sql(
            "INSERT INTO search_grams (search_grams, rowid, characters) VALUES ('delete', ?, ?)", grams
        )
        self._count(connection, documents, -1)

    def purge(self, connection: Connection) -> None:
        """Merge all segments into one, which leaves removed terms out."""
        connection.exec_driver_sql("INSERT INTO search_passages (search_passages) VALUES ('optimize')")
        connection.exec_driver_sql("INSERT INTO search_words (search_words) VALUES ('optimize')")
        connection.exec_driver_sql("INSERT INTO search_grams (search_grams) VALUES ('optimize')")

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

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents whose best passage answers best, by BM25; of too many, only the most promising."""
        if asked.rows and set(asked.terms) == {term for row in asked.rows for term in row}:
            # A path or an identifier and nothing else: first where it stands as it is, its parts elsewhere later.
            exact = self._score(connection, " OR ".join(map(_in_a_row, asked.rows)), scope, limit)
            if exact:
                return RankedDocuments(exact, False, {})
        frequencies = self._frequencies(connection, asked.terms)
        expressions, is_all = _promising(asked, frequencies)
        found: list[FoundPassage] = []
        for expression in expressions:
            found = self._score(connection, expression, scope, limit)
            if len(found) >= ENOUGH:
                break
        is_all = is_all and len(found) < limit
        if asked.rows and not is_all:
            words = " OR ".join(map(_quoted, frequencies))
            named = f"({' OR '.join(map(_in_a_row, asked.rows))}) AND ({words})"
            found = with_named(found, self._score(connection, named, scope, NAMED) if words else [])
        if not found and not is_all:  # the promise was empty: no two frequent words meet
            newest = self.matching(connection, asked, scope, None, limit, by_time=False)
            found = [FoundPassage(place.seq, 0, 0.0) for place in newest]
            is_all = len(found) < limit
        return RankedDocuments(found, is_all, frequencies)

    def _frequencies(self, connection: Connection, terms: Sequence[str]) -> dict[str, int]:
        """Return in how many passages each term stands, counted as far as it matters; terms in none are left out."""
        statement = f"SELECT term, doc FROM search_vocabulary WHERE term IN ({','.join('?' * len(terms))})"  # noqa: S608
        counted = {row[0]: row[1] for row in connection.exec_driver_sql(statement, tuple(terms))}
        return {term: min(counted[term], MANY) for term in terms if term in counted}

    def _score(self, connection: Connection, expression: str, scope: SearchScope, limit: int) -> list[FoundPassage]:
        found: list[FoundPassage] = []
        if scope.has_messages:
            where, values = scope_of_messages(scope)
            found += _best_passages(
                connection,
                f"max(-w.rank * CASE n.role WHEN 'user' THEN {PERSON} ELSE 1.0 END)",
                f"node n ON n.seq = {_DOCUMENT} WHERE w.search_passages MATCH ? AND w.rowid > 0 AND {where}",
                (expression, *values, limit),
            )
        if scope.has_summaries:
            where, values = scope_of_summaries(scope)
            found += _best_passages(
                connection,
                "max(-w.rank)",
                f"view_item i ON i.seq = -({_DOCUMENT}) JOIN view v ON v.id = i.view "
                f"WHERE w.search_passages MATCH ? AND w.rowid < 0 AND {where}",
                (expression, *values, limit),
            )
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
        expressions = {"search_words": " AND ".join(_near(*near) for near in wanted.near), "search_grams": ""}
        for lookup in lookups(wanted.needles):
            table, expression = self._expression(connection, lookup)
            if not expression:
                return []
            joined = expressions[table]
            expressions[table] = f"{joined} AND {expression}" if joined else expression
        tables = [table for table, expression in expressions.items() if expression]
        if not tables:
            return self._newest(connection, "", [], scope, after, limit, by_time)
        first, *others = tables
        return self._newest(
            connection, first, [expressions[table] for table in (first, *others)], scope, after, limit, by_time
        )

    def _expression(self, connection: Connection, lookup: IndexLookup) -> tuple[str, str]:
        if lookup.kind == "pair":
            return "search_words", _quoted(lookup.text)
        if lookup.kind == "start":
            return "search_words", f"{_quoted(lookup.text)} *"
        if lookup.kind == "gram":
            return "search_grams", _quoted(lookup.text)
        # One or two characters: whatever trigrams begin with them.
        begun = connection.exec_driver_sql(
            "SELECT term FROM search_gram_vocabulary WHERE term >= ? AND term < ?",
            (lookup.text, lookup.text + "\U0010ffff"),
        )
        grams = [_quoted(row[0]) for row in begun]
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
                sign = ">" if is_message else "<"
                where = f"w.{table} MATCH ? AND w.rowid {sign} 0 AND {where}"
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
            found += [
                SearchPlace(row[1], row[0])
                for row in connection.exec_driver_sql(
                    f"SELECT {seq}, {ts} FROM {rows} WHERE {where} ORDER BY {order} LIMIT ?",  # noqa: S608
                    (*values, limit),
                )
            ]
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[:limit]


def _promising(asked: SearchTerms, frequencies: dict[str, int]) -> tuple[list[str], bool]:
    """Return expressions to score until one has found enough, and whether all that is asked is found."""
    rows = [_in_a_row(row) for row in asked.rows if all(term in frequencies for term in row)]
    starts = [f"{_quoted(start)} *" for start in asked.starts]
    known = sorted(frequencies, key=lambda term: (frequencies[term], term))
    rare: list[str] = []
    room = SCORED_ROWS
    for term in known:
        if frequencies[term] > room:
            break
        room -= frequencies[term]
        rare.append(term)
    chosen = [*rows, *starts, *map(_quoted, rare)]
    if chosen:
        return [" OR ".join(chosen)], len(rare) == len(known)
    frequent = [_quoted(term) for term in known[:PAIRED]]
    if len(frequent) < 2:
        return [], not frequent
    with_rarest = f"{frequent[0]} AND ({' OR '.join(frequent[1:])})"
    return [with_rarest, " OR ".join(f"({one} AND {other})" for one, other in combinations(frequent, 2))], False


def _any_of(asked: SearchTerms) -> str:
    return " OR ".join([*map(_quoted, asked.terms), *(f"{_quoted(start)} *" for start in asked.starts)])


def _in_a_row(terms: Sequence[str]) -> str:
    return " + ".join(map(_quoted, terms))


def _near(terms: Sequence[str], apart: int) -> str:
    return f"NEAR({' '.join(map(_quoted, terms))}, {apart})"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _rows(documents: Sequence[tuple[int, IndexText]]) -> tuple[list[tuple[int, str]], ...]:
    """Return the rows of documents in the three tables."""
    passages = [
        ((seq << PASSAGE_BITS) + number, terms) for seq, text in documents for number, terms in enumerate(text.passages)
    ]
    words = [(seq, text.terms) for seq, text in documents]
    return passages, words, [(seq, text.characters) for seq, text in documents]


def _best_passages(connection: Connection, score: str, source: str, values: Sequence[Any]) -> list[FoundPassage]:
    # Of the columns beside max(), SQLite takes those of the row with the maximum.
    statement = (
        f"SELECT {_DOCUMENT}, w.rowid & {(1 << PASSAGE_BITS) - 1}, {score} AS score "  # noqa: S608 - only constants
        f"FROM search_passages w CROSS JOIN {source} GROUP BY 1 ORDER BY score DESC LIMIT ?"
    )
    return [FoundPassage(*row) for row in connection.exec_driver_sql(statement, tuple(values))]


def _integer(connection: Connection, statement: str) -> int | None:
    row = connection.exec_driver_sql(statement).first()
    return None if row is None else int(row[0])
