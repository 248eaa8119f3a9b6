"""The search index: which passages hold a term, whichever database keeps it.

An index is keyed by the numbers of passages. One is made of the document's number (the ``seq`` of a node, or minus the
``seq`` of a view's item for a summary), the place of the passage in it, and in the lowest bits what the ranking wants
to know of it. The index holds terms, never the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from everlong.store.search.text import PLACE_BITS, is_dense

_LENGTHS = (1, 2, 3, 4, 6, 8, 11, 14, 18, 23, 29, 36, 45, 56, 70, 90)
LENGTHS = len(_LENGTHS)
"""The lengths that a passage's number tells apart, in its lowest four bits."""
PERSON, SPOKEN, WHOLE = 16, 32, 64
"""Marks in a passage's number: a person said it; somebody with a name said it; it is a whole text."""
_MARK_BITS = 7
KEY_BITS = _MARK_BITS + PLACE_BITS
SPEAKER = "§"
"""The beginning of a term that says who speaks."""


def passage_key(seq: int, place: int, marks: int, length: int) -> int:
    """Return the number of a passage with so many terms."""
    return (seq << KEY_BITS) + (place << _MARK_BITS) + marks + min(LENGTHS - 1, bisect_left(_LENGTHS, length))


def seq_of(key: int) -> int:
    """Return the number of a passage's document."""
    return key >> KEY_BITS


def place_of(key: int) -> int:
    """Return the place of a passage in its document."""
    return (key >> _MARK_BITS) & ((1 << PLACE_BITS) - 1)


def length_of(key: int) -> int:
    """Return about how many terms a passage has."""
    return _LENGTHS[key % LENGTHS]


MAX_NUMBER = (1 << 40) - 1
"""The highest number that a document can have."""

COUNTED = 4_000
"""Passages with a term that are counted; for a more frequent term, the newest ones tell about how many there are."""


_UNITED = 100
"""Lists of passages that one statement asks for."""


class Stretch(NamedTuple):
    """A stretch of one branch: depths in ``(low, high]``."""

    branch: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SearchScope:
    """The documents that count: those of a tenant, and only some of them if a filter is set."""

    tenant: str
    stretches: tuple[Stretch, ...] | None = None
    role: str | None = None
    since: float | None = None
    before: float | None = None
    is_messages_only: bool = False
    upto: int | None = None
    """The newest document that was there when the search began, so that later pages do not shift."""
    numbers: tuple[int, int] | None = None
    """The lowest and the highest number that a message in it can have, if that is known."""

    @property
    def bounds(self) -> tuple[int, int]:
        """The numbers between which its messages are."""
        low, high = self.numbers or (1, MAX_NUMBER)
        return low, high if self.upto is None else min(high, self.upto)

    @property
    def has_messages(self) -> bool:
        """True if messages can be in it."""
        return self.role != "summary"

    @property
    def has_summaries(self) -> bool:
        """True if summaries can be in it."""
        return self.role in {None, "summary"} and not self.is_messages_only


class SearchPlace(NamedTuple):
    """The end of a page: time and number of its last document."""

    ts: float
    seq: int


class IndexSize(NamedTuple):
    """The size of an index: its documents, how many of them are summaries, their passages, and the terms of these."""

    documents: int
    summaries: int
    passages: int
    terms: int

    @property
    def average_length(self) -> float:
        """Terms of a passage, on average."""
        return max(1.0, self.terms / max(1, self.passages))


class Wish(NamedTuple):
    """Terms that a passage must have, all of them, and how many of the newest passages are wanted."""

    terms: tuple[str, ...]
    limit: int


class IndexText(NamedTuple):
    """A document as it is indexed: its number, and for each passage the number and the terms, separated by spaces."""

    seq: int
    passages: tuple[tuple[int, str], ...]


class _Source(NamedTuple):
    """Where documents are in the store: rows, their conditions and values, and the names of columns."""

    rows: str
    where: str
    values: list[Any]
    seq: str
    ts: str
    bounds: tuple[int, int]


class Index(ABC):
    """A search index in one kind of database."""

    table: str
    """The table of passages."""
    key: str
    """Its column with the number of a passage."""

    @abstractmethod
    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""

    @abstractmethod
    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""

    @abstractmethod
    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; return those that nobody else has taken.

        With ``wait``, until others who are at them are done with them.
        """

    @abstractmethod
    def add(self, connection: Connection, documents: Sequence[IndexText]) -> None:
        """Index documents that are not in it."""

    @abstractmethod
    def remove(self, connection: Connection, documents: Sequence[IndexText]) -> None:
        """Take documents out, given exactly what was indexed of them; one that is not in it is passed over."""

    @abstractmethod
    def has_traces(self, connection: Connection) -> bool:
        """Return whether removed terms may still stand in the index's own pages."""

    @abstractmethod
    def purge(self, connection: Connection, pages: int) -> None:
        """Clear about so many of those pages; to be called until nothing is left."""

    @abstractmethod
    def frequencies(self, connection: Connection, terms: Collection[str], upto: int | None = None) -> dict[str, int]:
        """Return about how many passages hold each of some terms; terms in none are left out.

        With ``upto`` only documents up to that number count, as far as that can be told.
        """

    @abstractmethod
    def run(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement that is written with question marks."""

    def rows(self, connection: Connection, statement: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a statement that may give thousands."""
        return list(self.run(connection, statement, values).fetchall())

    @abstractmethod
    def match(self, terms: Collection[str], *, every: bool) -> tuple[str, list[Any]]:
        """Return the condition that a passage ``p`` has any, or all, of some terms, and its values.

        A single character of dense script stands for all terms that begin with it.
        """

    def size(self, connection: Connection) -> IndexSize:
        """Return the size of the index."""
        statement = "SELECT documents, summaries, passages, terms FROM search_state"
        return IndexSize(*self.run(connection, statement).one())

    def _count(self, connection: Connection, documents: Sequence[IndexText], sign: int) -> None:
        passages = [terms for document in documents for _, terms in document.passages]
        summaries = sum(document.seq < 0 for document in documents)
        terms = sum(passage.count(" ") + 1 for passage in passages)
        self.run(
            connection,
            "UPDATE search_state SET documents = documents + ?, summaries = summaries + ?, passages = passages + ?, "
            "terms = terms + ?",
            [sign * number for number in (len(documents), summaries, len(passages), terms)],
        )

    def newest_passages(
        self, connection: Connection, wishes: Sequence[Wish], scope: SearchScope
    ) -> Iterator[tuple[int, int]]:
        """Yield the newest passages of a scope for each wish: the number of the wish, and that of the passage."""
        for source in self._sources(scope):
            for start in range(0, len(wishes), _UNITED):  # each by itself would cost more
                parts: list[str] = []
                values: list[Any] = []
                for place, wish in enumerate(wishes[start : start + _UNITED], start):
                    condition, given = self.match(wish.terms, every=True)
                    parts.append(
                        f"SELECT * FROM (SELECT {place}, p.{self.key} FROM {self._joined(source)} AND {condition} "  # noqa: S608
                        f"AND {source.where} ORDER BY p.{self.key} DESC LIMIT {wish.limit}) AS w{place}"
                    )
                    values += [*given, *source.values]
                yield from self.rows(connection, " UNION ALL ".join(parts), values)

    def offer(
        self,
        connection: Connection,
        groups: Sequence[Collection[str]],
        scope: SearchScope,
        after: SearchPlace | None,
        limit: int,
        *,
        by_time: bool,
    ) -> list[SearchPlace]:
        """Return the documents with any term of each group, newest first (by time or by number), after a place."""
        found: list[SearchPlace] = []
        for source in self._sources(scope):
            found += self._offer_of(connection, source, groups, after, limit, by_time=by_time)
        found.sort(key=(lambda place: (place.ts, place.seq)) if by_time else (lambda place: place.seq), reverse=True)
        return found[:limit]

    def _offer_of(
        self,
        connection: Connection,
        source: _Source,
        groups: Sequence[Collection[str]],
        after: SearchPlace | None,
        limit: int,
        *,
        by_time: bool,
    ) -> list[SearchPlace]:
        rows, where, given = f"{source.rows} WHERE {source.seq} BETWEEN ? AND ?", source.where, [*source.bounds]
        order = f"{source.seq} DESC"
        if groups:
            rows, given, order = self._joined(source), [], f"p.{self.key} DESC"
            for place, group in enumerate(groups):
                condition, values = self.match(group, every=False)
                given += values
                if place:
                    document = f"p.{self.key} >> {KEY_BITS}"
                    condition = f"{document} IN (SELECT {document} FROM {self.table} p WHERE {condition})"  # noqa: S608
                rows += f" AND {condition}"
        order = f"{source.ts} DESC, {source.seq} DESC" if by_time else order
        further = f"({source.ts}, {source.seq}) < (?, ?)" if by_time else f"{source.seq} < ?"
        found: dict[int, SearchPlace] = {}
        room = limit * (3 if groups else 1)
        while True:
            beyond = [] if after is None else [after.ts, after.seq] if by_time else [after.seq]
            statement = (
                f"SELECT {source.ts}, {source.seq} FROM {rows} AND {where}"  # noqa: S608 - our own
                f"{f' AND {further}' if beyond else ''} ORDER BY {order} LIMIT {room}"
            )
            ran = self.run(connection, statement, [*given, *source.values, *beyond])
            places = [SearchPlace(*row) for row in ran.fetchall()]
            found.update((place.seq, place) for place in places)
            if len(places) < room or len(found) >= limit:
                return list(found.values())[:limit]
            after = places[-1]  # whose other passages say nothing new

    def _joined(self, source: _Source) -> str:
        """Return the passages of a source's documents, to which conditions can be added."""
        low, high = source.bounds
        return (
            f"{self.table} p CROSS JOIN {source.rows} WHERE {source.seq} = p.{self.key} >> {KEY_BITS} "
            f"AND p.{self.key} >= {low << KEY_BITS:d} AND p.{self.key} < {(high + 1) << KEY_BITS:d}"
        )

    def _sources(self, scope: SearchScope) -> Iterator[_Source]:
        if scope.has_messages:
            where, values = scope_of_messages(scope)
            yield _Source("node n", where, values, "n.seq", "n.ts", scope.bounds)
        if scope.has_summaries:
            where, values = scope_of_summaries(scope)
            rows = "view_item i JOIN view v ON v.id = i.view"
            yield _Source(rows, where, values, "-i.seq", "v.ts", (-MAX_NUMBER, -1))


def is_start(term: str) -> bool:
    """Return whether a term is a single character of dense script, which stands for all that begin with it."""
    return len(term) == 1 and is_dense(term)


def scope_of_messages(scope: SearchScope) -> tuple[str, list[Any]]:
    """Return conditions on a row ``n`` of table `node`, with question marks, and their values."""
    sql = ["n.tenant = ?"]
    values: list[Any] = [scope.tenant]
    if scope.role is not None:
        sql.append("n.role = ?")
        values.append(scope.role)
    if scope.upto is not None:
        sql.append("n.seq <= ?")
        values.append(scope.upto)
    _add_common(sql, values, scope, "n.branch", "n.depth", "n.ts")
    return " AND ".join(sql), values


def scope_of_summaries(scope: SearchScope) -> tuple[str, list[Any]]:
    """Return conditions on rows ``i`` of `view_item` and ``v`` of `view`."""
    sql = ["v.tenant = ? AND v.state <> 'void' AND i.kind = 'new'"]
    values: list[Any] = [scope.tenant]
    _add_common(sql, values, scope, "v.branch", "i.to_depth", "v.ts")
    return " AND ".join(sql), values


def _add_common(sql: list[str], values: list[Any], scope: SearchScope, branch: str, depth: str, ts: str) -> None:
    if scope.stretches is not None:
        sql.append(_within(scope.stretches, values, branch, depth))
    if scope.since is not None:
        sql.append(f"{ts} >= ?")
        values.append(scope.since)
    if scope.before is not None:
        sql.append(f"{ts} < ?")
        values.append(scope.before)


_MOST_STRETCHES = 200
"""Stretches that are conditions of a statement: databases nest these only so deep. Who reads the documents checks the
rest (`everlong.store.search.corpus.in_scope`)."""


def _within(stretches: Sequence[Stretch], values: list[Any], branch: str, depth: str) -> str:
    """Return the condition that a place is on one of some stretches; of many, on one of their branches."""
    if len(stretches) <= _MOST_STRETCHES:
        parts = [f"({branch} = ? AND {depth} > ? AND {depth} <= ?)" for _ in stretches]
        values += [value for stretch in stretches for value in stretch]
        return "(" + (" OR ".join(parts) or "1 = 0") + ")"
    return f"{branch} IN ({', '.join(str(number) for number in sorted({int(one.branch) for one in stretches}))})"
