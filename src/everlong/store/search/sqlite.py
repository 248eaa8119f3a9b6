"""The search index in SQLite: two FTS5 tables without content, of passages and of trigrams.

`search_passages` says which passages have a word; a row's number is its document's with the passage's number in the low
bits. Its terms come prepared, so its tokenizer splits at spaces. Beside them it has the signs of neighbouring words and
the tags of the message. `search_grams` says which texts may contain a run of characters. None keeps positions, so the
caller checks. What is asked for as a whole may stand where two passages meet: the first one has a token for each such
edge. `search_times` says for each 1,024 numbers when the messages were said. `search_tags` has the tags of texts that
have several: of an answer, they come from the message before it.
FTS5 removes from such a table only if told exactly what was put in, and clears old pages when it merges all segments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search import purging
from everlong.store.search.index import (
    BLOCK_BITS,
    MAX_NUMBER,
    MAX_PIECES,
    IndexSize,
    RankedDocuments,
    RequiredContents,
    SearchPlace,
    SearchScope,
    SearchTerms,
    dense_runs,
    grams_of,
    scope_of_messages,
    scope_of_summaries,
    short_of,
    size_of,
)
from everlong.store.search.passage_scores import rank_passages
from everlong.store.search.sqlite_passages import DOCUMENT, SQLitePassages, all_of, quoted, tagged
from everlong.store.search.text import INDEX_VERSION, PASSAGE_BITS, IndexText, is_sign, pairs_of
from everlong.store.search.time_blocks import TimeBlock, latest_places

MOST_GROUPS = 4
"""Phrases and runs of dense script that are looked up; the others only count when the text is read."""

_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents INTEGER NOT NULL, "
    "summaries INTEGER NOT NULL, passages INTEGER NOT NULL, terms INTEGER NOT NULL)",
    "CREATE TABLE search_times (block INTEGER PRIMARY KEY, first REAL NOT NULL, last REAL NOT NULL)",
    "CREATE TABLE search_tags (seq INTEGER PRIMARY KEY, tags TEXT NOT NULL)",
    "CREATE VIRTUAL TABLE search_passages USING fts5(terms, signs, content='', detail=none, tokenize='ascii')",
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
        passages, grams = _rows(documents)
        connection.exec_driver_sql("INSERT INTO search_passages (rowid, terms, signs) VALUES (?, ?, ?)", passages)
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
        passages, grams = _rows(documents)
        connection.exec_driver_sql(
            "INSERT INTO search_passages (search_passages, rowid, terms, signs) VALUES ('delete', ?, ?, ?)", passages
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
        return _Newest(connection, scope, after, limit, by_time).find([expression]) if expression else []

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
        newest = _Newest(connection, scope, after, limit, by_time)
        groups = [_neighbours(phrase) for phrase in wanted.phrases]
        groups += [_run(run) for run in dense_runs(wanted.needles)]
        grams = grams_of(wanted.needles)
        short = short_of(wanted.needles) if not groups and not grams else ""
        if short and after is None:
            # Such a run is mostly frequent, and then the newest texts have it; if not, its trigrams are quickly listed.
            return newest.find([])
        expression = " AND ".join(map(quoted, grams))
        if short:
            expression = self._grams_from(connection, short)
            if not expression:
                return []
        return newest.find(groups, expression)

    def _grams_from(self, connection: Connection, text: str) -> str:
        """Return an expression for one or two characters: any trigram that begins with them."""
        begun = connection.exec_driver_sql(
            "SELECT term FROM search_gram_vocabulary WHERE term >= ? AND term < ?", (text, text + "\U0010ffff")
        )
        return " OR ".join(quoted(row[0]) for row in begun)


class _Newest(NamedTuple):
    """A search for the newest documents of a scope after a place."""

    connection: Connection
    scope: SearchScope
    after: SearchPlace | None
    limit: int
    by_time: bool

    def find(self, groups: Sequence[str], grams: str = "") -> list[SearchPlace]:
        """Return documents with a passage for each group of expressions, and all trigrams; all without any."""
        groups = groups[:MOST_GROUPS]
        if self.scope.tags() and (groups or not grams):
            groups = [tagged(groups[0] if groups else "", self.scope), *groups[1:]]
        found: list[SearchPlace] = []
        if self.scope.has_messages:
            found += self._messages(groups, grams)
        if self.scope.has_summaries:
            found += self._between(groups, grams, -MAX_NUMBER, -1, is_message=False)
        by_time = self.by_time
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[: self.limit]

    def _messages(self, groups: Sequence[str], grams: str) -> list[SearchPlace]:
        low, high = self.scope.bounds or (1, MAX_NUMBER)
        if not self.by_time:
            return self._between(groups, grams, low, high, is_message=True)

        def between(first: int, last: int) -> list[SearchPlace]:
            return self._between(groups, grams, first, last, is_message=True)

        return latest_places(_time_blocks(self.connection, low, high, self.after), between, self.limit, low, high)

    def _between(
        self, groups: Sequence[str], grams: str, low: int, high: int, *, is_message: bool
    ) -> list[SearchPlace]:
        """Return the documents between two numbers: by passages, else by trigrams, else all of them."""
        where, values = scope_of_messages(self.scope) if is_message else scope_of_summaries(self.scope)
        seq, ts = ("n.seq", "n.ts") if is_message else ("-i.seq", "v.ts")
        rows, rest = ("node n", "") if is_message else ("view_item i", " JOIN view v ON v.id = i.view")
        key, order, distinct = seq, f"{seq} DESC", ""
        given: list[Any] = []
        if groups or grams:
            table = "search_passages" if groups else "search_grams"
            document = DOCUMENT if groups else "w.rowid"
            rows = f"{table} w CROSS JOIN {rows} ON {f'n.seq = {document}' if is_message else f'i.seq = -({document})'}"
            where = f"w.{table} MATCH ? AND {where}"
            key, order, distinct = "w.rowid", "w.rowid DESC", "DISTINCT" if groups else ""
            given.append(groups[0] if groups else grams)
        given += values
        for group in groups[1:]:
            holding = f"SELECT rowid >> {PASSAGE_BITS} FROM search_passages WHERE search_passages MATCH ?"  # noqa: S608
            where += f" AND {DOCUMENT} IN ({holding})"
            given.append(group)
        if groups and grams:
            where += f" AND {DOCUMENT} IN (SELECT rowid FROM search_grams WHERE search_grams MATCH ?)"  # noqa: S608
            given.append(grams)
        if self.after is not None:
            where += f" AND ({ts}, {seq}) < (?, ?)" if self.by_time else f" AND {seq} < ?"
            given += (self.after.ts, self.after.seq) if self.by_time else (self.after.seq,)
            high = high if self.by_time else min(high, self.after.seq - 1)
        if groups:
            low, high = low << PASSAGE_BITS, ((high + 1) << PASSAGE_BITS) - 1
        if self.by_time:
            order = f"{ts} DESC, {seq} DESC"
        statement = (
            f"SELECT {distinct} {ts}, {seq} FROM {rows}{rest} WHERE {where} AND {key} BETWEEN ? AND ? "  # noqa: S608
            f"ORDER BY {order} LIMIT ?"
        )
        found = self.connection.exec_driver_sql(statement, (*given, low, high, self.limit))
        return [SearchPlace(*row) for row in found]


def _time_blocks(connection: Connection, low: int, high: int, after: SearchPlace | None) -> list[TimeBlock]:
    """Return the blocks of messages between two numbers that can be after a place, the latest first."""
    rows = connection.exec_driver_sql(
        "SELECT block, last FROM search_times WHERE block BETWEEN ? AND ? AND first <= ? ORDER BY last DESC",
        (low >> BLOCK_BITS, high >> BLOCK_BITS, math.inf if after is None else after.ts),
    )
    return [TimeBlock(*row) for row in rows]


def _any_of(asked: SearchTerms) -> str:
    return " OR ".join([*map(quoted, asked.terms), *(f"{quoted(start)} *" for start in asked.starts)])


def _neighbours(phrase: Sequence[str]) -> str:
    """Return an expression for the passages with the terms and signs of a phrase, and for texts where it is cut."""
    edges = [quoted(_edge(token)) for token in phrase if is_sign(token)]
    return " OR ".join([f"({all_of(phrase)})", *edges])


def _run(run: str) -> str:
    """Return an expression for the passages with a run of dense script, and for texts where it is cut."""
    if len(run) == 1:
        return f"{quoted(run)} *"
    pairs = list(dict.fromkeys(pairs_of(run)[:-1][:MAX_PIECES]))
    return " OR ".join([f"({all_of(pairs)})", *(quoted(_edge(pair)) for pair in pairs)])


def _edge(token: str) -> str:
    """Return the token for a sign or a pair where two passages meet; no word ends so."""
    return f"{token}e"


def _rows(documents: Sequence[tuple[int, IndexText]]) -> tuple[list[tuple[int, str, str]], list[tuple[int, str]]]:
    """Return the rows of documents in the two tables."""
    passages: list[tuple[int, str, str]] = []
    for seq, text in documents:
        first, edges = seq << PASSAGE_BITS, " ".join(map(_edge, text.edges.split()))
        for number, (terms, signs) in enumerate(zip(text.passages, text.signs, strict=True)):
            passages.append((first + number, terms, f"{signs} {text.tags} {'' if number else edges}"))
    return passages, [(seq, text.characters) for seq, text in documents]


def _integer(connection: Connection, statement: str) -> int | None:
    row = connection.exec_driver_sql(statement).first()
    return None if row is None else int(row[0])
