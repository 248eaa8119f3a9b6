"""Whether one text is what was asked for, decided from the text itself.

For what the index cannot decide alone (phrases, substrings, patterns, tools) and for what it does not hold yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from everlong.store.search.lexicon import LEMMAS
from everlong.store.search.query import Query, normal
from everlong.store.search.words import folded, terms_of

PATTERN_SECONDS = 0.25
"""How long a pattern may work on one text; what takes longer does not match."""

_KEPT = 3
"""Characters at the end of a term that stemming may have changed."""


class Matcher:
    """Tests texts against one query and the terms that count for it."""

    def __init__(self, query: Query, weights: Mapping[str, float]) -> None:
        self._query = query
        self._weights = weights
        self._hint = _hint(weights, query.starts)

    def has_words(self, text: str) -> bool:
        """Whether any term of the query stands in a text."""
        plain = folded(text)
        if any(start in plain for start in self._query.starts):
            return True
        if self._hint is None or not self._hint.search(plain):
            return False
        return any(term in self._weights for term in terms_of(text))

    def has_required(self, text: str) -> bool:
        """Whether what must stand in a text does; raises `TimeoutError` if a pattern takes too long to tell."""
        query = self._query
        if query.pattern is not None:
            return query.pattern.search(text, timeout=PATTERN_SECONDS) is not None
        if not query.required:
            return True
        plain = normal(text)
        return all(needle in plain for needle in query.required)


def _hint(weights: Mapping[str, float], starts: tuple[str, ...]) -> re.Pattern[str] | None:
    """A pattern that stands in every text with one of the terms: cutting a text into terms is dear."""
    del starts
    beginnings: set[str] = set()
    for term in weights:
        beginnings.add(term[: max(1, len(term) - _KEPT)] if term.isascii() and term.isalpha() else term)
        beginnings.update(form for form, lemma in LEMMAS.items() if lemma == term)
    if not beginnings:
        return None
    return re.compile("|".join(map(re.escape, sorted(beginnings))))
