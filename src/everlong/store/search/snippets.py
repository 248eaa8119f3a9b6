"""Snippets: a few words around a match, cut at word boundaries, with the matches marked.

Made for the hits that are shown and no others. Works on the text as it was written; matches are found in its folded
form.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import NamedTuple

from everlong.store.search.query import Query, normal, read_query
from everlong.store.search.text import DENSE_RUN, TOKEN, Span, folded, is_dense, passage_spans, terms_of

ROUND = 160
"""The approximate number of characters of a snippet."""

_SPACES = re.compile(r"\s+")
_SCANNED = 400_000
_MATCHES = 2_000
_WEIGHED = 40
"""Matches that are weighed from each place on."""

Match = tuple[int, int, float]
"""The beginning, the end and the weight of a match."""


class Snippet(NamedTuple):
    """A stretch of a text on one line, and where in it the matches are: pairs of start and end."""

    text: str
    marks: tuple[tuple[int, int], ...]

    def marked(self, before: str = "**", after: str = "**") -> str:
        """Return the text with every match between two marks."""
        pieces, end = [], 0
        for start, stop in self.marks:
            pieces += [self.text[end:start], before, self.text[start:stop], after]
            end = stop
        return "".join([*pieces, self.text[end:]])


def snippet(text: str, query: Query, span: Span | None = None, length: int = ROUND) -> Snippet:
    """Return the stretch of a text, or of the surroundings of one passage, with the most of what was asked."""
    low, high = 0, len(text) if query.is_literal else min(len(text), _SCANNED)
    if span is not None:
        low = _word_edge(text, max(0, span.start - length // 2), -1)
        high = _word_edge(text, min(len(text), span.stop + length // 2), 1)
    found = _merged([(low + start, low + stop, weight) for start, stop, weight in _matches(text[low:high], query)])
    if not found:
        return _cut(text, low, [], length)
    best, most = found[0], 0.0
    for place, one in enumerate(found):
        near = [other for other in found[place : place + _WEIGHED] if other[1] <= one[0] + length]
        if (weight := sum(weight for _, _, weight in near)) > most:
            best, most = (one[0], near[-1][1], weight), weight
    return _cut(text, max(0, min((best[0] + best[1] - length) // 2, best[0] - 20)), found, length)


def _matches(text: str, query: Query) -> list[Match]:
    if query.pattern is not None:
        import regex  # noqa: PLC0415 - only for regular expressions

        try:
            found = [match.span() for match in islice(query.pattern.finditer(text, timeout=0.2), _MATCHES)]
        except (TimeoutError, regex.error):
            return []
        return [(start, stop, 1.0) for start, stop in found if stop > start]
    lowered = folded(text)
    if len(lowered) != len(text):  # some characters fold to more or fewer
        lowered = text
    needles = dict.fromkeys((*filter(is_dense, query.terms), *query.starts), 1.0)
    needles |= dict.fromkeys((*query.required, *query.phrases, *query.literals), 3.0)
    matches = [(*place, weight) for needle, weight in needles.items() for place in _places(lowered, needle)]
    if query.is_ranked:
        weighed = ((word, query.weight_of(word[0])) for word in TOKEN.finditer(text))
        matches += islice(((*word.span(), weight) for word, weight in weighed if weight), _MATCHES)
    return matches


def _places(plain: str, needle: str) -> list[tuple[int, int]]:
    """Return where a folded needle stands in a text of the same length, with any white space for its spaces."""
    pattern = re.compile(r"\s+".join(re.escape(piece) for piece in needle.split(" ")))
    return [match.span() for match in islice(pattern.finditer(plain), _MATCHES) if match.end() > match.start()]


def _merged(spans: list[Match]) -> list[Match]:
    merged: list[Match] = []
    for start, stop, weight in sorted(spans):
        if merged and start <= merged[-1][1]:
            last = merged[-1]
            merged[-1] = (last[0], max(last[1], stop), max(last[2], weight))
        else:
            merged.append((start, stop, weight))
    return merged


def _cut(text: str, start: int, spans: list[Match], length: int) -> Snippet:
    stop = min(len(text), start + length)
    start = _word_edge(text, start, -1) if start else 0
    stop = _word_edge(text, stop, 1) if stop < len(text) else stop
    pieces, marks, at = ["…" if start else ""], [], start
    size = len(pieces[0])
    for first, last, _ in [span for span in spans if span[0] >= start and span[1] <= stop]:
        before = _one_line(text[at:first])
        inside = _one_line(text[first:last])
        pieces += [before, inside]
        marks.append((size + len(before), size + len(before) + len(inside)))
        size += len(before) + len(inside)
        at = last
    pieces += [_one_line(text[at:stop]), "…" if stop < len(text) else ""]
    return Snippet("".join(pieces), tuple(marks))


def _one_line(text: str) -> str:
    return _SPACES.sub(" ", text)


def _word_edge(text: str, at: int, step: int, most: int = 24) -> int:
    """Return the nearest place outwards that is not inside a word; dense script may be cut anywhere."""
    for moved in range(most):
        place = at + step * moved
        if place <= 0 or place >= len(text):
            return max(0, min(len(text), place))
        if text[place - 1].isspace() or text[place].isspace() or DENSE_RUN.match(text[place]):
            return place
    return at


_LITERAL_WEIGHT = 3.0


def passages(text: str, query: str, room: int) -> str:
    """Return the whole text if it fits; else its lines with most of what is asked, each with its surroundings.

    Long lines are taken in pieces. Of a very long text, the beginning is looked at.
    """
    if len(text) <= room:
        return text
    lines = text[:_SCANNED].splitlines()
    pieces = [line[span.start : span.stop] for line in lines for span in passage_spans(line)]
    scores = _scores(pieces, read_query(query))
    chosen: set[int] = set()
    left = room
    for place in sorted(range(len(pieces)), key=lambda place: (-scores[place], place)):
        if chosen and not scores[place]:
            break
        for near in (place, place + 1, place - 1):
            cost = len(pieces[near]) + 4 if 0 <= near < len(pieces) else 0
            if cost and near not in chosen and cost <= left:
                chosen.add(near)
                left -= cost
    return _joined(pieces, sorted(chosen)) if chosen else text[:room]


def _scores(pieces: list[str], query: Query) -> list[float]:
    needles = (*query.required, *query.phrases, *query.literals, *query.starts)
    found = [set(terms_of(piece)) & query.terms.keys() for piece in pieces]
    spread = Counter(term for terms in found for term in terms)
    scores: list[float] = []
    for piece, terms in zip(pieces, found, strict=True):
        score = sum(query.terms[term] / spread[term] ** 0.5 for term in terms)
        if needles:
            plain = normal(piece)
            score += sum(_LITERAL_WEIGHT for needle in needles if needle in plain)
        scores.append(score)
    return scores


def _joined(pieces: list[str], places: list[int]) -> str:
    lines, before = [], -1
    for place in places:
        if place != before + 1:
            lines.append("…")
        lines.append(pieces[place])
        before = place
    return "\n".join([*lines, "…"] if before + 1 < len(pieces) else lines)
