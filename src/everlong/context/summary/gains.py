"""What each line would still add to a summary: the worth of its entities that are not said yet, per character.

Looks at every line of a conversation, so its loops are written to run in few steps. Knows nothing of budgets; which
lines are taken is not decided here.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat

from everlong.context.summary.outline import KeyLine, LineGroup

_SIGHTINGS = (1.0, 0.3, 0.0)
"""What an entity adds that is not yet said, said once, said more often."""
_SPOKEN, _SPOKEN_AGAIN = 2.0, 0.1
"""By lines of so much weight, which say what it was about, an entity that is said once adds so much more."""
_RECURRENCE = 0.6
_COMPANY = 0.4

Waiting = tuple[float, int, KeyLine]
"""A line with its gain and its place, both negative, so that the best and newest comes first."""


class Gains:
    """The gains of lines, as more and more entities are said."""

    def __init__(self, groups: Sequence[LineGroup], said: Mapping[str, int], length: int) -> None:
        self._size = max(1, length)
        self._said = said
        self._adds = _entity_worth(groups)
        """What each entity adds now; what it was worth before it was said is kept apart, for those are few."""
        self._worth: dict[str, float] = {}
        self._again: dict[str, float] = {}
        """What an entity that is said once adds besides, where a person or the assistant says it again."""
        self.cover(said)

    def cover(self, names: Iterable[str]) -> None:
        """Take into account that these entities are said once more by now."""
        for name in names:
            adds = self._adds.get(name)
            if adds is not None:
                worth = self._worth.setdefault(name, adds)
                times = self._said[name]
                self._adds[name] = worth * _SIGHTINGS[min(times, 2)]
                self._again[name] = worth * _SPOKEN_AGAIN if times == 1 else 0.0

    def of(self, key_line: KeyLine) -> float:
        """What a line adds per character: first sightings count in full, second ones a little, more not at all."""
        order, (text, names, words, _), weight, _ = key_line
        added = sum(map(self._adds.__getitem__, names))
        if weight >= _SPOKEN:
            added += self._added_again(names)
        return self._gain(added, order, text, words)

    def best(self, groups: Sequence[LineGroup], most: int) -> list[Waiting]:
        """The lines that add most, at most so many; of equal ones the newest."""
        gains = array("d", self._all(groups))
        least = min(heapq.nlargest(most, gains), default=0.0)
        places = [place for place, gain in enumerate(gains) if gain >= least and gain > 0]
        surplus = len(places) - most  # of equal ones the oldest are too many
        ends = array("q", accumulate(len(group.lines) for group in groups))
        found: list[Waiting] = []
        for place in places:
            if surplus > 0 and gains[place] == least:
                surplus -= 1
                continue
            at = bisect_right(ends, place)
            found.append((-gains[place], -place, groups[at].key_line(place - ends[at])))
        return found

    def _all(self, groups: Iterable[LineGroup]) -> Iterator[float]:
        adds, gain = self._adds.__getitem__, self._gain
        for order, weight, lines, _ in groups:
            is_spoken = weight >= _SPOKEN
            for place, (text, names, words, _) in enumerate(lines):
                added = sum(map(adds, names))
                if is_spoken:
                    added += self._added_again(names)
                yield gain(added, order + place / 1_000, text, words) if added else 0.0

    def _added_again(self, names: Iterable[str]) -> float:
        again = self._again
        return sum([again[name] for name in names if name in again])

    def _gain(self, added: float, order: float, text: str, words: int) -> float:
        # Plain words around the names add to a gain, because a name is of no use without what it was about.
        recency = 0.5 + 0.5 * max(0.0, order) / self._size
        return added * recency * (1.0 + _COMPANY * words) / (len(text) + 16)


def _entity_worth(groups: Sequence[LineGroup]) -> dict[str, float]:
    """What each entity is worth: more if a person or the assistant wrote it, and if it recurs."""
    worth: dict[str, float] = {}
    for weight in sorted({group.weight for group in groups}):
        worth.update(zip(_names(group for group in groups if group.weight == weight), repeat(weight)))
    for name, count in Counter(_names(groups)).items():
        worth[name] = worth[name] * (1.0 + _RECURRENCE * math.log2(count)) * _telling(name)
    return worth


def _names(groups: Iterable[LineGroup]) -> Iterator[str]:
    return chain.from_iterable(line.entities for group in groups for line in group.lines)


def _telling(name: str) -> float:
    """How much a name says by itself: 43 may be anything, 8437 hardly."""
    return min(1.0, 0.15 * len(name) ** 1.5) if name.isdigit() else 1.0
