"""The search index in SQLite: three FTS5 tables without content, of passages, of whole texts, and of trigrams.

`search_passages` answers ranked queries; a row's number is its document's with the passage's number in the low bits.
`search_words` says which texts have a word. The terms of both come prepared, so their tokenizer splits at spaces.
`search_grams` says which texts may contain a run of characters; it keeps no positions, so the caller checks.
FTS5 removes from such a table only if told exactly what was put in, and clears old pages when it merges all segments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search import purging
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

COUNTED = 4_000
"""Passages with a word that are counted; for a more frequent word, the newest ones tell about how many there are."""

MANY = 20_000
"""Passages from which on a word is frequent; of a more frequent one, only so many newest passages are read."""

PAIRED = 6
"""The rarest words of an all-frequent query, of which a text must have two to be scored."""

MEASURED = 150
"""The best passages whose lengths are looked up for their first score; the others count as average."""

PAIR_ROWS = 600
"""The newest passages with two frequent words that are scored."""

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
_NUMBER = (1 << PASSAGE_BITS) - 1
_UNITED = 100
_STATE = (
    "SELECT documents, summaries, passages, terms, (SELECT max(id) FROM search_passages_docsize), "
    "(SELECT min(id) FROM search_passages_docsize) FROM search_state"
)
"""The size of the index, and the ends of the passages' numbers."""
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
        purging.list_tables(connection)

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

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents whose best passage answers best, by BM25; of too many, only the most promising."""
        *numbers, last, first = connection.exec_driver_sql(_STATE).one()
        size = IndexSize(*numbers)
        rows = [_in_a_row(row) for row in asked.rows]
        if rows and set(asked.terms) == {term for row in asked.rows for term in row}:
            # A path or an identifier and nothing else: first where it stands as it is, its parts elsewhere later.
            exact = _Scores(size)
            exact.add(_passages_with(connection, rows, scope, SCORED_ROWS))
            if exact.passages:
                return RankedDocuments(exact.best(connection, limit), False, {})
        spread = _spread(connection, asked.terms, last or 0, first or 0)
        frequencies = {term: one.holding for term, one in spread.items()}
        rare, is_all = _rare(frequencies)
        names = [_in_a_row(row) for row in asked.rows if all(term in spread for term in row)]
        starts = [f"{_quoted(start)} *" for start in asked.starts]
        scores = _Scores(size)
        if chosen := [*names, *starts, *map(_quoted, rare)]:
            lists = _passages_with(connection, chosen, scope, SCORED_ROWS)
            scores.add(lists)
            # Passages beyond the limit are found later, newest first.
            is_all = is_all and all(one.size < SCORED_ROWS for one in lists[: len(names) + len(starts)])
        elif len(frequencies) > 1:
            _add_pairs(connection, scores, spread, scope)
        found = scores.best(connection, limit)
        is_all = is_all and len(found) < limit
        if names and not is_all:
            found = with_named(found, scores.best(connection, NAMED, lists[: len(names)]))
        if not found and not is_all:  # the promise was empty: no two frequent words meet
            newest = self.matching(connection, asked, scope, None, limit, by_time=False)
            found = [FoundPassage(place.seq, 0, 0.0) for place in newest]
            is_all = len(found) < limit
        return RankedDocuments(found, is_all, frequencies)

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


class _Spread(NamedTuple):
    """The number of passages with a term, the newest passage of all, and the oldest one that was counted."""

    holding: int
    last: int
    first: int


def _spread(connection: Connection, terms: Sequence[str], last: int, first: int) -> dict[str, _Spread]:
    """Return in how many passages each term stands, counted as far as it matters; terms in none are left out."""
    newest = "SELECT rowid FROM search_passages WHERE search_passages MATCH ? ORDER BY rowid DESC LIMIT ?"
    counted = f"SELECT ?, count(*), min(rowid) FROM ({newest})"  # noqa: S608 - only constants
    values = [value for term in terms for value in (term, _quoted(term), COUNTED)]
    found: dict[str, _Spread] = {}
    for term, count, oldest in _union(connection, counted, len(terms), values):
        if count == COUNTED and oldest > 0:
            share = (last - oldest + 1) / (last - max(first, 0) + 1)
            found[term] = _Spread(min(MANY, max(count, int(count / share))), last, oldest)
        elif count:
            found[term] = _Spread(count, last, first)
    return found


class _Passages(NamedTuple):
    """Passages with something that is asked for: those of persons, and the others."""

    persons: list[int]
    others: list[int]

    def all(self) -> chain[int]:
        """Return all of them."""
        return chain(self.persons, self.others)

    @property
    def size(self) -> int:
        """The number of passages."""
        return len(self.persons) + len(self.others)


class _Scores:
    """First scores of passages: BM25 as if each word stood in a passage once."""

    def __init__(self, size: IndexSize) -> None:
        self._size = size
        self.passages: dict[int, float] = {}
        """The passages of persons have their weight already."""
        self._others: set[int] = set()
        """Those that no person said."""

    def add(self, lists: Sequence[_Passages], counts: Sequence[int] | None = None) -> None:
        """Add the passages with some words, each with the number of passages that there are of it."""
        scores = self.passages
        for place, found in enumerate(lists):
            holding = counts[place] if counts else found.size
            idf = math.log(1 + (max(0, self._size.passages - holding) + 0.5) / (holding + 0.5))
            self._others.update(found.others)
            for passage in found.others:
                scores[passage] = scores.get(passage, 0.0) + idf
            for passage in found.persons:
                scores[passage] = scores.get(passage, 0.0) + PERSON * idf

    def best(self, connection: Connection, limit: int, among: Sequence[_Passages] | None = None) -> list[FoundPassage]:
        """Return the best passage of each document, best first; of the first ones, short ones count more."""
        scores = dict(self.passages)
        if among is not None:
            scores = {passage: scores[passage] for found in among for passage in found.all()}
        first = _sorted(scores)
        average = self._size.average_length
        for passage, length in _lengths(connection, first[:MEASURED]):
            scores[passage] *= 2.2 / (1.3 + 0.9 * length / average)
        found: dict[int, FoundPassage] = {}
        for passage in self._mixed(_sorted(scores)):
            if (seq := passage >> PASSAGE_BITS) not in found:
                found[seq] = FoundPassage(seq, passage & _NUMBER, scores[passage])
                if len(found) == limit:
                    break
        return list(found.values())

    def _mixed(self, order: list[int]) -> Iterator[int]:
        """Yield passages in their order, with the best that no person said in every fourth place; some come twice.

        The weight of persons is a guess until the texts are read: in the work of an agent, a tool may have the answer.
        """
        others = [passage for passage in order if passage in self._others]
        yield from chain.from_iterable(zip(order[::3], order[1::3], order[2::3], others, strict=False))
        yield from order


def _sorted(scores: dict[int, float]) -> list[int]:
    """Return passages, best first; of equals, the newest."""
    return sorted(sorted(scores, reverse=True), key=scores.__getitem__, reverse=True)


def _lengths(connection: Connection, passages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the number of terms of passages, as FTS5 keeps it: seven bits in a byte, the highest first."""
    for part in in_batches(passages):
        marks = ",".join("?" * len(part))
        statement = f"SELECT id, sz FROM search_passages_docsize WHERE id IN ({marks})"  # noqa: S608 - only marks
        for passage, size in connection.exec_driver_sql(statement, tuple(part)).fetchall():
            length = 0
            for byte in size:
                length = length << 7 | byte & 0x7F
            yield passage, length


def _rare(frequencies: dict[str, int]) -> tuple[list[str], bool]:
    """Return the rarest terms, as many as may be scored, and whether these are all."""
    rare: list[str] = []
    room = SCORED_ROWS
    for term in _by_rarity(frequencies):
        if frequencies[term] > room:
            return rare, False
        room -= frequencies[term]
        rare.append(term)
    return rare, True


def _by_rarity(frequencies: dict[str, int]) -> list[str]:
    return sorted(frequencies, key=lambda term: (frequencies[term], term))


def _add_pairs(connection: Connection, scores: _Scores, spread: dict[str, _Spread], scope: SearchScope) -> None:
    """Score the newest passages with the rarest of some frequent words and another one; of few, with any two."""
    frequencies = {term: one.holding for term, one in spread.items()}
    rarest, *others = _by_rarity(frequencies)[:PAIRED]
    since = None
    if frequencies[rarest] >= MANY and scope.is_everything:
        last, first = spread[rarest].last, spread[rarest].first
        since = last - (last - first) * (MANY // COUNTED)
    pairs = [f"{_quoted(rarest)} AND {_quoted(other)}" for other in others]
    lists = _passages_with(connection, pairs, scope, PAIR_ROWS, since)
    counts = [frequencies[other] for other in others]
    both = _Passages(
        list({passage for found in lists for passage in found.persons}),
        list({passage for found in lists for passage in found.others}),
    )
    if len({passage >> PASSAGE_BITS for passage in both.all()}) < ENOUGH and len(others) > 1:
        more = list(combinations(others, 2))
        expressions = [f"{_quoted(one)} AND {_quoted(other)}" for one, other in more]
        found = _passages_with(connection, expressions, scope, PAIR_ROWS, since)
        for (one, other), passages in zip(more, found, strict=True):
            scores.add([passages, passages], [frequencies[one], frequencies[other]])
    scores.add([*lists, both], [*counts, frequencies[rarest]])


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


def _passages_with(
    connection: Connection, expressions: Sequence[str], scope: SearchScope, limit: int, since: int | None = None
) -> list[_Passages]:
    """Return for each expression the newest passages that match, among those of a scope."""
    found = [_Passages([], []) for _ in expressions]
    bound = "" if since is None else f" AND w.rowid > {since:d}"
    sources = []
    if scope.has_messages:
        where, values = scope_of_messages(scope)
        rows = f"node n ON n.seq = {_DOCUMENT} WHERE w.rowid > 0 AND {where}"
        sources.append(("CASE n.role WHEN 'user' THEN 1 ELSE 0 END", rows, values))
    if scope.has_summaries:
        where, values = scope_of_summaries(scope)
        rows = f"view_item i ON i.seq = -({_DOCUMENT}) JOIN view v ON v.id = i.view"
        sources.append(("0", f"{rows} WHERE w.rowid < 0 AND {where}", values))
    for is_person, source, values in sources:
        # All numbers as one text: a row for each takes longer than to find them.
        statement = (
            "SELECT ?, group_concat(passage) FILTER (WHERE is_person), group_concat(passage) FILTER "  # noqa: S608
            f"(WHERE NOT is_person) FROM (SELECT w.rowid AS passage, {is_person} AS is_person "
            f"FROM search_passages w CROSS JOIN {source} "
            f"AND w.search_passages MATCH ?{bound} ORDER BY w.rowid DESC LIMIT ?)"
        )
        given = [value for place, expression in enumerate(expressions) for value in (place, *values, expression, limit)]
        for place, persons, others in _union(connection, statement, len(expressions), given):
            found[place].persons.extend(map(int, persons.split(",")) if persons else ())
            found[place].others.extend(map(int, others.split(",")) if others else ())
    return found


def _union(connection: Connection, statement: str, times: int, values: Sequence[Any]) -> list[Any]:
    """Return the rows of a statement with several sets of values, in one go: each by itself would cost more."""
    rows: list[Any] = []
    step = max(1, len(values) // max(1, times))
    for start in range(0, times, _UNITED):
        part = values[start * step : (start + _UNITED) * step]
        united = " UNION ALL ".join([statement] * (len(part) // step))
        rows += connection.exec_driver_sql(united, tuple(part)).fetchall()
    return rows


def _integer(connection: Connection, statement: str) -> int | None:
    row = connection.exec_driver_sql(statement).first()
    return None if row is None else int(row[0])
