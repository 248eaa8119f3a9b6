"""The lines of the originals that a summary quotes, chosen for the names that nothing else in it has.

One greedy loop takes again and again the line with the most new names for its length; there are no classes of lines.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from everlong.context.names import entities
from everlong.context.record import ANY, CALLS
from everlong.context.text import TextCount

__all__ = [
    "LONGEST_LINE",
    "LineChoice",
    "QuotedLine",
    "SourceLines",
    "fit_names",
    "quotable_lines",
    "richest",
    "without_overtaken",
]

_MOST_LINES = 60
"""Lines of one message that may be quoted."""
LONGEST_LINE = 170
"""A longer line is split; with 240, .659 of the names that later turns need stand with their words, with it .662."""
_UNSAID = 0.1
"""The weight of a name that only outputs have; one that a person or the assistant wrote has 1.

Later turns need one in seven of the names that somebody wrote, and one in seventy of the others.
"""
_RECENT = 1.5
"""The newest lines are worth this share more than the oldest; with 2, single facts of chats fall from .66 to .58."""
_PROSE = 0.2
"""Each word beside the names makes a line worth this share more, up to ten: words tell what the names are about.

Without it, .627 of the names that later turns need stand with the words that they stood with, instead of .645.
"""
_MOST_WORDS = 10
_PAST = 0.3
"""The worth of a line of what has changed since, which tells what was there before."""
_SETTLED = 0.999
_MOST_JOINED = 8
"""Lines that are joined as one statement."""
_GOES_ON = (",", ":", "\\", "=", "+", "|", "&")
"""The ends of a line that says something together with the next only."""
_CUT = ("...", "…", ",", "\\", ":")
"""The ends of a line that somebody cut."""
_SHORTEST_WRAPPED = 50
"""A shorter line was not broken for its length."""
_LEAST_WRAPPED = 5
"""Words of a line that is prose."""
_NUMBERS = "0123456789\t→ "
"""The characters of a line's number, as programs print it before the line."""
_COMMENTS = ("#", "//")
_SENTENCE_ENDS = (".", "!", "?", ":")
_DEEPEST = 4
"""Rounds in which brackets that face each other go; deeper ones are paired one by one."""
_BRACKETS = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"()[]{}\n")
_PLAIN_WORD = re.compile(r"(?<![\w.(/-])[A-Za-z]{3,}(?![\w(/.=-])")


class QuotedLine(NamedTuple):
    """A line that names something."""

    text: str
    """The line, with those that belong to the same statement."""
    names: tuple[str, ...]
    before: str
    """The line before it, with which it is quoted: it tells what the names are about. Empty if it is one word."""
    is_whole: bool
    """False for a part of a statement, and for a heading; only its names are told."""


class SourceLines(NamedTuple):
    """Lines of one message that may be quoted, under their source."""

    source: str
    lines: tuple[QuotedLine, ...]
    factor: float
    at: int
    """The number of the call with which they were read."""
    reads: frozenset[str] | None
    """The files whose change overtakes the lines; None where a change only dates them, as it does what was said."""

    def as_of(self, changed: Mapping[str, int]) -> SourceLines:
        """Return the lines dated by what changed since: their file, or what they name; worth less if they show that."""
        since = [name for name, at in reversed(list(changed.items())) if at > self.at]
        if not since or self.reads == frozenset():
            return self
        named = {name for line in self.lines for name in (*line.names, *entities(line.before))}
        if self.reads is not None and named.isdisjoint(since) and self.reads.isdisjoint(since):
            return self
        events = [name for name in since if name not in (ANY, CALLS)]
        event = [*filter((self.reads or named).__contains__, events), *filter(named.__contains__, events), *events][0]
        happened = f"{event} changed" if "." in event else event
        dated = f"{self.source.partition(', before ')[0].removesuffix(':')}, before {happened}:"
        return self._replace(source=dated, factor=self.factor * (1 if self.reads is None else _PAST))


def without_overtaken(sources: Sequence[SourceLines]) -> list[SourceLines]:
    """Return the sources without the numbered lines of a file that a newer source shows otherwise."""
    newest: dict[tuple[str, str], str] = {}
    kept: list[SourceLines] = []
    for source in reversed(sources):
        files = [name for name in source.reads or () if "." in name]
        lines = source.lines
        if len(files) == 1 and any("\t" in line.text or "→" in line.text for line in lines):
            shown = {text: _by_number(files[0], text) for line in lines for text in (line.text, line.before)}
            stale = {text for text, said in shown.items() if any(newest.get(*at) != at[1] for at in said)}
            newest.update(at for text, said in shown.items() if text not in stale for at in said)
            lines = tuple(
                line._replace(before="") if line.before in stale else line for line in lines if line.text not in stale
            )
        kept.append(source._replace(lines=lines))
    return kept[::-1]


def _by_number(file: str, text: str) -> list[tuple[tuple[str, str], str]]:
    """Return the numbered lines of a file in a text, by file and number."""
    parts = (line.replace("→", "\t", 1).partition("\t") for line in text.split("\n"))
    return [((file, number), said) for number, _, said in parts if number.isdigit()]


class LineChoice:
    """The greedy choice of lines: again and again the one with the most new names for its length."""

    def __init__(self, sources: Sequence[SourceLines], known: set[str], said: set[str]) -> None:
        self.sources = sources
        names = {name for source in sources for line in source.lines for name in line.names}
        self.values = {name: 0.0 if name in known else 1.0 if name in said else _UNSAID for name in names}
        """The value of each name; 0 once it stands in the summary."""
        self.shown: set[str] = set()
        self.taken: set[tuple[int, int]] = set()
        """The chosen lines, each as the indices of its source and of itself."""
        self.spent = 0.0
        """Characters of the chosen lines."""

    def choose(self, room: float, topic: frozenset[str] = frozenset()) -> None:
        """Choose lines until they take so many characters; with a topic, only those with one of its words."""
        self.spent += room
        heap: list[tuple[float, int, int, float]] = []
        for place, source in enumerate(self.sources):
            recent = source.factor * (1 + _RECENT * (place + 1) / len(self.sources))
            for number, line in enumerate(source.lines):
                if not line.is_whole or (topic and not any(word in line.text.casefold() for word in topic)):
                    continue
                if worth := self._worth(place, line, recent):
                    words = 1 + _PROSE * min(_MOST_WORDS, len(_PLAIN_WORD.findall(line.text)))
                    heap.append((-worth * words, place, number, recent * words))
        heapq.heapify(heap)
        while heap and room > 0:
            negative, place, number, factor = heapq.heappop(heap)
            line = self.sources[place].lines[number]
            worth = self._worth(place, line, factor)
            if 0 < worth < -negative * _SETTLED:  # a line chosen since then has some of its names
                heapq.heappush(heap, (-worth, place, number, factor))
            elif worth > 0 and (cost := self._cost(place, line)) <= room:
                room -= cost
                self.taken.add((place, number))
                self.values.update(dict.fromkeys((*line.names, *entities(line.before)), 0.0))
                self.shown.update((line.text, line.before, self.sources[place].source))
        self.spent -= room

    def _cost(self, place: int, line: QuotedLine) -> int:
        before = 0 if line.before in self.shown else len(line.before)
        source = self.sources[place].source
        return before + len(line.text) + 4 + (0 if source in self.shown else len(source) + 2)

    def _worth(self, place: int, line: QuotedLine, factor: float) -> float:
        value = sum(map(self.values.__getitem__, line.names))
        return value and factor * value / (self._cost(place, line) + 8)

    def items(self) -> list[str]:
        """Return the chosen lines under their sources, in order of time."""
        by_source: dict[str, dict[str, None]] = {}
        for place, number in sorted(self.taken):
            source, line = self.sources[place].source, self.sources[place].lines[number]
            by_source.setdefault(source, {}).update(dict.fromkeys(filter(None, (line.before, line.text))))
        return ["\n".join([source, *lines]).replace("\n", "\n  ") for source, lines in by_source.items()]

    def names_left(self) -> list[str]:
        """Return the names that no chosen line has: what somebody wrote before what outputs have, the newest first."""
        named = dict.fromkeys(name for source in reversed(self.sources) for line in source.lines for name in line.names)
        return sorted((name for name in named if self.values[name]), key=self.values.__getitem__, reverse=True)


def quotable_lines(text: str) -> list[tuple[str, bool]]:
    """Return the lines of a text that have words, without indentation, each with whether it is whole.

    The lines of one statement are one; where they are too many, none of them is whole.
    """
    # The number of a line stands before a tab.
    lines = [line.strip() for line in text.rstrip().splitlines()]
    lines = ["\t".join(map(str.strip, line.split("\t"))) if "\t" in line else line for line in lines]
    lines = [line for line in lines if not (line[:1] == "<" and line[-1:] == ">" and line.strip("</>").isalnum())]
    closed = _closing_lines(lines)
    going_on = [line.endswith(_GOES_ON) or _is_wrapped(line, after) for line, after in pairwise([*lines, ""])]
    found: list[tuple[str, bool]] = []
    start = 0
    while start < len(lines):
        place = end = start
        while place <= end and (closed[place] != place or going_on[place] or place > start):
            end = max(end, closed[place])
            after_heading = place > start and lines[place - 1].endswith(":")
            goes_on = going_on[place] or (after_heading and not _has_words(lines[place]))
            if place == end and goes_on and end + 1 < min(len(lines), start + _MOST_JOINED):
                end += 1
            place += 1
        statement = lines[start] if end == start else "\n".join(filter(None, lines[start : end + 1]))
        is_whole = len(statement) <= LONGEST_LINE and min(closed[start : end + 1]) >= 0 and not statement.endswith(_CUT)
        is_whole = is_whole and statement.count('"""') % 2 == 0 and statement.count("`") % 2 == 0
        if not is_whole and closed[start] == start < len(lines) - 1 and lines[start].endswith(":"):
            statement, end, is_whole = lines[start], start, True  # a heading, for the line after it
        said = [statement] if is_whole else lines[start : end + 1]
        found += [(line, is_whole) for line in said if _has_words(line) and "```" not in line]
        start = end + 1
    return found


def _closing_lines(lines: Sequence[str]) -> list[int]:
    """Return for each line the one in which its last bracket is closed, mostly itself; -1 where one has no partner."""
    marks = "\n".join(lines).encode("utf-8", "surrogatepass").translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(_DEEPEST):
        marks = marks.replace(b"()", b"")
    closed = list(range(len(lines)))
    opened: list[int] = []
    for place, left in enumerate(marks.split(b"\n")):
        for mark in left:
            if mark == ord("("):
                opened.append(place)
            elif opened:
                start = opened.pop()
                closed[start] = -1 if closed[start] < 0 else max(closed[start], place)
            else:
                closed[place] = -1
    for place in opened:
        closed[place] = -1
    return closed


def _is_wrapped(line: str, after: str) -> bool:
    """Return whether a line goes on in the next one: a decorator, or prose that was broken for its length."""
    if "@" in line and (word := line.lstrip(_NUMBERS)).startswith("@"):
        return " " not in word.partition("(")[0]
    if len(line) < _SHORTEST_WRAPPED or line.endswith(_SENTENCE_ENDS):
        return False
    said, following = line.lstrip(_NUMBERS), after.lstrip(_NUMBERS)
    if said.startswith(_COMMENTS) or following.startswith(_COMMENTS):
        goes_on = said[:1] == following[:1] and following.lstrip("#/ ")[:1].isalpha()
    else:
        goes_on = line[-1].isalnum() and (following[:1].isalpha() or "`" in following.partition(" ")[0])
    return goes_on and sum(map(str.isalpha, line.split())) >= _LEAST_WRAPPED


def _has_words(line: str) -> bool:
    return line.swapcase() != line or (not line.isascii() and any(map(str.isalpha, line)))


def richest(named: tuple[QuotedLine, ...]) -> tuple[QuotedLine, ...]:
    """Return the lines that together have the most names, in their order."""
    if len(named) <= _MOST_LINES:
        return named
    order = sorted(range(len(named)), key=lambda place: -len(named[place].names) / (len(named[place].text) + 40))
    seen: set[str] = set()
    kept: list[int] = []
    for place in order:
        if len(kept) >= _MOST_LINES:
            break
        if not seen.issuperset(named[place].names):
            seen.update(named[place].names)
            kept.append(place)
    return tuple(named[place] for place in sorted(kept))


def fit_names(names: Sequence[str], room: int, count: TextCount) -> list[str]:
    """Return as many names as fit, none that is a part of another."""
    known: set[str] = set()
    whole: list[str] = []
    for name in names[: max(0, room)]:
        if name not in known:
            whole.append(name)
            known.update(entities(name))
    fitting = bisect_right(range(1, len(whole) + 1), room - 4, key=lambda many: count(", ".join(whole[:many])))
    return whole[:fitting]
