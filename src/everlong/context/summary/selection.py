"""The selection: candidates, tasks and key lines that make the most of a token budget.

Sections are filled by their shares, then key lines by what they add. A key line is worth the entities on it that stand
nowhere else yet, per character. Lines are grouped under their source, and the first line of a source pays for naming
it. Ties are broken by position, so the same input always gives the same summary.
"""

from __future__ import annotations

import heapq
import math
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat
from operator import attrgetter
from typing import NamedTuple

from everlong.context.summary.actions import is_failure
from everlong.context.summary.clauses import cut_at_clause, is_code, without_emphasis
from everlong.context.summary.document import CONSTRAINTS, SECTIONS, SHARES, SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.key_lines import KeyLine, LineGroup, MessageLine, all_lines
from everlong.context.summary.language import ALL
from everlong.context.summary.outline import MUST, Candidate, Outline
from everlong.context.summary.tasks import Chronicle
from everlong.context.summary.trace import NO_TRACE, SummaryTrace, Waiting

_USERS_OWN = frozenset({"Goal", CONSTRAINTS, "Pending User Asks"})
_PROSE_TOKENS = 600
_USERS_TOKENS = 4_000
_TALK_SHARE, _WORK_SHARE = 0.85, 0.2
"""The chronicle's share of the budget: nearly all of a talk, a part of work with tools."""
_TIGHT_SHARE, _TIGHT_TOKENS = 0.5, 2_000
"""In a small budget the chronicle of work takes half: files can be read again, a person's words cannot."""
_OUTCOME_SHARE = 0.5
_BEYOND = 0.15
"""Sections get their full share of a small budget. Of what lies beyond, they get this part: lines say more."""
_FOCUS_SHARE = 0.65
_MOST_CANDIDATES = 3_000
"""The most candidates weighed per section, so that the work stays linear in the conversation."""
_WORD = re.compile(r"[A-Za-z0-9_]{3,}|[\u3400-\u9fff]")
_LINE_NUMBER = re.compile(r"^\s*\d+\s*[→:|\t ]?")
_SAYS = re.compile(r"[^\W_]{2}")
_HEADING_TOKENS = 5
_LEAST_ALLOWANCE = 24
_SMALL_SHARE = 0.03
_WORTH_USING = 16
_SHORTEST_LINE = 12
_NO_REPEATS = frozenset({CONSTRAINTS, "Key Decisions"})
_REPEATED = 0.6
_VARIANT, _PLAIN_VARIANT = 0.5, 0.7
"""The share of words that make one item a variant of another: with figures, and without."""
_MOST_FOLDED = 200
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_FIGURE = re.compile(r"\d[\w.,:/%-]*\b|\d")
_COMMON = re.compile(r"the|and|for|with|that|this|from|have|has|are|can|using|used?|its|not|but|there|want|need")
_TOOLS = re.compile(r"- (?:(?:I|We)(?:'m|'re| am| are) )(?:\w+ )?using (?=.*[A-Z])")
_NAME = re.compile(r"[A-Z][^\W_]+")
_USER_SAYS = tuple(f"{phrases.user_said}:" for phrases in ALL)
_SENTENCE_SPACES = 4
"""A line of a talk with fewer spaces is a title or an item of a list."""
_WRITTEN_WEIGHT = 3.0
"""From this weight on, a line was written by a person or a model."""
_ESSENTIAL = 3.5
"""From this worth on, a candidate is cut short rather than left out."""


def select(
    outline: Outline,
    budget: int,
    count: Callable[[str], int],
    focus: str | None,
    known: Iterable[str] = (),
    trace: SummaryTrace = NO_TRACE,
) -> SummaryDocument:
    """Return the document that makes the most of a budget.

    Entities in ``known`` already stand beside the summary. The trace is told of every decision.
    """
    selection = _Selection(budget, count, focus, trace)
    selection.count_as_said(known)
    pools = _candidates_by_section(outline.candidates)
    if focus:
        related = [c for pool in pools.values() for c in pool if selection.relates(c.text)]
        every = all_lines(outline.line_groups())
        lines = [
            LineGroup(at, weight, (line,), source) for at, line, weight, source in every if selection.relates(line.text)
        ]
        selection.take(sorted(related, key=_by_worth), int(budget * _FOCUS_SHARE * 0.6))
        selection.take_lines(lines, outline.length, int(budget * _FOCUS_SHARE) - selection.spent)
    musts = sorted((c for pool in pools.values() for c in pool if c.worth >= MUST), key=_by_worth)
    newest_share = 1 / 2 if outline.quotes_newest else 1 / 4
    selection.take(musts[:1], max(_LEAST_ALLOWANCE, int(budget * newest_share)))
    selection.take(musts[1:], budget // 4)
    own = _USERS_OWN if outline.at_work else _USERS_OWN | {"Key Decisions"}
    for section in sorted(SECTIONS, key=lambda section: section not in own):  # the person's own sections first
        if section == "Done":
            selection.take_chronicle(outline)
        if section != "Critical Context":
            selection.take(pools.get(section, ()), _allowance(budget, SHARES[section], is_own=section in own))
    selection.take_lines(outline.line_groups(), outline.length, budget - selection.spent)
    selection.take(heapq.merge(*pools.values(), key=_by_worth), budget - selection.spent)
    selection.use_up()
    return selection.document()


def _allowance(budget: int, share: float, *, is_own: bool) -> int:
    base = _USERS_TOKENS if is_own else _PROSE_TOKENS
    claimed = min(budget, base) + max(0, budget - base) * _BEYOND
    least = _LEAST_ALLOWANCE if share > _SMALL_SHARE else 0
    return max(least, int(claimed * share))


def _chronicle_tokens(budget: int, *, at_work: bool) -> int:
    """Return the chronicle's part of a budget, in tokens."""
    base = min(budget, _USERS_TOKENS) + max(0, budget - _USERS_TOKENS) * _BEYOND
    if not at_work:
        return int(base * _TALK_SHARE)
    return int(max(base * _WORK_SHARE, min(budget, _TIGHT_TOKENS) * _TIGHT_SHARE))


def _by_worth(candidate: Candidate) -> tuple[float, int]:
    return (-candidate.worth, -candidate.order)


def _candidates_by_section(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    by_section: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_section.setdefault(candidate.section, []).append(candidate)
    pools = {section: heapq.nsmallest(_MOST_CANDIDATES, pool, key=_by_worth) for section, pool in by_section.items()}
    return {section: _fold_variants(pool) if section in _NO_REPEATS else pool for section, pool in pools.items()}


class _Content(NamedTuple):
    """The figures and words of an item, for recognising variants."""

    figures: frozenset[str]
    words: frozenset[str]

    @staticmethod
    def of(text: str) -> _Content:
        """Return the content of an item; of a sentence on tools in use, only the names of the tools."""
        tools = _TOOLS.match(text)
        plain = text.lower()
        said = map(str.lower, _NAME.findall(text, tools.end())) if tools else _LETTERS.findall(plain)
        words = (word.rstrip("s") for word in said if not _COMMON.fullmatch(word))
        return _Content(frozenset(_FIGURE.findall(plain)), frozenset(words))

    def is_in(self, other: _Content) -> bool:
        """Return whether another content has all figures of this one, and enough of its words."""
        shared = len(self.words & other.words)
        share = _VARIANT if self.figures else _PLAIN_VARIANT
        return self.figures <= other.figures and shared >= max(1, share * len(self.words))


def _fold_variants(pool: Sequence[Candidate]) -> list[Candidate]:
    """Return the pool without variants of items worth more; a variant with more figures takes the item's place."""
    kept: list[Candidate] = []
    contents: list[_Content] = []
    for candidate in pool:
        mine = _Content.of(candidate.text)
        near = [] if candidate.worth >= MUST else contents[:_MOST_FOLDED]
        place = next((at for at, other in enumerate(near) if mine.is_in(other) or other.is_in(mine)), None)
        if place is None:
            kept.append(candidate)
            contents.append(mine)
        elif mine.figures > contents[place].figures and kept[place].worth < MUST:
            kept[place], contents[place] = candidate._replace(worth=kept[place].worth), mine
    return sorted(kept, key=_by_worth)


class _Selection:
    """The items chosen so far, and their cost."""

    def __init__(self, budget: int, count: Callable[[str], int], focus: str | None, trace: SummaryTrace) -> None:
        self.budget = budget
        self.spent = 0
        self._count = count
        self._trace = trace
        self._focus = set(_WORD.findall((focus or "").lower()))
        self._chosen: dict[str, list[tuple[bool, float, str]]] = {section: [] for section in SECTIONS}
        self._sources: dict[str, list[tuple[float, str]]] = {}
        """The chosen key lines of each source."""
        self._texts: set[str] = set()
        self._covered: Counter[str] = Counter()
        self._waiting: list[Waiting] = []
        self._gains: Gains | None = None
        self._at_work = True
        self._said_words: list[set[str]] = []

    def count_as_said(self, names: Iterable[str]) -> None:
        """Count entities as said once."""
        self._covered.update(set(names))

    def relates(self, text: str) -> bool:
        """Return whether a text mentions the focus topic."""
        return bool(self._focus) and not self._focus.isdisjoint(_WORD.findall(text.lower()))

    def take(self, candidates: Iterable[Candidate], allowance: int) -> None:
        """Choose the first candidates that fit an allowance."""
        left = min(allowance, self.budget - self.spent)
        misses = 0
        for candidate in candidates:
            if left < 8 or misses > 24:
                break
            text = candidate.text
            if candidate.section in _NO_REPEATS and candidate.worth < MUST and self._repeats(text):
                self._trace.note_passed(candidate, 0, left)
                continue
            cost = self._cost(candidate.section, text)
            if cost > left and candidate.worth >= _ESSENTIAL:
                text = cut_at_clause(text, left * 3)
                cost = self._cost(candidate.section, text)
            if self._is_new(candidate.text) and self._is_new(text) and cost <= left:
                self._add(candidate.section, candidate.order, text, cost)
                self._texts.add(_comparable(candidate.text))
                self._trace.note_taken(candidate, text, candidate.worth)
                left -= cost
            else:
                self._trace.note_passed(candidate, cost, left)
                misses += cost > left

    def take_chronicle(self, outline: Outline) -> None:
        """Choose the lines of the chronicle, and outcomes of the newest tasks within the room left."""
        self._at_work = outline.at_work
        allowance = min(_chronicle_tokens(self.budget, at_work=outline.at_work), self.budget - self.spent)
        stands = (*self._chosen["Goal"], *self._chosen[CONSTRAINTS])
        told = (text.removeprefix("- ") for _, _, text in stands)
        chronicle = Chronicle(outline.tasks, outline.phrases, outline.length, self._count, self._covered, told)
        spent = chronicle.choose(allowance, self.relates)
        chronicle.add_outcomes(min(int(allowance * _OUTCOME_SHARE), self.budget - self.spent - spent))
        for task, text in chronicle.lines():
            candidate = Candidate("Done", task.order, text, 1.0)
            if self._is_new(text):
                self._add("Done", task.order, text, self._cost("Done", text))
                self._trace.note_task(candidate, text)

    def take_lines(self, groups: Sequence[LineGroup], length: int, allowance: int) -> None:
        """Choose lines greedily by the worth of the entities that each adds."""
        left = min(allowance, self.budget - self.spent)
        if left < _SHORTEST_LINE:
            return
        self._gains = Gains(groups, self._covered, length)
        self._waiting = self._gains.best(max(64, left))
        self._trace.note_weighed(groups, self._gains.gain_of, self._gains.key_lines(self._waiting))
        heapq.heapify(self._waiting)
        self._take_waiting(left)

    def _take_waiting(self, left: int) -> None:
        heap, gains = self._waiting, self._gains
        while gains and heap and left >= _SHORTEST_LINE:
            _, tie = heap[0]
            gain = gains.gain_at(-tie)
            if gain <= 0:
                heapq.heappop(heap)
                if self._trace is not NO_TRACE:
                    self._trace.note_passed(gains.key_line(-tie), 0, left)
                continue
            # Below both children of the heap's first entry, its gain has fallen below another's: put it back.
            if len(heap) > 1 and -gain > (heap[1][0] if len(heap) == 2 else min(heap[1][0], heap[2][0])) + 1e-9:
                heapq.heapreplace(heap, (-gain, tie))
                continue
            heapq.heappop(heap)
            key_line = gains.key_line(-tie)
            text, source = without_emphasis(key_line.line.text), key_line.source
            cost = self._line_cost(text, source)
            if cost > left or text in source or not self._is_new(text) or not self._is_worth_quoting(key_line):
                self._trace.note_passed(key_line, cost, left)
                continue
            self._add_line(key_line, text, cost)
            self._trace.note_taken(key_line, text, gain)
            left -= cost

    def _is_worth_quoting(self, key_line: KeyLine) -> bool:
        """Return whether a line says something by itself; in a talk, code does not: it can be written again."""
        text = key_line.line.text
        if not _SAYS.search(_LINE_NUMBER.sub("", text)):
            return False
        if self._at_work or key_line.weight < _WRITTEN_WEIGHT:
            return True
        if is_code(text):
            return is_failure(text) and key_line.source.startswith(_USER_SAYS)
        return text.count(" ") >= _SENTENCE_SPACES and text[-1] not in ":：" and text[0] != "#"

    def _line_cost(self, text: str, source: str) -> int:
        cost = self._count(text) + 1 + (0 if self._sources else _HEADING_TOKENS)
        return cost + (self._count(source) + 1 if source and source not in self._sources else 0)

    def _add_line(self, key_line: KeyLine, text: str, cost: int) -> None:
        self._sources.setdefault(key_line.source, []).append((key_line.order, text))
        self._record(f"{key_line.source} {text}", text, cost)

    def use_up(self) -> None:
        """Choose more lines for the room left: items cost a little less together than one by one."""
        for _ in range(2):
            left = self.budget - self._count(self.document().render())
            if left < _WORTH_USING:
                break
            self._take_waiting(left)

    def document(self) -> SummaryDocument:
        """Return the chosen items as a document, those on the focus topic first, then by time."""
        document = SummaryDocument()
        for section, chosen in self._chosen.items():
            document.items[section] = [text for _, _, text in sorted(chosen, key=lambda entry: entry[:2])]
        document.items["Critical Context"] = [*self._grouped_lines(), *document.items["Critical Context"]]
        return document

    def _grouped_lines(self) -> list[str]:
        """Return the key lines as items, one per source: those on the focus topic first, then by time."""
        groups: list[tuple[bool, float, str]] = []
        for source, entries in self._sources.items():
            lines = [text for _, text in sorted(entries)]
            first = min(order for order, _ in entries)
            related = not any(map(self.relates, lines))
            if source:
                groups.append((related, first, "\n".join([source, *(f"  {line}" for line in lines)])))
            else:
                groups += [(not self.relates(line), order, _as_item(line)) for order, line in entries]
        return [text for _, _, text in sorted(groups)]

    def _cost(self, section: str, text: str) -> int:
        return self._count(text) + 1 + (0 if self._chosen[section] else _HEADING_TOKENS)

    def _repeats(self, text: str) -> bool:
        """Return whether an item's entities are all said, and most of its words by an item asked about before."""
        words = set(_WORD.findall(text.lower()))
        if any(name not in self._covered for name in entities(text)):
            return False
        if any(len(words & said) >= _REPEATED * len(words) for said in self._said_words):
            return True
        self._said_words.append(words)
        return False

    def _is_new(self, text: str) -> bool:
        return _comparable(text) not in self._texts

    def _add(self, section: str, order: float, text: str, cost: int) -> None:
        self._chosen[section].append((not self.relates(text), order, text))
        self._record(text, text, cost)

    def _record(self, said: str, text: str, cost: int) -> None:
        self._texts.add(_comparable(text))
        names = set(entities(said))
        self._covered.update(names)
        if self._gains:
            self._gains.cover(names)
        self.spent += cost


def _as_item(line: str) -> str:
    """Return a line without a source as an item."""
    return line if line.startswith("- ") else f"- {line}"


def _comparable(text: str) -> str:
    """Return a text in a form that is the same for equal texts."""
    return text.removeprefix("- ").casefold()


# -- what a key line adds ----------------------------------------------------------------------------------------------

_SIGHTINGS = (1.0, 0.3, 0.0)
"""The factor for an entity that is not said yet, said once, said more often."""
_SPOKEN_WEIGHT, _SPOKEN_AGAIN = 2.0, 0.1
"""Lines of at least this weight say what an entity is about; there, an entity said once adds this much more."""
_RECURRENCE = 0.6
_COMPANY = 0.4
_MANY_TIMES = 16
"""From this many times more lines than are wanted on, looking for the best is faster than sorting all."""
_WeighedLine = tuple[tuple[str, ...], float, float, int, bool]
"""The entities of a line, the factors and the length that its gain depends on, and whether somebody spoke it."""
_LINES: Callable[[LineGroup], Sequence[MessageLine]] = attrgetter("lines")
_ENTITIES: Callable[[MessageLine], Sequence[str]] = attrgetter("entities")


class Gains:
    """The gain of each line, updated as entities get said."""

    def __init__(self, groups: Sequence[LineGroup], said: Mapping[str, int], length: int) -> None:
        self._groups = groups
        self._ends = list(accumulate(len(group.lines) for group in groups))
        self._size = max(1, length)
        self._said = said
        self._adds = _entity_worth(groups)
        """The current worth of each entity; the original worth is kept apart, for the few that were said."""
        self._worth: dict[str, float] = {}
        self._again: dict[str, float] = {}
        """Extra worth of an entity said once, if a person or the assistant says it again."""
        self._weighed: dict[int, _WeighedLine] = {}
        """The lines whose gain was asked for, by their places."""
        self.cover(said)

    def cover(self, names: Iterable[str]) -> None:
        """Update the worth of entities that have just been said."""
        for name in names:
            adds = self._adds.get(name)
            if adds is not None:
                worth = self._worth.setdefault(name, adds)
                times = self._said[name]
                self._adds[name] = worth * _SIGHTINGS[min(times, 2)]
                self._again[name] = worth * _SPOKEN_AGAIN if times == 1 else 0.0

    def gain_of(self, key_line: KeyLine) -> float:
        """Return a line's gain per character: first mentions count in full, second ones a little, more not at all."""
        order, (text, names, words, _), weight, _ = key_line
        added = sum(map(self._adds.__getitem__, names))
        if weight >= _SPOKEN_WEIGHT:
            added += self._added_again(names)
        return self._gain(added, order, text, words)

    def gain_at(self, place: int) -> float:
        """Return the gain of a line by its place among all lines; it is asked for again and again."""
        weighed = self._weighed.get(place)
        if weighed is None:
            order, (text, names, words, _), weight, _ = self.key_line(place)
            recency = 0.5 + 0.5 * max(0.0, order) / self._size
            is_spoken = weight >= _SPOKEN_WEIGHT
            weighed = self._weighed[place] = (names, recency, 1.0 + _COMPANY * words, len(text) + 16, is_spoken)
        names, recency, company, length, is_spoken = weighed
        added = sum(map(self._adds.__getitem__, names))
        if is_spoken:
            again = self._again
            added += sum([again[name] for name in names if name in again])
        return added * recency * company / length  # in the order of `_gain`, so that the result is the same

    def best(self, most: int) -> list[Waiting]:
        """Return the lines with the highest gains, at most ``most``; of equal ones the newest."""
        gains = self._all()
        if len(gains) <= most:
            return [(-gain, -place) for place, gain in enumerate(gains) if gain > 0]
        is_few = most * _MANY_TIMES < len(gains)
        least = min(heapq.nlargest(most, gains)) if is_few else sorted(gains)[-most]
        places = [place for place, gain in enumerate(gains) if gain >= least and gain > 0]
        surplus = len(places) - most  # the oldest of equal lines are dropped
        found: list[Waiting] = []
        for place in places:
            if surplus > 0 and gains[place] == least:
                surplus -= 1
                continue
            found.append((-gains[place], -place))
        return found

    def key_line(self, place: int) -> KeyLine:
        """Return a line by its place among all lines."""
        at = bisect_right(self._ends, place)
        return self._groups[at].key_line(place - self._ends[at])

    def key_lines(self, waiting: Iterable[Waiting]) -> Iterator[KeyLine]:
        """Yield lines that wait."""
        return (self.key_line(-tie) for _, tie in waiting)

    def _all(self) -> array[float]:
        """Return the gain of every line."""
        adds, again, size = self._adds.__getitem__, self._again, self._size
        gains = array("d")
        append = gains.append
        for order, weight, lines, _ in self._groups:
            is_spoken = weight >= _SPOKEN_WEIGHT and bool(again)
            for place, (text, names, words, _) in enumerate(lines):
                added = sum(map(adds, names))
                if is_spoken:
                    added += self._added_again(names)
                if added:  # as in `_gain`, without a call for each of many lines
                    recency = 0.5 + 0.5 * max(0.0, order + place / 1_000) / size
                    added = added * recency * (1.0 + _COMPANY * words) / (len(text) + 16)
                append(added)
        return gains

    def _added_again(self, names: Iterable[str]) -> float:
        again = self._again
        return sum([again[name] for name in names if name in again])

    def _gain(self, added: float, order: float, text: str, words: int) -> float:
        # Plain words add to a gain, because a name is of no use without its subject.
        recency = 0.5 + 0.5 * max(0.0, order) / self._size
        return added * recency * (1.0 + _COMPANY * words) / (len(text) + 16)


def _entity_worth(groups: Sequence[LineGroup]) -> dict[str, float]:
    """Return the worth of each entity: more if a person or the assistant wrote it, and if it recurs."""
    worth: dict[str, float] = {}
    for weight in sorted({group.weight for group in groups}):
        worth.update(zip(_names(group for group in groups if group.weight == weight), repeat(weight)))
    for name, count in Counter(_names(groups)).items():
        if count > 1:
            worth[name] *= 1.0 + _RECURRENCE * math.log2(count)
        if name.isdigit():
            worth[name] *= _telling(name)
    return worth


def _names(groups: Iterable[LineGroup]) -> Iterator[str]:
    return chain.from_iterable(map(_ENTITIES, chain.from_iterable(map(_LINES, groups))))


def _telling(name: str) -> float:
    """Return how much a number says by itself: 43 may be anything, 8437 hardly."""
    return min(1.0, 0.15 * math.pow(len(name), 1.5))
