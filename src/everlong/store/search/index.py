"""The interface of a search index, whichever database keeps it, and the values passed to it.

An index is keyed by a document's number: the ``seq`` of a node, or minus the ``seq`` of a view's item for a summary.
It holds terms and trigrams, never the text. What it returns may be more than was asked for, never less; the caller
looks at the texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection

from everlong.store.search.text import DENSE, IndexText, tag_of

BLOCK_BITS = 10
"""The bits of a message's number within a block of numbers of which the index knows the times."""

MAX_NUMBER = (1 << 50) - 1
"""The highest number that a document can have."""


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
    tool: str | None = None
    """The tool of which only calls and answers count; the caller checks that as well."""
    numbers: tuple[int, int] | None = None
    """The lowest and the highest number that a message in it can have, if that is known."""

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The numbers between which its messages are; None if any number is possible."""
        if self.upto is None:
            return self.numbers
        low, high = self.numbers or (1, self.upto)
        return low, min(high, self.upto)

    @property
    def is_everything(self) -> bool:
        """True if no filter is set."""
        filters = (self.stretches, self.role, self.tool, self.since, self.before)
        return all(one is None for one in filters)

    def tags(self) -> list[str]:
        """Return the tags that its messages have in the index."""
        tags = [tag_of("role", self.role)] if self.role is not None else []
        return [*tags, tag_of("tool", self.tool)] if self.tool is not None else tags

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


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The terms to look up: any of these, those that begin so, those in a row with the signs of their neighbours."""

    terms: tuple[str, ...]
    starts: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    signs: tuple[tuple[str, ...], ...] = ()
    """For each row the signs of its words (`everlong.store.search.text.neighbour_signs`)."""

    def names(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return the rows, each with its signs."""
        return list(zip(self.rows, self.signs, strict=True))


NAMED = 40
"""Texts that name a path or an identifier of the question and are looked at in any case."""


class FoundPassage(NamedTuple):
    """The best passage of a document: the document's number, the passage's number in it, and a first score."""

    seq: int
    passage: int
    score: float


def with_named(found: list[FoundPassage], named: list[FoundPassage]) -> list[FoundPassage]:
    """Return the best passages of all words and the best that name what is asked about, in turn and once each.

    A document can have one of both kinds. They compete when their texts are read.
    """
    both = chain.from_iterable(zip_longest(named, found))
    return list({(one.seq, one.passage): one for one in both if one is not None}.values())


PERSON = 2.0
"""The first weight of the user's passages, so that long answers do not crowd them out before texts are read."""


@dataclass(frozen=True, slots=True)
class RequiredContents:
    """The required contents of texts: runs of characters, and of phrases the terms and the signs of neighbours."""

    needles: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...] = ()


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


def size_of(documents: Sequence[tuple[int, IndexText]]) -> IndexSize:
    """Return the share of some documents in the size of an index."""
    passages = [passage for _, text in documents for passage in text.passages]
    terms = sum(passage.count(" ") + 1 for passage in passages)
    return IndexSize(len(documents), sum(seq < 0 for seq, _ in documents), len(passages), terms)


class RankedDocuments(NamedTuple):
    """The best documents by their best passage, whether these are all there are, and how many passages hold a term."""

    found: list[FoundPassage]
    is_all: bool
    frequencies: dict[str, int]


class Index(Protocol):
    """A search index in one kind of database."""

    def version(self, connection: Connection) -> int | None:
        """Return the version of the terms in it; None if there is no index yet."""
        ...

    def create(self, connection: Connection) -> None:
        """Create an empty index in place of any that is there."""
        ...

    def claim(self, connection: Connection, seqs: Sequence[int], *, wait: bool) -> set[int]:
        """Take documents off the pending ones; return those that nobody else has taken.

        With ``wait``, until others who are at them are done with them.
        """
        ...

    def add(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Index documents that are not in it."""
        ...

    def remove(self, connection: Connection, documents: Sequence[tuple[int, IndexText]]) -> None:
        """Take documents out, given exactly what was indexed of them; one that is not in it is passed over."""
        ...

    def has_traces(self, connection: Connection) -> bool:
        """Return whether removed terms may still stand in the index's own pages."""
        ...

    def purge(self, connection: Connection, pages: int) -> None:
        """Clear about so many of those pages; to be called until nothing is left."""
        ...

    def size(self, connection: Connection) -> IndexSize:
        """Return the size of the index."""
        ...

    def numbers_between(self, connection: Connection, since: float | None, before: float | None) -> tuple[int, int]:
        """Return numbers between which all indexed messages of a time are; there may be others between them."""
        ...

    def frequencies(self, connection: Connection, terms: Sequence[str]) -> dict[str, int]:
        """Return how many passages hold each of some terms, counted as far as it matters."""
        ...

    def rank(self, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int) -> RankedDocuments:
        """Return the documents that answer best, best first."""
        ...

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
        """Return documents with any of what is asked, newest first (by time or by number), after a place."""
        ...

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
        """Return documents that may contain all that is wanted, in the same order; all of them if that is unknown."""
        ...


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


MAX_PIECES = 16
"""Pieces of one needle that are looked up; more would cost more than they sort out."""

_DENSE_RUN = re.compile(f"[{DENSE}]+")


def dense_runs(needles: Sequence[str]) -> list[str]:
    """Return the runs of dense script in needles, the longest first; needles are folded and have single spaces."""
    found = {run: None for needle in needles for run in _DENSE_RUN.findall(needle)}
    return sorted(found, key=len, reverse=True)


def grams_of(needles: Sequence[str]) -> list[str]:
    """Return trigrams that a text has if it contains every needle; of a long one, some."""
    found: dict[str, None] = {}
    for needle in needles:
        grams = [run[place : place + 3] for run in _other_runs(needle) for place in range(len(run) - 2)]
        found.update(dict.fromkeys(grams[:: max(1, -(-len(grams) // MAX_PIECES))]))
    return list(found)


def short_of(needles: Sequence[str]) -> str:
    """Return the first run of one or two characters: where there is nothing else to look up."""
    return next((run for needle in needles for run in _other_runs(needle) if len(run) < 3), "")


def _other_runs(needle: str) -> list[str]:
    # Beside dense script, and at the ends, spaces may be others in the index.
    return [text for run in _DENSE_RUN.split(needle) if (text := run.strip())]
