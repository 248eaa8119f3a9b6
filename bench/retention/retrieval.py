"""A plain search over the past for the facts of a later turn: the floor that a store has to beat.

The query is the later message with the fact masked, any of its words may match, and messages are ranked by BM25. A fact
is found if one of the first five messages states it. Knows nothing of compaction.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Sequence

from bench.retention.entities import sightings, stands
from bench.retention.facts import Fact, Transcript
from bench.retention.measures import Share
from bench.retention.texts import emitted

TOP = 5
_SATURATION, _LENGTH = 1.2, 0.75
_WORD = re.compile(r"\w+")


class Index:
    """Texts that can be searched for the words of a query."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._lengths = []
        for place, text in enumerate(texts):
            words = Counter(_words(text))
            self._lengths.append(words.total())
            for word, count in words.items():
                self._postings.setdefault(word, []).append((place, count))

    def search(self, query: str, top: int = TOP) -> list[int]:
        """Return the places of the best texts, best first; of equals, the newest."""
        size = len(self._lengths)
        mean = sum(self._lengths) / max(1, size) or 1.0
        scores: dict[int, float] = {}
        for word in set(_words(query)):
            postings = self._postings.get(word, ())
            weight = math.log(1 + (size - len(postings) + 0.5) / (len(postings) + 0.5))
            for place, count in postings:
                dampened = count + _SATURATION * (1 - _LENGTH + _LENGTH * self._lengths[place] / mean)
                scores[place] = scores.get(place, 0.0) + weight * count * (_SATURATION + 1) / dampened
        return heapq.nlargest(top, scores, key=lambda place: (scores[place], place))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def masked(text: str, fact: str) -> str:
    """Return a text without a fact."""
    pieces, start = [], 0
    for place in sightings(text, fact):
        if place >= start:
            pieces.append(text[start:place])
            start = place + len(fact)
    return " ".join([*pieces, text[start:]])


def found_facts(transcript: Transcript, cut: int, facts: Sequence[Fact]) -> Share:
    """Return how many of the facts needed after a cut are found by a search over the messages before it."""
    past = transcript.text.parts[:cut]
    index = Index(past)
    said = {fact.used_at: emitted(transcript.messages[fact.used_at]) for fact in facts}
    found = (
        any(stands(past[place], fact.text) for place in index.search(masked(said[fact.used_at], fact.text)))
        for fact in facts
    )
    return Share(sum(found), len(facts))
