"""The ranking of hits: BM25 over passages, and what a conversation tells beyond the words.

A text counts by its best passage, so a long answer and a short message compete alike. What a person said counts more
than what an assistant made of it. A short turn lends weight to the turns beside it for what they do not say themselves.
A question that names a speaker means what that speaker said. Texts that say the same share a place; of a fact that was
updated, the newest version comes first and the older one right after it. Pure functions over texts that are already
loaded: no database, no clock, the same order every time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

from everlong.store.search.query import Query
from everlong.store.search.text import SHORT, Span, counted, folded, is_dense, terms_of

Shape = Literal["dialogue", "chat", "agent"]
"""The kind of a conversation: people with names, a person and an assistant, or an agent with tools."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the ranking; `bench.store.retrieval --ablation` shows what each of them brings."""

    saturation: float = 1.2
    """BM25's k1: how soon a repeated word counts no more."""
    length: float = 0.75
    """BM25's b: how much the length of a passage counts against it."""
    coverage: float = 0.3
    """The share that a passage gains if it has all that is asked."""
    person: float = 2.5
    """A person's words in answer to a question, beside those of an assistant."""
    agent_person: float = 1.3
    """The same in a conversation of an agent with tools."""
    keyword_person: float = 1.15
    """A person's words in answer to a query that is no question."""
    speaker: float = 2.0
    """The words of a speaker whom the question names."""
    after: float = 0.5
    """The share of its score that a short turn lends to the one after it."""
    agent_after: float = 0.3
    """The same in a conversation of an agent with tools."""
    answer: float = 0.1
    """The additional share if that turn ends with a question mark."""
    before: float = 0.2
    """The share that it lends to the one before it."""
    second: float = 0.1
    """The share that it lends to the one after the next."""
    summary: float = 0.8
    system: float = 0.7
    literal: float = 1.0
    """A path or an identifier as it was typed."""
    start: float = 3.0
    """The rarity of a single character of dense script."""
    shares_places: bool = True
    """True if texts that say the same share a place."""


WEIGHTS = Weights()

LENDERS = 8
"""The best short texts that lend weight to their neighbours."""

COMPARED = 14
"""The first texts of a ranking that are compared with each other."""

SAME, SIMILAR = 0.85, 0.55
"""The shares of common words from which two passages say the same, and from which one may update the other."""

_DIGIT = re.compile(r"\d")


class SearchCandidate(NamedTuple):
    """One loaded document: its text, the passages of it that compete, who said it, and where."""

    seq: int
    text: str
    spans: Sequence[Span]
    role: str
    speaker: str
    branch: int
    ts: float

    @property
    def is_short(self) -> bool:
        """True if the text is one passage."""
        return len(self.text) <= SHORT

    @property
    def is_asked(self) -> bool:
        """True if it ends with a question mark."""
        return self.text.rstrip().endswith(("?", "？"))


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics of all passages: how many, how long, and in how many each term stands."""

    passages: int
    average_length: float
    frequencies: Mapping[str, int]

    def idf(self, term: str) -> float:
        """Return the weight of a term: the fewer passages it stands in, the more."""
        return self.rarity(self.frequencies.get(term, 0))

    def rarity(self, holding: int) -> float:
        """Return the weight of something that stands in so many passages."""
        among = max(self.passages, 1)
        holding = min(holding, among)
        return math.log(1 + (among - holding + 0.5) / (holding + 0.5))


class Ranked(NamedTuple):
    """A document in a ranking: its score, whether it matches itself or stands beside a match, its best passage."""

    seq: int
    score: float
    is_match: bool
    span: Span


class _OwnScore(NamedTuple):
    """The score of a text by itself, and its best passage: the place, the terms that are asked for, all terms."""

    score: float
    span: Span
    terms: frozenset[str]
    all_terms: frozenset[str]


_NOTHING = _OwnScore(0.0, Span(0, 0), frozenset(), frozenset())
_Links = Mapping[int, tuple[int | None, int | None]]


class Ranking:
    """The ranking of one query's candidates. Add candidates, then link those that lend, then sort."""

    def __init__(
        self,
        query: Query,
        terms: Mapping[str, float],
        figures: Figures,
        may_match: Callable[[str], bool],
        weights: Weights = WEIGHTS,
    ) -> None:
        self._query = query
        self._terms = terms
        self._figures = figures
        self._may_match = may_match
        self._weights = weights
        self._candidates: dict[int, SearchCandidate] = {}
        self._own: dict[int, _OwnScore] = {}
        self._shapes: dict[int, Shape] = {}
        self._named: set[str] = set()
        self._idfs: dict[str, float] = {}
        self._whole = 0.0
        self._pairs: list[str] = []
        self._literals: list[tuple[str, float]] = []
        self._plains: dict[tuple[int, Span], str] = {}

    def add(self, candidates: Sequence[SearchCandidate]) -> None:
        """Score candidates by themselves. They also say who speaks, and what kind of conversation it is."""
        self._shapes = _shapes_of(candidates)
        self._weigh_terms(candidates)
        for candidate in candidates:
            self._candidates[candidate.seq] = candidate
            self._own[candidate.seq] = self._score_alone(candidate)

    def add_neighbours(self, neighbours: Sequence[SearchCandidate], matching: Container[int]) -> None:
        """Add the candidates beside those that lend; only ``matching`` ones have any of the words themselves."""
        for candidate in neighbours:
            self._candidates[candidate.seq] = candidate
            self._own[candidate.seq] = self._score_alone(candidate) if candidate.seq in matching else _NOTHING

    def _weigh_terms(self, candidates: Sequence[SearchCandidate]) -> None:
        self._named = _named_speakers(self._query, candidates)
        silent = {term for name in self._named for term in terms_of(name)}
        idfs = {term: worth * self._figures.idf(term) for term, worth in self._terms.items() if term not in silent}
        if not idfs and silent:  # nothing but a name was asked for
            idfs = {term: self._figures.idf(term) for term in silent}
        self._idfs = idfs
        self._whole = sum(idfs.values())
        self._pairs = [term for term in idfs if is_dense(term)]
        for literal in self._query.literals:
            words = sum(idfs.get(term, 0.0) for term in set(terms_of(literal)))
            holding = sum(literal in self._plain(one, span) for one in candidates for span in one.spans)
            self._literals.append((literal, max(words, self._figures.rarity(holding))))

    def lenders(self) -> list[int]:
        """Return the short texts with the best scores: only these lend weight to their neighbours."""
        short = [seq for seq, own in self._own.items() if own.score > 0 and self._candidates[seq].is_short]
        return sorted(short, key=lambda seq: (-self._own[seq].score, -seq))[:LENDERS]

    def __contains__(self, seq: object) -> bool:
        return seq in self._candidates

    def sort(self, links: _Links | None = None, dense: Mapping[int, float] | None = None) -> list[Ranked]:
        """Return the candidates with a score, best first.

        ``links`` are the neighbours of lenders, before and after. ``dense`` are scores by meaning, beside which the
        best candidate by words has 1.
        """
        lent = self._lend(links or {})
        scores: dict[int, float] = {}
        for seq, candidate in self._candidates.items():
            score = self._own[seq].score + lent.get(seq, 0.0)
            if score > 0:
                is_named = candidate.speaker in self._named and self._shapes.get(candidate.branch) == "dialogue"
                scores[seq] = score * self._weights.speaker if is_named else score
        if dense:
            best = max(scores.values(), default=1.0)
            scores = {seq: scores.get(seq, 0.0) / best + dense.get(seq, 0.0) for seq in (*scores, *dense)}
        found: list[Ranked] = []
        for seq, score in scores.items():
            own = self._own[seq]
            span = own.span if own.score else self._candidates[seq].spans[0]
            found.append(Ranked(seq, score, own.score > 0, span))
        found.sort(key=lambda one: (-round(one.score, 9), -self._candidates[one.seq].ts, -one.seq))
        return self._share_places(found) if self._weights.shares_places else found

    def _score_alone(self, candidate: SearchCandidate) -> _OwnScore:
        """Return the score of a candidate's best passage, with the weight of who said it."""
        best = _NOTHING
        for span in candidate.spans:
            said = candidate.text[span.start : span.stop]
            plain = self._plain(candidate, span)
            if len(candidate.spans) > 1 and not self._may_match(plain):
                continue
            counts, length, every = counted(said, plain, self._idfs.keys(), self._pairs)
            score = self._score(counts, length, plain)
            if score > best.score:
                best = _OwnScore(score, span, frozenset(counts), every)
        return best._replace(score=best.score * self._role_weight(candidate)) if best.score else best

    def _plain(self, candidate: SearchCandidate, span: Span) -> str:
        """Return a passage, folded; to fold characters beyond ASCII takes long."""
        key = candidate.seq, span
        if key not in self._plains:
            self._plains[key] = folded(candidate.text[span.start : span.stop])
        return self._plains[key]

    def _score(self, counts: Mapping[str, int], length: int, plain: str) -> float:
        """Return the BM25 score of a passage, with more if it has more of what was asked."""
        k1, b = self._weights.saturation, self._weights.length
        damping = k1 * (1 - b + b * length / self._figures.average_length)
        idfs = self._idfs
        score = sum(idfs[term] * count * (k1 + 1) / (count + damping) for term, count in counts.items())
        if self._whole > 0:
            score *= 1 + self._weights.coverage * sum(idfs[term] for term in counts) / self._whole
        for start in self._query.starts:
            if count := plain.count(start):
                score += self._weights.start * count * (k1 + 1) / (count + damping)
        if score and self._literals:
            line = " ".join(plain.split())
            score += sum(self._weights.literal * worth for literal, worth in self._literals if literal in line)
        return score

    def _role_weight(self, candidate: SearchCandidate) -> float:
        weights, shape = self._weights, self._shapes.get(candidate.branch, "chat")
        person = weights.person if self._query.is_question else weights.keyword_person
        match candidate.role:
            case "user" | "assistant" if shape == "dialogue":
                return person
            case "user":
                return min(person, weights.agent_person) if shape == "agent" else person
            case "summary":
                return weights.summary
            case "system" | "developer":
                return weights.system
            case _:
                return 1.0

    def _lend(self, links: _Links) -> dict[int, float]:
        """Return the weight that each candidate has from its neighbours."""
        lent: dict[int, float] = {}
        weights = self._weights
        after_of = {seq: after for seq, (_, after) in links.items()}
        after_of |= {before: seq for seq, (before, _) in links.items() if before is not None}
        for seq, (before, after) in links.items():
            own = self._own.get(seq, _NOTHING)
            if not own.score or not self._candidates[seq].is_short:
                continue
            shape = self._shapes.get(self._candidates[seq].branch)
            share = weights.agent_after if shape == "agent" else weights.after
            share += weights.answer if self._candidates[seq].is_asked else 0.0
            second = after_of.get(after) if after is not None else None
            for to, part in ((before, weights.before), (after, share), (second, weights.second)):
                if to is not None and to in self._candidates:
                    lacking = self._share_lacking(own.terms, self._own[to].terms)
                    lent[to] = lent.get(to, 0.0) + part * own.score * lacking
        return lent

    def _share_lacking(self, there: frozenset[str], here: frozenset[str]) -> float:
        """Return the share of a neighbour's weight that this text lacks: what both say counts once."""
        if there.isdisjoint(here):
            return 1.0
        whole = sum(self._idfs[term] for term in there)
        return sum(self._idfs[term] for term in there - here) / whole if whole > 0 else 0.0

    def _share_places(self, found: list[Ranked]) -> list[Ranked]:
        """Return a ranking in which repetitions follow all others, and versions of a fact each other, newest first."""
        places: list[list[Ranked]] = []
        repeated: list[Ranked] = []
        for one in found[:COMPARED]:
            for place in places:
                relation = self._relation(one.seq, place[0].seq)
                if relation is not None:
                    (repeated if relation == "same" else place).append(one)
                    break
            else:
                places.append([one])
        for place in places:
            place.sort(key=lambda one: (-self._candidates[one.seq].ts, -one.seq))
        return [*chain.from_iterable(places), *found[COMPARED:], *repeated]

    def _relation(self, seq: int, best: int) -> Literal["same", "update"] | None:
        """Return whether a text says the same as a better one, or the same with other values.

        A text that lacks a word that was asked for is no version of one that has it: its value is not the one meant.
        """
        own, other = self._own[seq], self._own[best]
        return _relation(own.all_terms, other.all_terms) if other.terms <= own.terms else None


def _relation(one: frozenset[str], other: frozenset[str]) -> Literal["same", "update"] | None:
    """Return whether two passages, by their terms, say the same, or the same with other values."""
    ours, theirs = len(one), len(other)
    if not ours or min(ours, theirs) < SIMILAR * max(ours, theirs):
        return None
    common = len(one & other)
    alike = common / (ours + theirs - common)
    if alike < SIMILAR:
        return None
    if any(map(_DIGIT.search, one ^ other)):
        return "update"
    return "same" if alike >= SAME else None


def _shapes_of(candidates: Iterable[SearchCandidate]) -> dict[int, Shape]:
    """Return the kind of each branch: by tools in it, and by the names before what is said."""
    said: Counter[int] = Counter()
    named: Counter[int] = Counter()
    tools: set[int] = set()
    for candidate in candidates:
        if candidate.role == "tool":
            tools.add(candidate.branch)
        elif candidate.role in {"user", "assistant"}:
            said[candidate.branch] += 1
            named[candidate.branch] += bool(candidate.speaker)
    shapes: dict[int, Shape] = {}
    for branch, count in said.items():
        shapes[branch] = "dialogue" if 2 * named[branch] > count else "chat"
    for branch in tools:
        shapes[branch] = "agent"
    return shapes


def _named_speakers(query: Query, candidates: Iterable[SearchCandidate]) -> set[str]:
    """Return the speakers whose names stand in the query."""
    speakers = {candidate.speaker for candidate in candidates if candidate.speaker}
    return {name for name in speakers if (terms := terms_of(name)) and all(term in query.terms for term in terms)}


def rank(
    query: Query,
    terms: Mapping[str, float],
    candidates: Sequence[SearchCandidate],
    figures: Figures,
    may_match: Callable[[str], bool],
    weights: Weights = WEIGHTS,
) -> list[Ranked]:
    """Return candidates with a score, best first, by themselves and without what neighbours lend."""
    ranking = Ranking(query, terms, figures, may_match, weights)
    ranking.add(candidates)
    return ranking.sort()
