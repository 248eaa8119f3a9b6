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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from everlong.store.search.corpus import neighbours
from everlong.store.search.index import (
    KEY_BITS,
    LENGTHS,
    PERSON,
    SPEAKER,
    SPOKEN,
    WHOLE,
    Index,
    length_of,
    place_of,
    seq_of,
)
from everlong.store.search.query import Query
from everlong.store.search.scope import SearchScope


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the ranking."""

    length: float = 53.0
    """The terms that are added to those of a passage, by which its score is divided: BM25 with k1 = 1.2 and b = 0.5."""
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


WEIGHTS = Weights()

ROWS = 600
"""The newest passages of each word, and of each speaker whom a query names, that are scored."""

LENDERS = 8
"""The best short texts that lend weight to their neighbours."""

FIRST = 36
"""The best documents, which tell whether people with names talk."""


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
        weights: Weights = WEIGHTS,
    ) -> None:
        self._index, self._connection, self._scope, self._weights = index, connection, scope, weights
        self._query = query
        asked = {**query.terms, **dict.fromkeys((*query.links, *query.starts), 1.0)}
        self._norms = [1 / (weights.length + length_of(key)) for key in range(LENGTHS)]
        self._said: set[int] = set()
        """The documents of the speakers whom the query names."""
        self._worth: dict[int, float] = {}
        self._passages = self._find(asked)
        self.documents = self._score(PERSON)
        first = [self.documents[seq][1] for seq in self.best(FIRST)]
        if first and 2 * sum(bool(key & SPOKEN) for key in first) > len(first):
            self._score_dialogue(list(asked))

    def best(self, count: int, marks: int = 0) -> list[int]:
        """Return the documents with the best scores, of those with any of some marks."""
        found = [(one[0], seq) for seq, one in self.documents.items() if not marks or one[1] & marks]
        return [seq for _, seq in heapq.nlargest(count, found)]

    def drop(self, seqs: Iterable[int]) -> None:
        """Take documents out; they lend nothing."""
        for seq in seqs:
            self.documents.pop(seq, None)

    def sort(self, dense: Mapping[int, float]) -> list[int]:
        """Return the documents, best first and of equals the newest.

        ``dense`` are scores by meaning, beside which the best document by words has 1.
        """
        scores = {seq: one[0] for seq, one in self.documents.items()}
        if self._query.is_question:  # keywords are looked for where they stand, not next door
            self._lend(scores)
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

    def _find(self, asked: Mapping[str, float]) -> dict[int, int]:
        """Return the passages that are scored, with a bit for each term that they have, and weigh the terms."""
        low, high = self._scope.bounds
        newest = self._index.newest_passages(self._connection, list(asked), ROWS, self._scope)
        found: dict[int, int] = {}
        for place, (keys, weight) in enumerate(zip(newest, asked.values(), strict=True)):
            bit = 1 << place
            among = high - (seq_of(keys[ROWS - 1]) if len(keys) >= ROWS else low) + 1
            # The share of the documents that hold the term; of a frequent one, the share among the newest.
            share = len({key >> KEY_BITS for key in keys}) / max(1, among)
            self._worth[bit] = weight * math.log(1 + 3 / (share or 1.0))
            for key in keys:
                found[key] = found.get(key, 0) | bit
        return found

    def _score(self, person: int) -> dict[int, _Scored]:
        """Return the best passage of each document; ``person`` are the marks of a passage that a person said."""
        known: dict[int, float] = {}
        found: dict[int, _Scored] = {}
        norms = self._norms
        persons = self._weights.person if self._query.is_question else 1.0
        for key, terms in self._passages.items():
            if (worth := known.get(terms)) is None:
                worth = known[terms] = self._worth_of(terms)
            score = worth * norms[key % LENGTHS] * (persons if key & person else 1.0)
            seq = key >> KEY_BITS
            if score > 0 and (seq not in found or score > found[seq][0]):
                found[seq] = (score, key, terms)
        return found

    def _score_dialogue(self, order: Sequence[str]) -> None:
        """Score the talk of people with names: all are persons, and a name that is asked for means what that one said.

        The name itself stands in what others say about somebody, so it counts only if nothing else is asked.
        """
        names = [SPEAKER + term for term in order]
        said = self._index.newest_passages(self._connection, names, ROWS, self._scope)
        self._said = {seq_of(key) for keys in said for key in keys}
        silent = {place for place, keys in enumerate(said) if keys}
        if len(silent) < len(order):
            self._worth |= {1 << place: 0.0 for place in silent}
        self.documents = self._score(PERSON | SPOKEN)

    def _lend(self, scores: dict[int, float]) -> None:
        """Add the weight that documents have from the best short ones beside them."""
        weights, links = self._weights, neighbours(self._connection, self.best(LENDERS, WHOLE))
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
