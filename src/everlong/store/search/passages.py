"""The passages of a long text that a query is about, in their own words and order, within so many characters.

A snippet is one line for a person who looks over a list; passages are for whoever works with what was said: whole lines
around every place that counts, so that a fact stands there with what it is about. Knows no database.
"""

from __future__ import annotations

import re
from collections import Counter

from everlong.store.search.query import Query, normal, read_query, widened
from everlong.store.search.words import terms_of

PIECE = 400
"""Lines of more characters are taken in pieces of about this many."""

_SCANNED = 400_000
_LITERAL_WEIGHT = 3.0
_NUMBER = re.compile(r"\d")
_SPACE_NEAR_END = re.compile(r"\s\S{0,40}$")


def passages(text: str, query: str, room: int) -> str:
    """The whole text where it fits; else its lines with most of what is asked, each with what stands around it."""
    if len(text) <= room:
        return text
    pieces = pieces_of(text)
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


def pieces_of(text: str) -> list[str]:
    """The lines of a text, long ones in pieces; of a very long text, the beginning."""
    pieces: list[str] = []
    for line in text[:_SCANNED].splitlines():
        while len(line) > PIECE:
            edge = _SPACE_NEAR_END.search(line, 0, PIECE)
            end = edge.start() + 1 if edge else PIECE
            pieces.append(line[:end])
            line = line[end:]  # noqa: PLW2901 - the rest of the same line
        pieces.append(line)
    return pieces


def _scores(pieces: list[str], query: Query) -> list[float]:
    weights = widened(query.terms) if query.is_question else query.terms
    needles = (*query.required, *query.phrases, *query.literals, *query.starts)
    found = [set(terms_of(piece)) & weights.keys() for piece in pieces]
    spread = Counter(term for terms in found for term in terms)
    scores: list[float] = []
    for piece, terms in zip(pieces, found, strict=True):
        score = sum(weights[term] / spread[term] ** 0.5 for term in terms)
        if needles:
            plain = normal(piece)
            score += sum(_LITERAL_WEIGHT for needle in needles if needle in plain)
        if score and (query.asks_number or query.asks_when) and _NUMBER.search(piece):
            score *= 1.5
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
