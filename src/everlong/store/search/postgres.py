"""The search index in PostgreSQL: a row for each passage, its terms as numbers and the signs of neighbours as bits.

Arrays of numbers take a third of a `tsvector`. The bits are looked at where the terms are found: two words that have
no sign in common do not stand beside each other. Runs of characters are looked up in `search_word`, all words there
are, with their terms: there are far fewer words than trigrams in all texts. Where the server has `pg_trgm`, it finds
parts of them. A word that stands in no text any more is taken off that list. Rows that are deleted leave the index's
pages with the server's own vacuum.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from everlong.store.search.index import (
    BLOCK_BITS,
    MAX_NUMBER,
    IndexSize,
    RankedDocuments,
    RequiredContents,
    SearchPlace,
    SearchScope,
    SearchTerms,
    scope_of_messages,
    scope_of_summaries,
    size_of,
)
from everlong.store.search.passage_scores import rank_passages
from everlong.store.search.postgres_passages import (
    SIGN_BITS,
    PostgresPassages,
    array,
    bits_of,
    code_of,
    edge_code,
    run,
    start_code,
    with_signs,
)
from everlong.store.search.text import (
    DENSE,
    INDEX_VERSION,
    MAX_TERM,
    PASSAGE_BITS,
    IndexText,
    is_dense,
    is_sign,
    pairs_of,
    terms_of_word,
    words_of,
)
from everlong.store.search.time_blocks import TimeBlock, latest_places

MOST_WORDS = 2_000
"""Words with a run of characters that are looked up; with more, the newest texts are read."""

MOST_PAIRS = 8
"""Pairs of dense script of a needle that are looked up."""

_LONG = "long\0"
"""Stands in the passages of a text whose words are not all listed."""

_SHORT_LIST = "WITH (gin_pending_list_limit = 1024)"
"""Kilobytes of new entries that the server collects before it sorts them in; their pages stay in the file."""

_WORDS_LOCK = 0x45_56_57_44
_TABLES = (
    "CREATE TABLE search_state (version INTEGER NOT NULL, documents BIGINT NOT NULL, summaries BIGINT NOT NULL, "
    "passages BIGINT NOT NULL, terms BIGINT NOT NULL)",
    "CREATE TABLE search_times (block BIGINT PRIMARY KEY, first FLOAT8 NOT NULL, last FLOAT8 NOT NULL)",
    "CREATE TABLE search_passage (passage BIGINT PRIMARY KEY, length INTEGER NOT NULL, words INTEGER[] NOT NULL, "
    f"signs BIT({SIGN_BITS}) NOT NULL)",
    "ALTER TABLE search_passage ALTER words SET STATISTICS 300",
    f"CREATE INDEX ix_search_passage_words ON search_passage USING gin (words) {_SHORT_LIST}",
    'CREATE TABLE search_word (word TEXT COLLATE "C" PRIMARY KEY, code INTEGER)',
)
_TRIGRAM_SCHEMA = (
    "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
    "WHERE e.extname = 'pg_trgm'"
)
_RUN = re.compile(f"[{DENSE}]+|[^\\W_{DENSE}]+")


class PostgresIndex:
    """See `everlong.store.search.index.Index`."""

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        if run(connection, "SELECT to_regclass('search_state')").scalar() is None:
            return None
        row = run(connection, "SELECT version FROM search_state").first()
        return None if row is None else int(row[0])

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        for name in ("passage", "document", "times", "gram", "word", "state"):
            run(connection, f"DROP TABLE IF EXISTS search_{name}")
        for table in _TABLES:
            run(connection, table)
        _create_trigrams(connection)
        run(connection, "INSERT INTO search_state VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; without ``wait``, those that others are working on stay theirs."""
        lock = "FOR UPDATE" if wait else "FOR UPDATE SKIP LOCKED"
        gone = run(
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
        rows = [row for seq, text in documents for row in _rows(seq, text)]
        run(
            connection,
            "INSERT INTO search_passage "  # noqa: S608 - a constant
            f"SELECT passage, length, CAST(words AS integer[]), CAST(signs AS bit({SIGN_BITS})) "
            "FROM unnest(CAST(? AS bigint[]), CAST(? AS integer[]), CAST(? AS text[]), CAST(? AS text[])) "
            "AS new(passage, length, words, signs) ON CONFLICT DO NOTHING",
            tuple(map(list, zip(*rows, strict=True))),
        )
        words = _words_of(text for _, text in documents)
        run(connection, "SELECT pg_advisory_xact_lock_shared(?)", (_WORDS_LOCK,))
        run(
            connection,
            "INSERT INTO search_word SELECT new.word, new.code FROM unnest(CAST(? AS text[]), CAST(? AS integer[])) "
            "AS new(word, code) LEFT JOIN search_word old ON old.word = new.word WHERE old.word IS NULL "
            'ORDER BY new.word COLLATE "C" ON CONFLICT DO NOTHING',
            (list(words), list(words.values())),
        )
        run(
            connection,
            f"INSERT INTO search_times SELECT seq >> {BLOCK_BITS}, min(ts), max(ts) FROM node "  # noqa: S608 - a constant
            "WHERE seq = ANY(?) GROUP BY 1 ORDER BY 1 ON CONFLICT (block) DO UPDATE "
            "SET first = least(search_times.first, excluded.first), last = greatest(search_times.last, excluded.last) "
            "WHERE search_times.first > excluded.first OR search_times.last < excluded.last",
            ([seq for seq, _ in documents if seq > 0],),
        )
        self._count(connection, documents, 1)

    def remove(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Take documents out, and words that stand in no other."""
        if not documents:
            return
        run(connection, "SELECT pg_advisory_xact_lock(?)", (_WORDS_LOCK,))
        gone: set[int] = set()
        for seq, text in documents:
            first = seq << PASSAGE_BITS
            passages = [first + number for number in range(len(text.passages))]
            deleted = run(
                connection, "DELETE FROM search_passage WHERE passage = ANY(?) RETURNING passage", (passages,)
            )
            if deleted.first() is not None:
                gone.add(seq)
        words = _words_of(text for seq, text in documents if seq in gone)
        run(
            connection,
            "DELETE FROM search_word w WHERE word = ANY(?) AND code IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM search_passage p WHERE p.words @> ARRAY[w.code])",
            (list(words),),
        )
        self._count(connection, [(seq, text) for seq, text in documents if seq in gone], -1)

    def has_traces(self, connection: Connection) -> bool:
        """Return False: the server's vacuum clears the pages."""
        del connection
        return False

    def purge(self, connection: Connection, pages: int) -> None:
        """Do nothing, for the same reason."""

    def _count(self, connection: Connection, documents: Sequence[tuple[int, IndexText]], sign: int) -> None:
        run(
            connection,
            "UPDATE search_state SET documents = documents + ?, summaries = summaries + ?, passages = passages + ?, "
            "terms = terms + ?",
            tuple(sign * number for number in size_of(documents)),
        )

    def size(self, connection: Connection) -> IndexSize:
        """Return the size of the index."""
        return IndexSize(*run(connection, "SELECT documents, summaries, passages, terms FROM search_state").one())

    def numbers_between(self, connection: Connection, since: float | None, before: float | None) -> tuple[int, int]:
        """Return numbers between which all indexed messages of a time are; there may be others between them."""
        row = run(
            connection,
            "SELECT min(block), max(block) FROM search_times WHERE last >= ? AND first < ?",
            (-math.inf if since is None else since, math.inf if before is None else before),
        ).one()
        return (1, 0) if row[0] is None else (row[0] << BLOCK_BITS, ((row[1] + 1) << BLOCK_BITS) - 1)

    def frequencies(self, connection: Connection, terms: Sequence[str]) -> dict[str, int]:
        """Return how many passages hold each of some terms, counted as far as it matters."""
        spread = PostgresPassages(connection, SearchScope(""), self.size(connection).passages).spread(terms)
        return {term: one.holding for term, one in spread.items()}

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents whose best passage answers best; of too many, only the most promising."""

        def find_newest() -> list[int]:
            return [place.seq for place in self.matching(connection, asked, scope, None, limit, by_time=False)]

        size = self.size(connection)
        lists = PostgresPassages(connection, scope, size.passages)
        return rank_passages(lists, size, asked, scope, limit, find_newest)

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
        codes = [*map(code_of, asked.terms), *map(start_code, asked.starts)]
        if not codes:
            return []
        return _Newest(connection, scope, after, limit, by_time).find([f"{{p}}.words && {array(codes)}"])

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
        conditions = list(map(_condition_of_phrase, wanted.phrases))
        if after is None and not conditions and all(len(needle) < 3 for needle in wanted.needles):
            return newest.find([])  # such a run is mostly frequent, and then the newest texts have it
        for needle in wanted.needles:
            conditions += self._conditions_of_needle(connection, needle)
        return newest.find(list(dict.fromkeys(conditions)))

    def _conditions_of_needle(self, connection: Connection, needle: str) -> Iterator[str]:
        """Yield conditions that the passages of a text meet if it contains a needle."""
        long = code_of(_LONG)
        for found in _RUN.finditer(needle):
            piece = found[0]
            if is_dense(piece):
                codes = [start_code(piece)] if len(piece) == 1 else map(code_of, pairs_of(piece)[:-1][:MOST_PAIRS])
                yield from (f"{{p}}.words @> {array([code])}" for code in codes)
                continue
            around = needle[found.start() - 1 : found.start()] + needle[found.end() : found.end() + 1]
            if piece.isdigit() and "," in around:  # perhaps a part of a longer number
                continue
            before = "" if found.start() else "%"
            behind = "" if found.end() < len(needle) else "%"
            like = before + piece[:MAX_TERM] + (behind if len(piece) <= MAX_TERM else "%")
            rows = run(
                connection, "SELECT code FROM search_word WHERE word LIKE ? LIMIT ?", (like, MOST_WORDS + 1)
            ).fetchall()
            known = {row[0] for row in rows}
            if None not in known and len(rows) <= MOST_WORDS:
                yield f"{{p}}.words && {array([*known, long])}"


class _Newest(NamedTuple):
    """A search for the newest documents of a scope after a place."""

    connection: Connection
    scope: SearchScope
    after: SearchPlace | None
    limit: int
    by_time: bool

    def find(self, conditions: Sequence[str]) -> list[SearchPlace]:
        """Return the documents of which a passage meets the first condition, and any passage each of the others."""
        found: list[SearchPlace] = []
        if self.scope.has_messages:
            low, high = self.scope.bounds or (1, MAX_NUMBER)
            found += self._messages(conditions, low, high)
        if self.scope.has_summaries:
            found += self._between(conditions, -MAX_NUMBER, -1, is_message=False)
        by_time = self.by_time
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[: self.limit]

    def _messages(self, conditions: Sequence[str], low: int, high: int) -> list[SearchPlace]:
        def between(first: int, last: int) -> list[SearchPlace]:
            return self._between(conditions, first, last, is_message=True)

        if not self.by_time:
            return between(low, high)
        blocks = run(
            self.connection,
            "SELECT block, last FROM search_times WHERE block BETWEEN ? AND ? AND first <= ? ORDER BY last DESC",
            (low >> BLOCK_BITS, high >> BLOCK_BITS, math.inf if self.after is None else self.after.ts),
        )
        return latest_places([TimeBlock(*row) for row in blocks], between, self.limit, low, high)

    def _between(self, conditions: Sequence[str], low: int, high: int, *, is_message: bool) -> list[SearchPlace]:
        where, values = scope_of_messages(self.scope) if is_message else scope_of_summaries(self.scope)
        seq, ts = ("n.seq", "n.ts") if is_message else ("-i.seq", "v.ts")
        tags = [f"{{p}}.words @> {array([code_of(tag)])}" for tag in self.scope.tags()]
        conditions = [*conditions, *tags]
        if not conditions:
            rows = "node n" if is_message else "view_item i JOIN view v ON v.id = i.view"
            where += f" AND {seq} BETWEEN {low:d} AND {high:d}"
        else:
            document = f"(p.passage >> {PASSAGE_BITS})"
            rows = f"search_passage p JOIN node n ON n.seq = {document}"
            if not is_message:
                rows = f"search_passage p JOIN view_item i ON i.seq = -{document} JOIN view v ON v.id = i.view"
            where += f" AND p.passage >= {low << PASSAGE_BITS:d} AND p.passage < {(high + 1) << PASSAGE_BITS:d}"
            first, *others = conditions
            where += " AND " + first.replace("{p}", "p")
            where += "".join(
                f" AND ({one.replace('{p}', 'p')} OR EXISTS (SELECT 1 FROM search_passage q WHERE q.passage >= "  # noqa: S608
                f"{document} << {PASSAGE_BITS} AND q.passage < ({document} + 1) << {PASSAGE_BITS} "
                f"AND {one.replace('{p}', 'q')}))"
                for one in others
            )
        order = "p.passage DESC" if conditions else f"{seq} DESC"
        if self.by_time:
            order = f"{ts} DESC, {seq} DESC"
        found: dict[int, SearchPlace] = {}
        limit, after = self.limit * (3 if conditions else 1), self.after
        while True:
            further, place = self._after(after, ts, seq, is_by_passage=bool(conditions))
            statement = f"SELECT {ts}, {seq} FROM {rows} WHERE {where}{further} ORDER BY {order} LIMIT {limit}"  # noqa: S608
            places = [SearchPlace(*row) for row in run(self.connection, statement, [*values, *place])]
            found.update((place.seq, place) for place in places)
            if len(places) < limit or len(found) >= self.limit:
                return list(found.values())[: self.limit]
            after = places[-1]  # whose other passages say nothing new

    def _after(
        self, after: SearchPlace | None, ts: str, seq: str, *, is_by_passage: bool
    ) -> tuple[str, tuple[float, ...]]:
        """Return the condition that documents come after a place, and its values."""
        if after is None:
            return "", ()
        if self.by_time:
            return f" AND ({ts}, {seq}) < (?, ?)", (after.ts, after.seq)
        passages = f" AND p.passage < {after.seq << PASSAGE_BITS:d}" if is_by_passage else ""
        return f" AND {seq} < ?{passages}", (after.seq,)


def _condition_of_phrase(phrase: Sequence[str]) -> str:
    """Return a condition for passages with the terms and signs of a phrase, and for texts where it is cut."""
    terms = [code_of(word) for word in phrase if not is_sign(word)]
    signs = [word for word in phrase if is_sign(word)]
    conditions = [f"{{p}}.words @> {array(terms)}"] if terms else []
    if not signs:
        return conditions[0]
    conditions.append(with_signs(signs, "{p}"))
    return f"({' AND '.join(conditions)} OR {{p}}.words && {array(map(edge_code, signs))})"


def _rows(seq: int, text: IndexText) -> Iterator[tuple[int, int, str, str]]:
    """Yield the rows of a document's passages."""
    extra = {code_of(tag) for tag in text.tags.split()}
    if text.is_long or any(len(term) >= MAX_TERM for terms in text.passages for term in terms.split()):
        extra.add(code_of(_LONG))
    edges = {edge_code(sign) for sign in text.edges.split()}
    for number, (terms, signs) in enumerate(zip(text.passages, text.signs, strict=True)):
        found = terms.split()
        codes = set(map(code_of, found)) | extra
        if not terms.isascii():
            codes |= {start_code(term[0]) for term in found if is_dense(term)}
        if number == 0:
            codes |= edges
        yield (
            (seq << PASSAGE_BITS) + number,
            terms.count(" ") + 1,
            f"{{{','.join(map(str, codes))}}}",
            bits_of(signs.split()),
        )


def _words_of(texts: Iterable[IndexText]) -> dict[str, int | None]:
    """Return the words of texts, each with the number of its term; None for a function word."""
    words: set[str] = set()
    for text in texts:
        if not text.is_long:
            words.update(words_of(text.characters))
    return {
        word[:MAX_TERM]: code_of(terms[0]) if (terms := terms_of_word(word)) else None
        for word in words
        if not is_dense(word)
    }


def _create_trigrams(connection: Connection) -> None:
    """Create an index of the parts of words, if the server has one and this account may."""
    for statement in ("CREATE EXTENSION IF NOT EXISTS pg_trgm", ""):
        nested = connection.begin_nested()
        try:
            if statement:
                run(connection, statement)
            else:
                schema = run(connection, _TRIGRAM_SCHEMA).scalar()
                if schema is not None:
                    column = f"word {schema}.gin_trgm_ops"
                    run(connection, f"CREATE INDEX ix_search_word ON search_word USING gin ({column}) {_SHORT_LIST}")
        except DBAPIError:  # a search goes through the list of words then
            nested.rollback()
        else:
            nested.commit()
