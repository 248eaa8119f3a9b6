"""The ranking of hits: BM25 over passages, from the index alone, and what a conversation tells beyond the words.

A text counts by its best passage, so a long answer and a short message compete alike. What a person said counts more
than what an assistant made of it. A short turn lends weight to the turns beside it for what they do not say themselves.
Where people with names talk, a question that names one means what that one said. No text is read: the number of a
passage tells who said it and how long it is. `bench.store.retrieval --ablation` shows what each of these brings; how
often a word stands in a passage brings nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection

from everlong.store.search.index import (
    KEY_BITS,
    LENGTHS,
    PERSON,
    SPEAKER,
    SPOKEN,
    WHOLE,
    Index,
    SearchScope,
    Wish,
    length_of,
    place_of,
    seq_of,
)
from everlong.store.search.query import Query

Links = Mapping[int, tuple[int | None, int | None]]
"""The messages before and after some messages."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the ranking."""

    saturation: float = 1.2
    """BM25's k1; with b it says how much the length of a passage counts against it."""
    length: float = 0.5
    """BM25's b."""
    person: float = 2.2
    """A person's words in answer to a question, beside those of an assistant or a tool."""
    speaker: float = 2.0
    """The words of a speaker whom the question names."""
    after: float = 0.5
    """The share of its score that a short turn lends to the one after it."""
    before: float = 0.2
    """The share that it lends to the one before it."""
    second: float = 0.15
    """The share that it lends to the one after the next."""
    summary: float = 0.8


WEIGHTS = Weights()

SCORED_ROWS = 2_000
"""Rows of the index that one query scores; with more, rare words decide and frequent ones only refine."""

PAIRED = 6
"""Frequent words that refine, each where it meets the rarest one."""

PAIR_ROWS = 600
"""The newest passages of a frequent word, or of a pair, that are scored."""

LENDERS = 8
"""The best short texts that lend weight to their neighbours."""

FIRST = 36
"""The best documents, which tell whether people with names talk."""


class Statistics(NamedTuple):
    """The size of the index when a search began: its passages, and the average number of their terms."""

    passages: int
    average_length: float

    def idf(self, holding: int) -> float:
        """Return the weight of a term that stands in so many passages: the fewer, the more."""
        among = max(self.passages, 1)
        holding = min(holding, among)
        return math.log(1 + (among - holding + 0.5) / (holding + 0.5))


class _Scored(NamedTuple):
    """The best passage of a document: its score, its number, and the terms that it has of those asked for."""

    score: float
    key: int
    terms: int
    """A bit for each, as `Ranking` numbers them."""


class Ranking:
    """The ranking of the documents that the index has for one query."""

    def __init__(
        self,
        index: Index,
        connection: Connection,
        query: Query,
        scope: SearchScope,
        statistics: Statistics,
        weights: Weights = WEIGHTS,
    ) -> None:
        self._index, self._connection, self._scope, self._weights = index, connection, scope, weights
        self._query = query
        asked = {**query.terms, **dict.fromkeys((*query.links, *query.starts), 1.0)}
        marks = [SPEAKER + term for term in query.terms]
        frequencies = index.frequencies(connection, [*asked, *marks], scope.upto)
        self._named = {mark for mark in marks if mark in frequencies}
        known = {term: count for term, count in frequencies.items() if term in asked}
        order = sorted(known, key=lambda term: (known[term], term))
        self._bits = {term: 1 << place for place, term in enumerate(order)}
        self._worth = {term: asked[term] * statistics.idf(known[term]) for term in order}
        k1, b = weights.saturation, weights.length
        average = max(1.0, statistics.average_length)
        self._norms = [(k1 + 1) / (1 + k1 * (1 - b + b * length_of(key) / average)) for key in range(LENGTHS)]
        self._said: set[int] = set()
        """The documents of the speakers whom the query names."""
        self._passages = self._find(known)
        self.documents = self._score(PERSON)
        first = [self.documents[seq].key for seq in self.best(FIRST)]
        if first and 2 * sum(bool(key & SPOKEN) for key in first) > len(first):
            self._score_dialogue()

    def best(self, count: int, among: Callable[[_Scored], bool] = lambda _: True) -> list[int]:
        """Return the documents with the best scores."""
        found = [(one.score, seq) for seq, one in self.documents.items() if among(one)]
        return [seq for _, seq in sorted(found, reverse=True)[:count]]

    def drop(self, seqs: Iterable[int]) -> None:
        """Take documents out; they lend nothing."""
        for seq in seqs:
            self.documents.pop(seq, None)

    def sort(self, links: Callable[[Sequence[int]], Links], dense: Mapping[int, float] | None = None) -> list[int]:
        """Return the documents, best first and of equals the newest.

        ``links`` returns the neighbours of some documents. ``dense`` are scores by meaning, beside which the best
        document by words has 1.
        """
        scores = {seq: one.score for seq, one in self.documents.items()}
        if self._query.is_question:  # keywords are looked for where they stand, not next door
            for seq, lent in self._lend(links).items():
                scores[seq] = scores.get(seq, 0.0) + lent
        for seq in self._said.intersection(scores):
            scores[seq] *= self._weights.speaker
        if dense:
            most = max(scores.values(), default=1.0)
            scores = {seq: scores.get(seq, 0.0) / most + dense.get(seq, 0.0) for seq in (*scores, *dense)}
        return [seq for _, seq in sorted(((score, seq) for seq, score in scores.items()), reverse=True)]

    def place(self, seq: int) -> int | None:
        """Return the number of a document's best passage; None for one that stands beside a match or is close to it."""
        own = self.documents.get(seq)
        return None if own is None else place_of(own.key)

    def _find(self, frequencies: Mapping[str, int]) -> dict[int, int]:
        """Return the passages that are scored, with their terms."""
        order = list(self._bits)
        wishes: list[Wish] = []
        room = SCORED_ROWS
        for term in order:
            if frequencies[term] > room:
                break
            room -= frequencies[term]
            wishes.append(Wish((term,), SCORED_ROWS))
        others = order[len(wishes) :]
        if others and not wishes:
            wishes.append(Wish((others.pop(0),), PAIR_ROWS))
        wishes += [Wish((order[0], other), PAIR_ROWS) for other in others[:PAIRED]]
        found: dict[int, int] = {}
        terms = [sum(self._bits[term] for term in wish.terms) for wish in wishes]
        for place, key in self._newest(wishes):
            found[key] = found.get(key, 0) | terms[place]
        return found

    def _newest(self, wishes: Sequence[Wish]) -> Iterator[tuple[int, int]]:
        return self._index.newest_passages(self._connection, wishes, self._scope)

    def _score(self, person: int) -> dict[int, _Scored]:
        """Return the best passage of each document; ``person`` are the marks of a passage that a person said."""
        known: dict[int, float] = {}
        found: dict[int, _Scored] = {}
        for key, terms in self._passages.items():
            if terms not in known:
                known[terms] = self._worth_of(terms)
            score = known[terms] * self._norms[key % LENGTHS]
            if key & person and self._query.is_question:
                score *= self._weights.person
            elif key < 0:
                score *= self._weights.summary
            seq = key >> KEY_BITS
            if score > 0 and (seq not in found or score > found[seq].score):
                found[seq] = _Scored(score, key, terms)
        return found

    def _score_dialogue(self) -> None:
        """Score the talk of people with names: all are persons, and a name that is asked for means what that one said.

        The name itself stands in what others say about somebody, so it counts only if nothing else is asked.
        """
        silent = {mark.removeprefix(SPEAKER) for mark in self._named}
        if len(silent) < len(self._worth):
            self._worth = {term: worth for term, worth in self._worth.items() if term not in silent}
        said = self._newest([Wish((mark,), SCORED_ROWS) for mark in sorted(self._named)])
        self._said = {seq_of(key) for _, key in said}
        self.documents = self._score(PERSON | SPOKEN)

    def _lend(self, find_links: Callable[[Sequence[int]], Links]) -> dict[int, float]:
        """Return the weight that documents have from the best short ones beside them."""
        lent: dict[int, float] = {}
        weights = self._weights
        links = find_links(self.best(LENDERS, lambda one: bool(one.key & WHOLE)))
        after_of = {seq: after for seq, (_, after) in links.items()}
        after_of |= {before: seq for seq, (before, _) in links.items() if before is not None}
        for seq, (before, after) in links.items():
            own = self.documents[seq]
            second = after_of.get(after) if after is not None else None
            for to, part in ((before, weights.before), (after, weights.after), (second, weights.second)):
                if to is not None:
                    there = self.documents[to].terms if to in self.documents else 0
                    lent[to] = lent.get(to, 0.0) + part * own.score * self._share_lacking(own.terms, there)
        return lent

    def _share_lacking(self, there: int, here: int) -> float:
        """Return the share of a neighbour's weight that this text lacks: what both say counts once."""
        whole = self._worth_of(there)
        return self._worth_of(there & ~here) / whole if whole > 0 else 0.0

    def _worth_of(self, terms: int) -> float:
        return sum(worth for term, worth in self._worth.items() if terms & self._bits[term])
