"""Choosing what a summary says: sections by their shares, key lines by what they add, until the budget is full.

Key lines are a cover, not a list: a line is worth the entities on it that stand nowhere else yet, per token. Ties and
orders are settled by position, so that the same input always gives the same summary.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from everlong.context.summary.document import SECTIONS, SHARES, SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.gains import Gains
from everlong.context.summary.outline import MUST, Candidate, KeyLine, LineGroup, Outline, all_lines
from everlong.context.summary.text import clip
from everlong.context.summary.trace import NO_TRACE, Trace

_USERS_OWN = frozenset({"Goal", "Constraints & Preferences", "Pending User Asks"})
_PROSE_TOKENS = 250
_USERS_TOKENS = 1_600
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
        every = all_lines(outline.line_groups())
        lines = [LineGroup(at, weight, (line,)) for at, line, weight in every if selection.relates(line.text)]
        selection.take(sorted(related, key=_by_worth), int(budget * _FOCUS_SHARE * 0.6))
        selection.take_lines(lines, outline.length, int(budget * _FOCUS_SHARE) - selection.spent)
    musts = sorted((c for pool in pools.values() for c in pool if c.worth >= MUST), key=_by_worth)
    newest_share = 1 / 2 if outline.quotes_newest else 1 / 6
    selection.take(musts[:1], max(_LEAST_ALLOWANCE, int(budget * newest_share)))
    selection.take(musts[1:], budget // 4)
    for section in SECTIONS:
        if section != "Critical Context":
            selection.take(pools.get(section, ()), _allowance(section, budget))
    selection.take_lines(outline.line_groups(), outline.length, budget - selection.spent)
    selection.take(heapq.merge(*pools.values(), key=_by_worth), budget - selection.spent)
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
        self._gains: Gains | None = None

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

    def take_lines(self, groups: Sequence[LineGroup], length: int, allowance: int) -> None:
        """Choose lines greedily by the worth of the entities that each adds per token."""
        left = min(allowance, self.budget - self.spent)
        if left < _SHORTEST_LINE:
            return
        self._gains = Gains(groups, self._covered, length)
        self._waiting = self._gains.best(groups, max(64, left))
        heapq.heapify(self._waiting)
        self._trace.weighed(groups, self._gains.of, self._waiting)
        self._take_waiting(left)

    def _take_waiting(self, left: int) -> None:
        heap, gains = self._waiting, self._gains
        while gains and heap and left >= _SHORTEST_LINE:
            _, tie, key_line = heapq.heappop(heap)
            gain = gains.of(key_line)
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
        names = set(entities(text))
        self._covered.update(names)
        if self._gains:
            self._gains.cover(names)
        self.spent += cost


def _as_item(line: str) -> str:
    """A line as an item: as it is, unless it would be mistaken for a heading or another bullet."""
    return f"- {line}" if line[0] in "#-*•" else line
