"""Choosing what a summary says: sections by their shares, key lines by what they add, until the budget is full.

Key lines are a cover, not a list: a line is worth the entities on it that stand nowhere else yet, per token. Ties and
orders are settled by position, so that the same input always gives the same summary.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from everlong.context.summary.document import SECTIONS, SHARES, SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.outline import MUST, Candidate, KeyLine, Outline
from everlong.context.summary.text import clip
from everlong.context.summary.trace import NO_TRACE, Trace

_USERS_OWN = frozenset({"Goal", "Constraints & Preferences", "Pending User Asks"})
_PROSE_TOKENS = 250
_USERS_TOKENS = 900
_BEYOND = 0.15
"""Up to so many tokens shares are of the whole budget; of what is beyond, sections claim little: lines say more."""
_FOCUS_SHARE = 0.65
_MOST_CANDIDATES = 3_000
"""Per section: what is worth less is not weighed, so that the choice stays linear in the conversation."""

_WORD = re.compile(r"[A-Za-z0-9_]{3,}|[\u3400-\u9fff]")
_HEADING_TOKENS = 5
_LEAST_ALLOWANCE = 24
_WORTH_USING = 16
_SHORTEST_LINE = 12
_SPOKEN = 2.0
_SECOND_SIGHTING = {True: 0.2, False: 0.1}
"""What an entity adds that is already said once: more if a person or the assistant says it, for they say what for."""
_COMPANY = 0.2
_RECURRENCE = 0.6
_ESSENTIAL = 3.5
"""What is worth this much is cut short rather than left out."""


def select(
    outline: Outline,
    budget: int,
    count: Callable[[str], int],
    focus: str | None,
    known: Iterable[str] = (),
    trace: Trace = NO_TRACE,
) -> SummaryDocument:
    """The document that makes the most of a budget.

    Entities that are known stand beside it already; the trace is told of every decision.
    """
    selection = _Selection(budget, count, focus, trace)
    selection.know(known)
    pools = _pools(outline.candidates)
    if focus:
        related = [c for pool in pools.values() for c in pool if selection.relates(c.text)]
        lines = [key_line for key_line in outline.key_lines() if selection.relates(key_line.line.text)]
        selection.take(sorted(related, key=_by_worth), int(budget * _FOCUS_SHARE * 0.6))
        selection.take_lines(lambda: lines, outline.length, int(budget * _FOCUS_SHARE) - selection.spent)
    musts = sorted((c for pool in pools.values() for c in pool if c.worth >= MUST), key=_by_worth)
    selection.take(musts[:1], max(_LEAST_ALLOWANCE, budget // 6))
    selection.take(musts[1:], budget // 4)
    for section in SECTIONS:
        if section != "Critical Context":
            selection.take(pools.get(section, ()), _allowance(section, budget))
    selection.take_lines(outline.key_lines, outline.length, budget - selection.spent)
    selection.take(sorted((c for pool in pools.values() for c in pool), key=_by_worth), budget - selection.spent)
    selection.use_up()
    return selection.document()


def _allowance(section: str, budget: int) -> int:
    base = _USERS_TOKENS if section in _USERS_OWN else _PROSE_TOKENS
    claimed = min(budget, base) + max(0, budget - base) * _BEYOND
    least = 0 if section == "Tools & Patterns" else _LEAST_ALLOWANCE
    return max(least, int(claimed * SHARES[section]))


def _by_worth(candidate: Candidate) -> tuple[float, int]:
    return (-candidate.worth, -candidate.order)


def _pools(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    by_section: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_section.setdefault(candidate.section, []).append(candidate)
    return {section: heapq.nsmallest(_MOST_CANDIDATES, pool, key=_by_worth) for section, pool in by_section.items()}


class _Selection:
    """What has been chosen so far, and what it costs."""

    def __init__(self, budget: int, count: Callable[[str], int], focus: str | None, trace: Trace) -> None:
        self.budget = budget
        self.spent = 0
        self._count = count
        self._trace = trace
        self._focus = set(_WORD.findall((focus or "").lower()))
        self._chosen: dict[str, list[tuple[bool, float, str]]] = {section: [] for section in SECTIONS}
        self._texts: set[str] = set()
        self._covered: Counter[str] = Counter()
        self._waiting: list[tuple[float, int, KeyLine]] = []
        self._gain: Callable[[KeyLine], float] = lambda _: 0.0

    def know(self, names: Iterable[str]) -> None:
        """Count these entities as said once."""
        self._covered.update(set(names))

    def relates(self, text: str) -> bool:
        """Whether a text speaks of the focus topic."""
        return bool(self._focus) and not self._focus.isdisjoint(_WORD.findall(text.lower()))

    def take(self, candidates: Iterable[Candidate], allowance: int) -> None:
        """Choose the first candidates that fit an allowance."""
        left = min(allowance, self.budget - self.spent)
        misses = 0
        for candidate in candidates:
            if left < 8 or misses > 24:
                break
            text = candidate.text
            cost = self._cost(candidate.section, text)
            if cost > left and candidate.worth >= _ESSENTIAL:
                text = clip(text, left * 2)
                cost = self._cost(candidate.section, text)
            if self._is_new(candidate.text) and self._is_new(text) and cost <= left:
                self._add(candidate.section, candidate.order, text, cost)
                self._texts.add(candidate.text.casefold())
                self._trace.took(candidate, text, candidate.worth)
                left -= cost
            else:
                self._trace.passed(candidate, cost, left)
                misses += cost > left

    def take_lines(self, key_lines: Callable[[], Iterable[KeyLine]], length: int, allowance: int) -> None:
        """Choose lines greedily by the worth of the entities that each adds per token."""
        left = min(allowance, self.budget - self.spent)
        if left < _SHORTEST_LINE:
            return
        worth = _entity_worth(key_lines())
        self._gain = partial(_gain, worth=worth, covered=self._covered, size=max(1, length))
        gains = ((-self._gain(key_line), -place, key_line) for place, key_line in enumerate(key_lines()))
        self._waiting = heapq.nsmallest(max(64, left), (entry for entry in gains if entry[0] < 0))
        heapq.heapify(self._waiting)
        self._trace.weighed(key_lines, self._gain, self._waiting)
        self._take_waiting(left)

    def _take_waiting(self, left: int) -> None:
        heap = self._waiting
        while heap and left >= _SHORTEST_LINE:
            _, tie, key_line = heapq.heappop(heap)
            gain = self._gain(key_line)
            if gain <= 0:
                self._trace.passed(key_line, 0, left)
                continue
            if heap and -gain > heap[0][0] + 1e-9:  # others add more by now: look at this one again later
                heapq.heappush(heap, (-gain, tie, key_line))
                continue
            text = _as_item(key_line.line.text)
            cost = self._cost("Critical Context", text)
            if cost <= left and self._is_new(text):
                self._add("Critical Context", key_line.order, text, cost)
                self._trace.took(key_line, text, gain)
                left -= cost
            else:
                self._trace.passed(key_line, cost, left)

    def use_up(self) -> None:
        """Choose more lines for what is left: items cost a little less together than one by one."""
        for _ in range(2):
            left = self.budget - self._count(self.document().render())
            if left < _WORTH_USING:
                break
            self._take_waiting(left)

    def document(self) -> SummaryDocument:
        """The chosen items in order of time, what relates to the focus first."""
        document = SummaryDocument()
        for section, chosen in self._chosen.items():
            document.items[section] = [text for _, _, text in sorted(chosen, key=lambda entry: entry[:2])]
        return document

    def _cost(self, section: str, text: str) -> int:
        return self._count(text) + 1 + (0 if self._chosen[section] else _HEADING_TOKENS)

    def _is_new(self, text: str) -> bool:
        return text.casefold() not in self._texts

    def _add(self, section: str, order: float, text: str, cost: int) -> None:
        self._chosen[section].append((not self.relates(text), order, text))
        self._texts.add(text.casefold())
        self._covered.update(set(entities(text)))
        self.spent += cost


def _entity_worth(key_lines: Iterable[KeyLine]) -> dict[str, float]:
    """What each entity is worth: more if a person or the assistant wrote it, and if it recurs."""
    seen: Counter[str] = Counter()
    best: dict[str, float] = {}
    for _, line, weight in key_lines:
        for name in line.entities:
            seen[name] += 1
            if weight > best.get(name, 0.0):
                best[name] = weight
    return {name: best[name] * (1.0 + _RECURRENCE * math.log2(count)) * _telling(name) for name, count in seen.items()}


def _telling(name: str) -> float:
    """How much a name says by itself: 43 may be anything, 8437 hardly."""
    return min(1.0, 0.15 * len(name) ** 1.5) if name.isdigit() else 1.0


def _gain(key_line: KeyLine, worth: dict[str, float], covered: Counter[str], size: int) -> float:
    """What a line adds per character: first sightings count in full, second ones a little, more not at all.

    Plain words around the names add to it, because a name is of no use without what it was about.
    """
    sightings = (1.0, _SECOND_SIGHTING[key_line.weight >= _SPOKEN], 0.0)
    added = sum(worth[name] * sightings[min(covered[name], 2)] for name in key_line.line.entities)
    if not added:
        return 0.0
    recency = 0.5 + 0.5 * max(0.0, key_line.order) / size
    return added * recency * (1.0 + _COMPANY * key_line.line.words) / (len(key_line.line.text) + 16)


def _as_item(line: str) -> str:
    """A line as an item: as it is, unless it would be mistaken for a heading or another bullet."""
    return f"- {line}" if line[0] in "#-*•" else line
