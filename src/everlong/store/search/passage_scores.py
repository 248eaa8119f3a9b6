"""First scores of passages: those of the rarest words of a question, whichever database keeps the lists of passages.

A passage's number is its document's with the passage's number in the low bits. Each word counts as if it stood in a
passage once (BM25). Only so many passages are scored as take a few milliseconds; of frequent words, those in which two
of them meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import NamedTuple, Protocol

from everlong.store.search.index import (
    MAX_NUMBER,
    NAMED,
    PERSON,
    FoundPassage,
    IndexSize,
    RankedDocuments,
    SearchScope,
    SearchTerms,
    with_named,
)
from everlong.store.search.text import PASSAGE_BITS

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

NAMED_ROWS = 80
"""The newest texts with a path or an identifier that are scored."""

PAIR_ROWS = 600
"""The newest passages with two frequent words that are scored."""

NUMBER = (1 << PASSAGE_BITS) - 1


class Spread(NamedTuple):
    """The number of passages with a term, the newest passage of all, and the oldest one that was counted."""

    holding: int
    last: int
    first: int


class Wanted(NamedTuple):
    """Terms that a passage must have, all of them; or one that begins like the only one."""

    terms: tuple[str, ...]
    is_start: bool = False

    @property
    def is_rare(self) -> bool:
        """True for a term by itself: only rare ones are looked up so."""
        return len(self.terms) == 1 and not self.is_start


class Passages(NamedTuple):
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


class PassageLists(Protocol):
    """The passages of a scope in one database, by what they have."""

    def spread(self, terms: Sequence[str]) -> dict[str, Spread]:
        """Return in how many passages each term stands, counted as far as it matters; terms in none are left out."""
        ...

    def passages_with(self, wanted: Sequence[Wanted], limit: int, since: int | None = None) -> list[Passages]:
        """Return for each wish the newest passages that have it, those after ``since``."""
        ...

    def passages_named(self, terms: Sequence[str], signs: Sequence[str]) -> Passages:
        """Return passages of the newest texts with some neighbouring words."""
        ...

    def lengths(self, passages: Sequence[int]) -> Iterable[tuple[int, int]]:
        """Return passages with the number of their terms."""
        ...


def rank_passages(
    lists: PassageLists,
    size: IndexSize,
    asked: SearchTerms,
    scope: SearchScope,
    limit: int,
    find_newest: Callable[[], list[int]],
) -> RankedDocuments:
    """Return the documents whose best passage answers best; of too many, only the most promising.

    ``find_newest`` returns the newest documents with any of the words.
    """
    if asked.rows and set(asked.terms) == {term for row in asked.rows for term in row}:
        # A path or an identifier and nothing else: first where it stands as it is, its parts elsewhere later.
        exact = _Scores(lists, size)
        exact.add([lists.passages_named(*name) for name in asked.names()])
        if exact.passages:
            return RankedDocuments(exact.best(limit), False, {})
    spread = lists.spread(asked.terms)
    frequencies = {term: one.holding for term, one in spread.items()}
    rare, is_all = _rare(frequencies)
    known = [name for name in asked.names() if all(term in spread for term in name[0])]
    names = [lists.passages_named(*name) for name in known]
    starts = [Wanted((start,), is_start=True) for start in asked.starts]
    scores = _Scores(lists, size)
    if names or starts or rare:
        found_lists = lists.passages_with([*starts, *(Wanted((term,)) for term in rare)], SCORED_ROWS)
        scores.add([*names, *found_lists])
        # Passages beyond the limit are found later, newest first.
        is_all = is_all and all(one.size < SCORED_ROWS for one in found_lists[: len(starts)])
        is_all = is_all and all(one.size < NAMED_ROWS for one in names)
    elif len(frequencies) > 1:
        _add_pairs(lists, scores, spread, scope)
    found = scores.best(limit)
    is_all = is_all and len(found) < limit
    if names and not is_all:
        found = with_named(found, scores.best(NAMED, names))
    if not found and not is_all:  # the promise was empty: no two frequent words meet
        found = [FoundPassage(seq, 0, 0.0) for seq in find_newest()]
        is_all = len(found) < limit
    return RankedDocuments(found, is_all, frequencies)


def passage_bounds(scope: SearchScope) -> tuple[int, int]:
    """Return passages between which those of a scope's messages are."""
    low, high = scope.bounds or (1, MAX_NUMBER)
    return (low << PASSAGE_BITS) - 1, (high + 1) << PASSAGE_BITS


class _Scores:
    """First scores of passages: BM25 as if each word stood in a passage once."""

    def __init__(self, lists: PassageLists, size: IndexSize) -> None:
        self._lists = lists
        self._size = size
        self.passages: dict[int, float] = {}
        """The passages of persons have their weight already."""
        self._others: set[int] = set()
        """Those that no person said."""

    def add(self, lists: Sequence[Passages], counts: Sequence[int] | None = None) -> None:
        """Add the passages with some words, each with the number of passages that there are of it."""
        scores = self.passages
        for place, found in enumerate(lists):
            holding = counts[place] if counts else found.size
            idf = math.log(1 + (max(0, self._size.passages - holding) + 0.5) / (holding + 0.5))
            self._others.update(found.others)
            for passage in found.others:
                scores[passage] = scores.get(passage, 0.0) + idf
            for passage in found.persons:
                scores[passage] = scores.get(passage, 0.0) + PERSON * idf

    def best(self, limit: int, among: Sequence[Passages] | None = None) -> list[FoundPassage]:
        """Return the best passage of each document, best first; of the first ones, short ones count more."""
        scores = dict(self.passages)
        if among is not None:
            scores = {passage: scores[passage] for found in among for passage in found.all()}
        first = _sorted(scores)
        average = self._size.average_length
        for passage, length in self._lists.lengths(first[:MEASURED]):
            scores[passage] *= 2.2 / (1.3 + 0.9 * length / average)
        found: dict[int, FoundPassage] = {}
        for passage in self._mixed(_sorted(scores)):
            if (seq := passage >> PASSAGE_BITS) not in found:
                found[seq] = FoundPassage(seq, passage & NUMBER, scores[passage])
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


def _sorted(scores: dict[int, float]) -> list[int]:
    """Return passages, best first; of equals, the newest."""
    return sorted(sorted(scores, reverse=True), key=scores.__getitem__, reverse=True)


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


def _add_pairs(lists: PassageLists, scores: _Scores, spread: dict[str, Spread], scope: SearchScope) -> None:
    """Score the newest passages with the rarest of some frequent words and another one; of few, with any two."""
    frequencies = {term: one.holding for term, one in spread.items()}
    rarest, *others = _by_rarity(frequencies)[:PAIRED]
    since = None
    if frequencies[rarest] >= MANY and scope.is_everything:
        last, first = spread[rarest].last, spread[rarest].first
        since = last - (last - first) * (MANY // COUNTED)
    pairs = lists.passages_with([Wanted((rarest, other)) for other in others], PAIR_ROWS, since)
    counts = [frequencies[other] for other in others]
    both = Passages(
        list({passage for found in pairs for passage in found.persons}),
        list({passage for found in pairs for passage in found.others}),
    )
    if len({passage >> PASSAGE_BITS for passage in both.all()}) < ENOUGH and len(others) > 1:
        more = list(combinations(others, 2))
        found = lists.passages_with([Wanted(pair) for pair in more], PAIR_ROWS, since)
        for (one, other), passages in zip(more, found, strict=True):
            scores.add([passages, passages], [frequencies[one], frequencies[other]])
    scores.add([*pairs, both], [*counts, frequencies[rarest]])
