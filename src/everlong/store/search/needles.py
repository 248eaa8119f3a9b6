"""How a run of characters is looked up: as pairs where a script is dense, as trigrams elsewhere.

What an index says to this is a superset of the texts that contain the run: each piece is there, maybe apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from everlong.store.search.words import DENSE

MAX_PIECES = 16
"""Pieces of one needle that are looked up; more would cost more than they sort out."""

_RUN = re.compile(f"[{DENSE}]+|[^{DENSE}]+")
_DENSE_RUN = re.compile(f"[{DENSE}]+")


class Lookup(NamedTuple):
    """One piece: a pair of dense characters, a dense character that begins a pair, a trigram, or less than one."""

    kind: Literal["pair", "start", "gram", "short"]
    text: str


def lookups(needles: Sequence[str]) -> list[Lookup]:
    """The pieces that a text has if it contains every needle; needles are folded and have single spaces."""
    found: dict[Lookup, None] = {}
    for needle in needles:
        grams = [piece for run in _RUN.findall(needle) for piece in _pieces(run)]
        step = max(1, -(-len(grams) // MAX_PIECES))
        found.update(dict.fromkeys(grams[::step]))
    long = [piece for piece in found if piece.kind != "short"]
    # One or two characters are dear to look up and sort out little: only where there is nothing else.
    return long or list(found)[:1]


def _pieces(run: str) -> list[Lookup]:
    if _DENSE_RUN.match(run):
        if len(run) == 1:
            return [Lookup("start", run)]
        return [Lookup("pair", run[place : place + 2]) for place in range(len(run) - 1)]
    text = run.strip()  # beside dense script, and at the ends, spaces may be others in the index
    if len(text) < 3:
        return [Lookup("short", text)] if text else []
    return [Lookup("gram", text[place : place + 3]) for place in range(len(text) - 2)]
