"""First scores of passages: BM25 of the rarest words of a question, each as if it stood in a passage once.

Only so many passages are scored as take a few milliseconds; of frequent words, those in which two of them meet. The
texts of the best ones are read and ranked by `everlong.store.search.rank`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, zip_longest
from typing import NamedTuple

from sqlalchemy import Connection

from everlong.store.search.index import Index, Passages, SearchScope
from everlong.store.search.text import PASSAGE_BITS

SCORED_ROWS = 2_000
"""Rows that one query may score; with more, rare words decide and frequent ones only refine."""

ENOUGH = 10
"""Documents with the rarest word of an all-frequent query and another one; of fewer, any two words will do."""

PAIRED = 6
"""The rarest words of an all-frequent query, of which a text must have two to be scored."""

PAIR_ROWS = 600
"""The newest passages with two frequent words that are scored."""

NAMED_ROWS = 80
"""The newest passages with a path or an identifier that are scored."""

NAMED = 40
"""Texts that name a path or an identifier of the question and are looked at in any case."""

PERSON = 2.0
"""The first weight of the user's passages, so that long answers do not crowd them out before texts are read."""


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The terms to look up: any of these, those that begin so, and for each path or identifier all of its own."""

    terms: tuple[str, ...]
    starts: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class FoundPassage(NamedTuple):
    """The best passage of a document: the document's number, the passage's number in it, and a first score."""

    seq: int
    passage: int
    score: float


class RankedDocuments(NamedTuple):
    """The best documents by their best passage, whether these are all there are, and how many passages hold a term."""

    found: list[FoundPassage]
    is_all: bool
    frequencies: dict[str, int]


def rank_passages(
    index: Index, connection: Connection, asked: SearchTerms, scope: SearchScope, limit: int
) -> RankedDocuments:
    """Return the documents whose best passage answers best; of too many, only the most promising."""

    def find(wanted: Sequence[Sequence[str]], most: int = SCORED_ROWS) -> list[Passages]:
        return index.newest_passages(connection, wanted, scope, most)

    frequencies = index.frequencies(connection, asked.terms)
    rare, is_all = _rare(frequencies)
    scores = _Scores(index.size(connection).passages)
    named = find(asked.rows, NAMED_ROWS)
    starts = find(asked.starts)
    for passages in (*named, *starts):
        scores.add(passages, _count(passages))
    for term, passages in zip(rare, find([(term,) for term in rare]), strict=True):
        scores.add(passages, frequencies[term])
    # Passages beyond the limit are found later, newest first.
    is_all = is_all and all(_count(one) < SCORED_ROWS for one in starts)
    if not scores.passages and len(frequencies) > 1:
        rarest, *others = _by_rarity(frequencies)[:PAIRED]
        pairs = [(rarest, other) for other in others]
        _add_pairs(scores, dict(zip(pairs, find(pairs, PAIR_ROWS), strict=True)), frequencies)
        if len({passage >> PASSAGE_BITS for passage in scores.passages}) < ENOUGH:
            pairs = list(combinations(others, 2))
            _add_pairs(scores, dict(zip(pairs, find(pairs, PAIR_ROWS), strict=True)), frequencies)
    found = scores.best(limit)
    is_all = is_all and len(found) < limit
    if named and not is_all:
        found = _in_turn(scores.best(NAMED, set(chain.from_iterable(chain(*one) for one in named))), found)
    if not found and not is_all:  # no two frequent words meet
        newest = index.offer(connection, [(*asked.terms, *asked.starts)], scope, None, limit, by_time=False)
        found = [FoundPassage(place.seq, 0, 0.0) for place in newest]
        is_all = len(found) < limit
    return RankedDocuments(found, is_all, frequencies)


def _in_turn(named: list[FoundPassage], found: list[FoundPassage]) -> list[FoundPassage]:
    """Return the best passages that name what is asked about and the best of all words, in turn and once each."""
    both = chain.from_iterable(zip_longest(named, found))
    return list({(one.seq, one.passage): one for one in both if one is not None}.values())


class _Scores:
    """The scores of passages; those of persons have their weight already."""

    def __init__(self, among: int) -> None:
        self._among = among
        self.passages: dict[int, float] = {}
        self._others: set[int] = set()
        """Those that no person said."""

    def add(self, found: Passages, holding: int) -> None:
        """Add the passages with a term that stands in so many."""
        idf = math.log(1 + (max(0, self._among - holding) + 0.5) / (holding + 0.5))
        self._others.update(found.others)
        for passages, weight in ((found.others, idf), (found.persons, PERSON * idf)):
            for passage in passages:
                self.passages[passage] = self.passages.get(passage, 0.0) + weight

    def best(self, limit: int, among: Iterable[int] | None = None) -> list[FoundPassage]:
        """Return the best passage of each document, best first; of equals, the newest."""
        order = sorted(self.passages if among is None else among, reverse=True)
        order.sort(key=self.passages.__getitem__, reverse=True)
        found: dict[int, FoundPassage] = {}
        for passage in self._mixed(order):
            seq = passage >> PASSAGE_BITS
            if seq not in found:
                found[seq] = FoundPassage(seq, passage & (1 << PASSAGE_BITS) - 1, self.passages[passage])
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


def _add_pairs(scores: _Scores, found: dict[tuple[str, str], Passages], frequencies: dict[str, int]) -> None:
    """Add passages with two frequent words; each word counts once in a passage."""
    for term in {term for pair in found for term in pair}:
        some = [passages for pair, passages in found.items() if term in pair]
        persons = {passage for one in some for passage in one.persons}
        scores.add(Passages([*persons], [*{passage for one in some for passage in one.others}]), frequencies[term])


def _count(found: Passages) -> int:
    return len(found.persons) + len(found.others)


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
