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
from itertools import chain, combinations
from typing import Any, NamedTuple

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search.index import (
    BLOCK_BITS,
    MAX_NUMBER,
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

NAMED_ROWS = 300
"""The newest texts with a path or an identifier that are scored."""

PAIR_ROWS = 600
"""The newest passages with two frequent words that are scored."""

_FIRST_BLOCKS = 2
_MOST_RUNS = 32

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

    def numbers_between(self, connection: Connection, since: float | None, before: float | None) -> tuple[int, int]:
        """Return numbers between which all indexed messages of a time are; there may be others between them."""
        row = connection.exec_driver_sql(
            "SELECT min(block), max(block) FROM search_times WHERE last >= ? AND first < ?",
            (-math.inf if since is None else since, math.inf if before is None else before),
        ).one()
        return (1, 0) if row[0] is None else (row[0] << BLOCK_BITS, ((row[1] + 1) << BLOCK_BITS) - 1)

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents whose best passage answers best, by BM25; of too many, only the most promising."""
        *numbers, last, first = connection.exec_driver_sql(_STATE).one()
        size = IndexSize(*numbers)
        if asked.rows and set(asked.terms) == {term for row in asked.rows for term in row}:
            # A path or an identifier and nothing else: first where it stands as it is, its parts elsewhere later.
            exact = _Scores(size)
            exact.add([_passages_named(connection, *name, scope) for name in asked.names()])
            if exact.passages:
                return RankedDocuments(exact.best(connection, limit), False, {})
        spread = _spread(connection, asked.terms, last or 0, first or 0)
        frequencies = {term: one.holding for term, one in spread.items()}
        rare, is_all = _rare(frequencies)
        known = [name for name in asked.names() if all(term in spread for term in name[0])]
        names = [_passages_named(connection, *name, scope) for name in known]
        starts = [f"{_quoted(start)} *" for start in asked.starts]
        scores = _Scores(size)
        if names or starts or rare:
            lists = _passages_with(connection, [*starts, *map(_quoted, rare)], scope, SCORED_ROWS)
            scores.add([*names, *lists])
            # Passages beyond the limit are found later, newest first.
            is_all = is_all and all(one.size < SCORED_ROWS for one in lists[: len(starts)])
            is_all = is_all and all(one.size < NAMED_ROWS for one in names)
        elif len(frequencies) > 1:
            _add_pairs(connection, scores, spread, scope)
        found = scores.best(connection, limit)
        is_all = is_all and len(found) < limit
        if names and not is_all:
            found = with_named(found, scores.best(connection, NAMED, names))
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
        expressions = {"search_words": " AND ".join(map(_quoted, wanted.words)), "search_grams": ""}
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
        if table == "search_words":
            expressions = [_tagged(expressions[0], scope), *expressions[1:]]
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
            places = _Places(connection, statement, values, limit)
            low, high = (scope.bounds or (1, MAX_NUMBER)) if is_message else (-MAX_NUMBER, -1)
            if by_time and is_message:
                found += _latest(connection, places, low, high, after)
            else:
                found += places.between(low, high)
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[:limit]


class _Places(NamedTuple):
    """A statement that finds so many first places between two numbers."""

    connection: Connection
    statement: str
    values: list[Any]
    limit: int

    def between(self, low: int, high: int) -> list[SearchPlace]:
        """Return the places between two numbers, both included."""
        rows = self.connection.exec_driver_sql(self.statement, (*self.values, low, high, self.limit))
        return [SearchPlace(*row) for row in rows]


def _latest(
    connection: Connection, places: _Places, low: int, high: int, after: SearchPlace | None
) -> list[SearchPlace]:
    """Return the latest places: block by block, the latest first, until no other block can have a later one."""
    blocks = connection.exec_driver_sql(
        "SELECT block, last FROM search_times WHERE block BETWEEN ? AND ? AND first <= ? ORDER BY last DESC",
        (low >> BLOCK_BITS, high >> BLOCK_BITS, math.inf if after is None else after.ts),
    ).fetchall()
    found: dict[int, SearchPlace] = {}
    start, size = 0, _FIRST_BLOCKS
    while start < len(blocks):
        for first, last in _runs(sorted(block for block, _ in blocks[start : start + size])):
            for place in places.between(max(low, first << BLOCK_BITS), min(high, ((last + 1) << BLOCK_BITS) - 1)):
                found[place.seq] = place
        start += size
        size *= 4
        if start < len(blocks) and sum(place.ts > blocks[start].last for place in found.values()) >= places.limit:
            break
    return list(found.values())


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and last of numbers that follow each other; of too many such runs, the whole range."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs if len(runs) <= _MOST_RUNS else [(numbers[0], numbers[-1])]


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

    def add(self, lists: Sequence[_Passages], counts: Sequence[int] | None = None) -> None:
        """Add the passages with some words, each with the number of passages that there are of it."""
        scores = self.passages
        for place, found in enumerate(lists):
            holding = counts[place] if counts else found.size
            idf = math.log(1 + (max(0, self._size.passages - holding) + 0.5) / (holding + 0.5))
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
        for passage in _sorted(scores):
            if (seq := passage >> PASSAGE_BITS) not in found:
                found[seq] = FoundPassage(seq, passage & _NUMBER, scores[passage])
                if len(found) == limit:
                    break
        return list(found.values())


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


def _all_of(terms: Sequence[str], signs: Sequence[str]) -> str:
    return " AND ".join(map(_quoted, dict.fromkeys((*signs, *terms))))


def _tagged(expression: str, scope: SearchScope) -> str:
    """Return an expression for texts that also have the tags of a scope."""
    tags = " AND ".join(map(_quoted, scope.tags()))
    if not tags or not expression:
        return expression or tags
    return f"{tags} AND ({expression})"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _rows(
    documents: Sequence[tuple[int, IndexText]],
) -> tuple[list[tuple[int, str]], list[tuple[int, str, str]], list[tuple[int, str]]]:
    """Return the rows of documents in the three tables."""
    passages = [
        ((seq << PASSAGE_BITS) + number, f"{terms} {text.tags}")
        for seq, text in documents
        for number, terms in enumerate(text.passages)
    ]
    words = [(seq, text.terms, f"{text.signs} {text.tags}") for seq, text in documents]
    return passages, words, [(seq, text.characters) for seq, text in documents]


def _passages_with(
    connection: Connection, expressions: Sequence[str], scope: SearchScope, limit: int, since: int | None = None
) -> list[_Passages]:
    """Return for each expression the newest passages that match, among those of a scope."""
    found = [_Passages([], []) for _ in expressions]
    low, high = _passage_bounds(scope)
    low = low if since is None else max(low, since)
    sources = []
    if scope.has_messages:
        where, values = scope_of_messages(scope)
        rows = f"node n ON n.seq = {_DOCUMENT} WHERE w.rowid > {low:d} AND w.rowid < {high:d} AND {where}"
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
            f"AND w.search_passages MATCH ? ORDER BY w.rowid DESC LIMIT ?)"
        )
        given = [
            value
            for place, expression in enumerate(expressions)
            for value in (place, *values, _tagged(expression, scope), limit)
        ]
        for place, persons, others in _union(connection, statement, len(expressions), given):
            found[place].persons.extend(map(int, persons.split(",")) if persons else ())
            found[place].others.extend(map(int, others.split(",")) if others else ())
    return found


def _passages_named(
    connection: Connection, terms: Sequence[str], signs: Sequence[str], scope: SearchScope
) -> _Passages:
    """Return the passages of the newest texts with some neighbouring words that have all of them, else the first."""
    found = _Passages([], [])
    low, high = scope.bounds or (1, MAX_NUMBER)
    sources = []
    if scope.has_messages:
        where, values = scope_of_messages(scope)
        rows = f"node n ON n.seq = w.rowid WHERE w.rowid BETWEEN {low:d} AND {high:d} AND {where}"
        sources.append(("n.role = 'user'", rows, values))
    if scope.has_summaries:
        where, values = scope_of_summaries(scope)
        rows = f"view_item i ON i.seq = -w.rowid JOIN view v ON v.id = i.view WHERE w.rowid < 0 AND {where}"
        sources.append(("0", rows, values))
    for is_person, source, values in sources:
        documents = connection.exec_driver_sql(
            f"SELECT w.rowid, {is_person} FROM search_words w CROSS JOIN {source} "  # noqa: S608 - only constants
            "AND w.search_words MATCH ? ORDER BY w.rowid DESC LIMIT ?",
            (*values, _tagged(_all_of(terms, signs), scope), NAMED_ROWS),
        ).fetchall()
        holding = "SELECT rowid FROM search_passages WHERE search_passages MATCH ? AND rowid BETWEEN ? AND ?"
        ranges = [(seq << PASSAGE_BITS, (seq << PASSAGE_BITS) + _NUMBER) for seq, _ in documents]
        given = [value for ends in ranges for value in (_all_of(terms, ()), *ends)]
        passages: dict[int, list[int]] = {}
        for (passage,) in _union(connection, holding, len(ranges), given):
            passages.setdefault(passage >> PASSAGE_BITS, []).append(passage)
        for seq, is_user in documents:
            (found.persons if is_user else found.others).extend(passages.get(seq, [seq << PASSAGE_BITS]))
    return found


def _passage_bounds(scope: SearchScope) -> tuple[int, int]:
    """Return passages between which those of a scope's messages are."""
    low, high = scope.bounds or (1, MAX_NUMBER)
    return (low << PASSAGE_BITS) - 1, (high + 1) << PASSAGE_BITS


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
