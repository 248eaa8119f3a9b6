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
from typing import Any, Literal, NamedTuple, Protocol

from sqlalchemy import Connection

from everlong.store.search.text import DENSE, IndexText


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

    @property
    def is_everything(self) -> bool:
        """True if no filter is set."""
        return self.stretches is None and self.role is None and self.since is None and self.before is None

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
    """The terms to look up: any of these, those that begin so, those in a row."""

    terms: tuple[str, ...]
    starts: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


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
    """The required contents of texts: runs of characters, and terms that stand close together."""

    needles: tuple[str, ...]
    near: tuple[tuple[tuple[str, ...], int], ...] = ()


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
        parts = [f"({branch} = ? AND {depth} > ? AND {depth} <= ?)" for _ in scope.stretches]
        sql.append("(" + (" OR ".join(parts) or "1 = 0") + ")")
        values += [value for stretch in scope.stretches for value in stretch]
    if scope.since is not None:
        sql.append(f"{ts} >= ?")
        values.append(scope.since)
    if scope.before is not None:
        sql.append(f"{ts} < ?")
        values.append(scope.before)


MAX_PIECES = 16
"""Pieces of one needle that are looked up; more would cost more than they sort out."""

_RUN = re.compile(f"[{DENSE}]+|[^{DENSE}]+")
_DENSE_RUN = re.compile(f"[{DENSE}]+")


class IndexLookup(NamedTuple):
    """One piece: a pair of dense characters, a dense character that begins a pair, a trigram, or less than one."""

    kind: Literal["pair", "start", "gram", "short"]
    text: str


def lookups(needles: Sequence[str]) -> list[IndexLookup]:
    """Return the trigrams that a text has if it contains every needle; needles are folded and have single spaces."""
    found: dict[IndexLookup, None] = {}
    for needle in needles:
        grams = [piece for run in _RUN.findall(needle) for piece in _pieces(run)]
        step = max(1, -(-len(grams) // MAX_PIECES))
        found.update(dict.fromkeys(grams[::step]))
    long = [piece for piece in found if piece.kind != "short"]
    # One or two characters are dear to look up and sort out little: only where there is nothing else.
    return long or list(found)[:1]


def _pieces(run: str) -> list[IndexLookup]:
    if _DENSE_RUN.match(run):
        if len(run) == 1:
            return [IndexLookup("start", run)]
        return [IndexLookup("pair", run[place : place + 2]) for place in range(len(run) - 1)]
    text = run.strip()  # beside dense script, and at the ends, spaces may be others in the index
    if len(text) < 3:
        return [IndexLookup("short", text)] if text else []
    return [IndexLookup("gram", text[place : place + 3]) for place in range(len(text) - 2)]
