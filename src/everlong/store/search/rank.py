"""The ranking of hits: BM25 over the words, and what a conversation tells beyond them.

A turn answers the one before it, so neighbours lend each other weight for what they do not say themselves. A question
that names a speaker means what that speaker said. "When" wants a time, "how many" a number. Texts with more of what was
asked come before texts with more of one word. Pure functions over texts that are already loaded: no database, no clock,
the same order every time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from everlong.store.search.corpus import SearchDocument
from everlong.store.search.index import IndexSize
from everlong.store.search.query import Query
from everlong.store.search.snippets import pieces_of
from everlong.store.search.text import counted, folded, is_dense, terms_of

__all__ = ["Unindexed", "weigh_unindexed"]

K1, B = 1.2, 0.5
"""BM25's saturation, and how much a text's length counts against it."""

PREVIOUS, NEXT, BEFORE_PREVIOUS = 0.35, 0.2, 0.1
"""Shares of its score that a turn lends to the one after it, to the one before it, and to the one after the next."""

ANSWERS = 0.1
"""The additional share that is lent to a turn after a question."""

LONG = 120
"""The number of terms above which a text counts by its best passage."""

PASSAGE, PASSAGE_CHARS = 0.9, 240
"""The share of its best passage that a long text counts for at least, and the characters of a passage."""

COVERAGE = 0.6
SPEAKER = 1.25
TIME, NUMBER = 1.2, 1.1
LITERAL = 1.0
START_IDF = 3.0
ROLES: Mapping[str, float] = {"summary": 0.8, "tool": 0.9, "system": 0.7, "developer": 0.7}

_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|since|monday|tuesday|wednesday|thursday|friday|saturday|sunday|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|week|weekend|month|year|"
    r"morning|evening|summer|winter|spring|autumn|christmas|easter|birthday|\d{4}|\d{1,2}(?:st|nd|rd|th))s?\b"
    r"|(?:th|first|second|third) of\b"
)
_NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty|"
    r"ninety|hundred|thousand|half|dozen|couple)\b|teen\b"
)


@dataclass(frozen=True, slots=True)
class SearchCandidate:
    """One loaded document: its words, who said them, and the documents right before and after it."""

    seq: int
    text: str
    plain: str
    """The text, folded."""
    role: str
    speaker: str
    ts: float
    previous: int | None = None
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics of all documents: how many, how long, and in how many each term stands."""

    documents: int
    average_length: float
    frequencies: Mapping[str, int]

    def idf(self, term: str) -> float:
        """Return the weight of a term: the fewer texts it stands in, the more."""
        return self.rarity(self.frequencies.get(term, 0))

    def rarity(self, holding: int) -> float:
        """Return the weight of something that stands in so many texts."""
        among = max(self.documents, 1)
        holding = min(holding, among)
        return math.log(1 + (among - holding + 0.5) / (holding + 0.5))


class _OwnScore(NamedTuple):
    """The score of a text by itself, and the terms that it has."""

    score: float
    terms: frozenset[str]


_NOTHING = _OwnScore(0.0, frozenset())


def rank(
    query: Query,
    weights: Mapping[str, float],
    candidates: Mapping[int, SearchCandidate],
    figures: Figures,
    may_match: Callable[[str], bool],
) -> list[tuple[int, float, bool]]:
    """Return candidates with a score, best first, and whether each matches itself rather than stands beside a match."""
    named = _named_speakers(query, candidates)
    silent = {term for name in named for term in terms_of(name)}
    idfs = {term: weight * figures.idf(term) for term, weight in weights.items() if term not in silent}
    if not idfs and silent:  # nothing but a name was asked for
        idfs = {term: figures.idf(term) for term in silent}
    literals = [(literal, _weigh_literal(literal, idfs, candidates, figures)) for literal in query.literals]
    pairs = [term for term in idfs if is_dense(term)]
    own = {
        seq: _score_alone(query, candidate, idfs, pairs, literals, figures) if may_match(candidate.plain) else _NOTHING
        for seq, candidate in candidates.items()
    }
    found: list[tuple[int, float, bool]] = []
    for seq, candidate in candidates.items():
        score = own[seq].score + _score_of_neighbours(candidate, candidates, own, idfs)
        if score > 0:
            found.append((seq, score * _bonus(query, candidate, named), own[seq].score > 0))
    return sorted(found, key=lambda item: (-round(item[1], 9), -candidates[item[0]].ts, -item[0]))


def _weigh_literal(
    literal: str, idfs: Mapping[str, float], candidates: Mapping[int, SearchCandidate], figures: Figures
) -> float:
    """Return the weight of a path or identifier: of all its words, or more if few texts have them in a row."""
    words = sum(idfs.get(term, 0.0) for term in set(terms_of(literal)))
    holding = sum(literal in candidate.plain for candidate in candidates.values())
    return max(words, figures.rarity(holding))


def _score_alone(
    query: Query,
    candidate: SearchCandidate,
    idfs: Mapping[str, float],
    pairs: list[str],
    literals: list[tuple[str, float]],
    figures: Figures,
) -> _OwnScore:
    counts, length = counted(candidate.text, candidate.plain, idfs, pairs)
    damping = K1 * (1 - B + B * length / figures.average_length)
    score = _score(counts, length, idfs, figures)
    if length > LONG and len(counts) > 1:
        score = max(score, PASSAGE * _best_passage(candidate.text, idfs, pairs, figures))
    if query.starts:
        for start in query.starts:
            if count := candidate.plain.count(start):
                score += START_IDF * count * (K1 + 1) / (count + damping)
    if not score:
        return _NOTHING
    if literals:
        plain = " ".join(candidate.plain.split())
        score += sum(LITERAL * worth for literal, worth in literals if literal in plain)
    return _OwnScore(score, frozenset(counts))


def _score(counts: Mapping[str, int], length: int, idfs: Mapping[str, float], figures: Figures) -> float:
    """Return the BM25 score, with more for a text that has more of what was asked."""
    damping = K1 * (1 - B + B * length / figures.average_length)
    score = sum(idfs[term] * count * (K1 + 1) / (count + damping) for term, count in counts.items())
    whole = sum(idfs.values())
    return score * (1 + COVERAGE * sum(idfs[term] for term in counts) / whole) if whole > 0 else score


def _best_passage(text: str, idfs: Mapping[str, float], pairs: list[str], figures: Figures) -> float:
    """Return the score that the best lines in a row would have as a text of their own."""
    passage: list[str] = []
    best, size = 0.0, 0
    for line in [*pieces_of(text), None]:
        if passage and (line is None or size + len(line) > PASSAGE_CHARS):
            said = "\n".join(passage)
            counts, length = counted(said, folded(said) if pairs else "", idfs, pairs)
            best = max(best, _score(counts, length, idfs, figures))
            passage, size = [], 0
        if line is not None:
            passage.append(line)
            size += len(line) + 1
    return best


def _score_of_neighbours(
    candidate: SearchCandidate,
    candidates: Mapping[int, SearchCandidate],
    own: Mapping[int, _OwnScore],
    idfs: Mapping[str, float],
) -> float:
    def lent_by(seq: int | None) -> float:
        there = own.get(seq, _NOTHING) if seq is not None else _NOTHING
        return there.score * _share_lacking(there.terms, own[candidate.seq].terms, idfs)

    lent = NEXT * lent_by(candidate.next)
    before = candidates.get(candidate.previous) if candidate.previous is not None else None
    if before is None:
        return lent
    asked = before.text.rstrip().endswith(("?", "？"))
    lent += (PREVIOUS + (ANSWERS if asked else 0.0)) * lent_by(before.seq)
    return lent + BEFORE_PREVIOUS * lent_by(before.previous)


def _share_lacking(there: frozenset[str], here: frozenset[str], idfs: Mapping[str, float]) -> float:
    """Return the share of a neighbour's weight that this text lacks: what both say counts once."""
    if there.isdisjoint(here):
        return 1.0
    whole = sum(idfs[term] for term in there)
    return sum(idfs[term] for term in there - here) / whole if whole > 0 else 0.0


def _bonus(query: Query, candidate: SearchCandidate, named: set[str]) -> float:
    bonus = ROLES.get(candidate.role, 1.0)
    if candidate.speaker and candidate.speaker in named:
        bonus *= SPEAKER
    if query.asks_when and _TIME.search(candidate.plain):
        bonus *= TIME
    if query.asks_number and _NUMBER.search(candidate.plain):
        bonus *= NUMBER
    return bonus


def _named_speakers(query: Query, candidates: Mapping[int, SearchCandidate]) -> set[str]:
    """Return the speakers whose names stand in the query."""
    speakers = {candidate.speaker for candidate in candidates.values() if candidate.speaker}
    return {name for name in speakers if (terms := terms_of(name)) and all(term in query.terms for term in terms)}


class Unindexed(NamedTuple):
    """Unindexed texts with any word that is asked for, best first, and the statistics of all texts."""

    documents: list[SearchDocument]
    figures: Figures


def weigh_unindexed(
    pending: Iterable[SearchDocument],
    weights: Mapping[str, float],
    size: IndexSize,
    frequencies: Mapping[str, int],
    matches: Callable[[SearchDocument], bool],
) -> Unindexed:
    """Return the pending texts that match, best first; ``frequencies`` are the index's own."""
    pairs = [term for term in weights if is_dense(term)]
    found: list[tuple[SearchDocument, dict[str, int]]] = []
    holding = Counter(frequencies)
    total = terms = 0
    for document in pending:
        total += 1
        if not matches(document):
            continue
        counts, length = counted(document.text, document.plain, weights, pairs)
        holding.update(counts.keys())
        terms += length
        found.append((document, counts))
    average = size.average_length
    if found:
        average = (average * size.documents + terms) / (size.documents + len(found))
    figures = Figures(size.documents + total, max(1.0, average), holding)
    worth = {term: weight * figures.idf(term) for term, weight in weights.items()}
    found.sort(key=lambda one: (-sum(worth[term] for term in one[1]), -one[0].ts, -one[0].seq))
    return Unindexed([document for document, _ in found], figures)
