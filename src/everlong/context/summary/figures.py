"""Figures in clauses: amounts, dates, versions, and which of them a later clause has replaced.

Two clauses are about the same thing if they share rare words, or the words around a figure. Only words and units are
compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from everlong.context.summary.entities import entities

_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
_FIGURE = re.compile(
    rf"(?P<date>\b{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?\b|\b\d{{1,2}}(?:st|nd|rd|th)?\s{_MONTH}(?![a-z])|\b\d{{4}}-\d\d-\d\d\b)"
    r"|(?P<money>[$€£¥]\s?\d[\d,.]*\d|[$€£¥]\s?\d)"
    r"|(?P<percent>\b\d+(?:[.,]\d+)?\s?(?:%|percent\b))"
    r"|(?P<time>\b\d{1,2}(?::\d\d)?\s?[ap]\.?m\b|\b\d{1,2}:\d\d\b)"
    r"|(?P<version>\bv?\d+(?:\.\d+){2,}|\bv\d+(?:\.\d+)*)"
    r"|(?P<count>(?<![\w.$€£¥-])\d[\d,]*(?:\.\d+)?)(?:[ -]?(?P<unit>[a-z]{1,12})\b|(?![\w]))",
    re.IGNORECASE,
)
_NO_UNIT = re.compile(
    r"a|after|and|as|at|before|but|by|for|from|if|in|is|of|on|or|out|per|since|so|than|that|the|to|until|up|when|with"
    r"|within"
)
_FORMER = re.compile(r"\bfrom (?:around |about |nearly )?$", re.IGNORECASE)
"""Words before a value that no longer holds ("from 3 to 5")."""
_NUMERIC = re.compile(r"[\d.,:/$%-]+(?:st|nd|rd|th|%)?")
_BARE = 0.35
"""The weight of a number without a unit."""
_YEAR = re.compile(r"(?:19|20)\d\d")
WORD = re.compile(r"[^\W\d_]{3,}|[\u3400-\u9fff]{2}")
"""A word of three letters or more, or two Chinese characters."""
_CHANGES = re.compile(
    r"\b(?:now|new|newly|updated?|recent|recently|latest|improved|increased|decreased|reduced|raised|lowered|grew|grown"
    r"|climbed|dropped|reached|rescheduled|moved|extended|adjusted|changed|revised|postponed|pushed|shifted|upgraded"
    r"|expanded|bumped|up to|down to|up from|down from|instead|total of|by now)\b"
    r"|现在|改为|改成|已经|增加到|减少到|更新|推迟|提前|最新",
    re.IGNORECASE,
)
"""Words of someone who gives a new value for something."""
_COMMON = re.compile(
    r"the|and|for|with|that|this|from|have|has|had|are|was|were|been|can|could|would|will|how|what|when|where|which|who"
    r"|why|using|use|used|like|into|make|sure|want|need|help|some|our|your|get|got|also|should|them|then|its|not|but"
    r"|there|any|about|out|each|other|more|than|know|show|give|before|after|first|you|all|way|now|new|just|around|over"
    r"|under|within|while|since|considering|especially|they|their|his|her|him|she|too|very|much|many"
)
_ENOUGH, _ENOUGH_CHANGED = 0.6, 0.42
"""The shares of its weight that a clause must share with a later one on the same thing: in general, and if the later
one tells of a change."""
_ENOUGH_OF_LONGER = 0.35
_LEAST_NEAR = 2
_BEFORE, _AFTER = 48, 24
"""Characters around a figure that say what it measures."""
_FEW_CLAUSES, _FEW_SHARE = 4, 0.06
_NONE: frozenset[str] = frozenset()
_LEAST_SHARED, _LEAST_SHARED_CHANGED = 3, 2
_WHEN = frozenset({"date", "time"})
_MOST_COMPARED = 400
"""The most clauses with figures that are compared with each other."""


class ClauseFigures(NamedTuple):
    """The figures of a clause, and the words that say what it is about."""

    values: Mapping[str, frozenset[str]]
    """The values of each unit."""
    words: frozenset[str]
    near: Mapping[str, frozenset[str]]
    """The words around the figures of each unit."""
    changes: bool
    """True if the clause tells of a change."""


@lru_cache(maxsize=8_192)
def read_figures(text: str) -> ClauseFigures:
    """Return the figures of a clause with their units, and the words that say what it is about."""
    values: dict[str, set[str]] = {}
    near: dict[str, set[str]] = {}
    for found in _FIGURE.finditer(text):
        kind = found.lastgroup or ""
        if _FORMER.search(text, max(0, found.start() - 16), found.start()) and kind != "date":
            continue
        value, unit = found[0], kind
        if kind in ("count", "unit"):
            named = (found["unit"] or "").lower()
            value, unit = found["count"], "" if _NO_UNIT.fullmatch(named) else _stem(named)
            if _YEAR.fullmatch(value):
                continue
        values.setdefault(unit, set()).add(" ".join(value.lower().rstrip(".,").split()))
        before, after = text[max(0, found.start() - _BEFORE) : found.start()], text[found.end() : found.end() + _AFTER]
        near.setdefault(unit, set()).update(
            _content_words(before.partition(" ")[2]), _content_words(after.rpartition(" ")[0])
        )
    return ClauseFigures(
        {unit: frozenset(found) for unit, found in values.items()},
        _content_words(text),
        {unit: frozenset(words) for unit, words in near.items()},
        _CHANGES.search(text) is not None,
    )


def _content_words(text: str) -> frozenset[str]:
    words = map(str.lower, WORD.findall(text.replace("’", "'")))
    return frozenset(_stem(word) for word in words if not _COMMON.fullmatch(word))


def figures_and_names(text: str) -> dict[str, float]:
    """Return a text's figures with their units, and its names, each with its weight."""
    given = read_figures(text).values
    found = {f"{value} {unit}": 1.0 if unit else _BARE for unit, values in given.items() for value in values}
    return found | {name: 1.0 for name in entities(text) if not _NUMERIC.fullmatch(name)}


def tells_change(text: str) -> bool:
    """Return whether a clause gives a new value for something."""
    given = read_figures(text)
    return bool(given.values) and given.changes


def find_outdated(clauses: Sequence[tuple[int, str]]) -> set[int]:
    """Return the indices of clauses for which a later one gives another value.

    Each clause comes with the turn in which it was said.
    """
    told = [
        (place, order, given) for place, (order, text) in enumerate(clauses) if (given := read_figures(text)).values
    ]
    told = sorted(told, key=lambda entry: entry[1])[-_MOST_COMPARED:]
    rarity = _Rarity([given.words for _, _, given in told])
    old: set[int] = set()
    for at, (place, order, given) in enumerate(told):
        for _, later_order, later in told[at + 1 :]:
            if later_order > order and _is_update(later, given, rarity):
                old.add(place)
                break
    return old


class _Rarity:
    """The weight of words across clauses: a word that all clauses have weighs nothing."""

    def __init__(self, texts: Sequence[frozenset[str]]) -> None:
        self._seen = Counter(word for words in texts for word in words)
        self._count = len(texts)

    def weight(self, words: Iterable[str]) -> float:
        return sum(math.log1p(self._count / self._seen[word]) for word in words)

    def rare(self, words: Iterable[str]) -> int:
        """Count the words that hardly any other clause has."""
        most = max(_FEW_CLAUSES, self._count * _FEW_SHARE)
        return sum(self._seen[word] <= most for word in words)


def _is_update(new: ClauseFigures, old: ClauseFigures, rarity: _Rarity) -> bool:
    shared = new.words & old.words
    counted = [unit for unit in old.values if unit not in _WHEN]
    given_again = [unit for unit in counted if _gives_another(new, old.values[unit], unit)]
    if any(rarity.rare(new.near.get(unit, _NONE) & old.near[unit]) >= _LEAST_NEAR for unit in given_again if unit):
        return True  # rare words around the figure are the same
    if len(shared) < (_LEAST_SHARED_CHANGED if new.changes else _LEAST_SHARED):
        return False
    if counted and len(given_again) * 2 < len(counted) + (not new.changes):
        return False  # most figures of the older clause still hold
    if not counted and not (new.changes and any(_gives_another(new, old.values[unit], unit) for unit in old.values)):
        return False  # many things have a date: only a change replaces one
    less, more = sorted((rarity.weight(new.words), rarity.weight(old.words)))
    weight = rarity.weight(shared)
    if new.changes and counted:
        return weight >= _ENOUGH_CHANGED * less
    is_same = weight >= _ENOUGH * less and weight >= _ENOUGH_OF_LONGER * more
    # Without rare words in common, they are two things of a kind.
    return is_same and (new.changes or rarity.rare(shared) > 0)


def _gives_another(new: ClauseFigures, values: frozenset[str], unit: str) -> bool:
    """Return whether a clause has another value of a unit.

    After words of a change, a bare number may be of any unit that counts things.
    """
    if unit in new.values:
        return not new.values[unit] <= values
    return new.changes and "" in new.values and unit not in _WHEN and unit not in ("money", "percent", "version")


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word
