"""The ranking of hits: BM25 over passages, from the index alone, and what a conversation tells beyond the words.

A text counts by its best passage, so a long answer and a short message compete alike. What a person said counts more
than what an assistant made of it. A short turn lends weight to the turns beside it for what they do not say themselves.
Where people with names talk, a question that names one means what that one said. No text is read: the number of a
passage tells who said it and how long it is. `bench.store.retrieval --ablation` shows what each of these brings; how
often a word stands in a passage brings nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Wish,
    length_of,
    place_of,
    seq_of,
)
from everlong.store.search.query import Query
from everlong.store.search.scope import SearchScope

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
    upto: int
    """The newest message that there was."""

    def idf(self, holding: int) -> float:
        """Return the weight of a term that stands in so many passages: the fewer, the more."""
        among = max(self.passages, 1)
        holding = min(holding, among)
        return math.log(1 + (among - holding + 0.5) / (holding + 0.5))


_Scored = tuple[float, int, int]
"""The best passage of a document: its score, its number, and a bit for each term that it has of those asked for."""


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
        known = index.frequencies(connection, asked, statistics.upto, statistics.passages)
        order = sorted(known, key=lambda term: (known[term], term))
        self._worth = {1 << place: asked[term] * statistics.idf(known[term]) for place, term in enumerate(order)}
        k1, b = weights.saturation, weights.length
        average = max(1.0, statistics.average_length)
        self._norms = [(k1 + 1) / (1 + k1 * (1 - b + b * length_of(key) / average)) for key in range(LENGTHS)]
        self._said: set[int] = set()
        """The documents of the speakers whom the query names."""
        self._passages = self._find(order, known)
        self.documents = self._score(PERSON)
        first = [self.documents[seq][1] for seq in self.best(FIRST)]
        if first and 2 * sum(bool(key & SPOKEN) for key in first) > len(first):
            self._score_dialogue(order)

    def best(self, count: int, marks: int = 0) -> list[int]:
        """Return the documents with the best scores, of those with any of some marks."""
        found = [(one[0], seq) for seq, one in self.documents.items() if not marks or one[1] & marks]
        return [seq for _, seq in heapq.nlargest(count, found)]

    def drop(self, seqs: Iterable[int]) -> None:
        """Take documents out; they lend nothing."""
        for seq in seqs:
            self.documents.pop(seq, None)

    def sort(self, links: Callable[[Sequence[int]], Links], dense: Mapping[int, float]) -> list[int]:
        """Return the documents, best first and of equals the newest.

        ``links`` returns the neighbours of some documents. ``dense`` are scores by meaning, beside which the best
        document by words has 1.
        """
        scores = {seq: one[0] for seq, one in self.documents.items()}
        if self._query.is_question:  # keywords are looked for where they stand, not next door
            self._lend(scores, links(self.best(LENDERS, WHOLE)))
        for seq in self._said.intersection(scores):
            scores[seq] *= self._weights.speaker
        if dense:
            most = max(scores.values(), default=1.0)
            scores = {seq: scores.get(seq, 0.0) / most + dense.get(seq, 0.0) for seq in (*scores, *dense)}
        return [seq for _, seq in sorted(((score, seq) for seq, score in scores.items()), reverse=True)]

    def place(self, seq: int) -> int | None:
        """Return the number of a document's best passage; None for one that stands beside a match or is close to it."""
        own = self.documents.get(seq)
        return None if own is None else place_of(own[1])

    def _find(self, order: Sequence[str], frequencies: Mapping[str, int]) -> dict[int, int]:
        """Return the passages that are scored, with the bits of their terms."""
        if not order:
            return {}
        rare, room = 0, SCORED_ROWS
        while rare < len(order) and frequencies[order[rare]] <= room:
            room -= frequencies[order[rare]]
            rare += 1
        wishes = [Wish((term,), SCORED_ROWS) for term in order[:rare]] or [Wish((order[0],), PAIR_ROWS)]
        wishes += [Wish((order[0], other), PAIR_ROWS) for other in order[len(wishes) :][:PAIRED]]
        bit = {term: 1 << place for place, term in enumerate(order)}
        bits = [sum(bit[term] for term in wish.terms) for wish in wishes]
        found: dict[int, int] = {}
        for place, key in self._index.newest_passages(self._connection, wishes, self._scope):
            found[key] = found.get(key, 0) | bits[place]
        return found

    def _score(self, person: int) -> dict[int, _Scored]:
        """Return the best passage of each document; ``person`` are the marks of a passage that a person said."""
        known: dict[int, float] = {}
        found: dict[int, _Scored] = {}
        norms, summary = self._norms, self._weights.summary
        persons = self._weights.person if self._query.is_question else 1.0
        for key, terms in self._passages.items():
            if (worth := known.get(terms)) is None:
                worth = known[terms] = self._worth_of(terms)
            score = worth * norms[key % LENGTHS] * (persons if key & person else summary if key < 0 else 1.0)
            seq = key >> KEY_BITS
            if score > 0 and (seq not in found or score > found[seq][0]):
                found[seq] = (score, key, terms)
        return found

    def _score_dialogue(self, order: Sequence[str]) -> None:
        """Score the talk of people with names: all are persons, and a name that is asked for means what that one said.

        The name itself stands in what others say about somebody, so it counts only if nothing else is asked.
        """
        wishes = [Wish((SPEAKER + term,), SCORED_ROWS) for term in order]
        said = list(self._index.newest_passages(self._connection, wishes, self._scope))
        self._said = {seq_of(key) for _, key in said}
        silent = {place for place, _ in said}
        if len(silent) < len(order):
            self._worth |= {1 << place: 0.0 for place in silent}
        self.documents = self._score(PERSON | SPOKEN)

    def _lend(self, scores: dict[int, float], links: Links) -> None:
        """Add the weight that documents have from the best short ones beside them."""
        weights = self._weights
        after_of = {seq: after for seq, (_, after) in links.items()}
        after_of |= {before: seq for seq, (before, _) in links.items() if before is not None}
        for seq, (before, after) in links.items():
            score, _, terms = self.documents[seq]
            second = after_of.get(after) if after is not None else None
            for to, part in ((before, weights.before), (after, weights.after), (second, weights.second)):
                if to is not None:
                    there = self.documents[to][2] if to in self.documents else 0
                    # What both say counts once.
                    share = self._worth_of(terms & ~there) / self._worth_of(terms)
                    scores[to] = scores.get(to, 0.0) + part * score * share

    def _worth_of(self, terms: int) -> float:
        return sum(worth for bit, worth in self._worth.items() if terms & bit)
