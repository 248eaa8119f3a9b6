"""Whether one text is what was asked for, decided from the text itself.

For what the index cannot decide alone (phrases, substrings, patterns, tools) and for what it does not hold yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from everlong.store.search.lexicon import LEMMAS
from everlong.store.search.query import Query, normal
from everlong.store.search.words import is_dense, terms_of

PATTERN_SECONDS = 0.25
"""How long a pattern may work on one text; what takes longer does not match."""

_KEPT = 3
"""Characters at the end of a term that stemming may have changed."""


class Matcher:
    """Tests texts against one query and the terms that count for it."""

    def __init__(self, query: Query, weights: Mapping[str, float]) -> None:
        self._query = query
        self._weights = weights
        self._hint = _hint(weights)
        self._phrases = [whole_words(phrase) for phrase in query.phrases]

    def has_words(self, text: str, plain: str) -> bool:
        """Whether any term of the query stands in a text, which is given folded too."""
        if any(start in plain for start in self._query.starts):
            return True
        return self.may_have_words(plain) and any(term in self._weights for term in terms_of(text))

    def may_have_words(self, plain: str) -> bool:
        """False if no term can stand in a folded text; quick."""
        return (self._hint is not None and self._hint.search(plain) is not None) or any(
            start in plain for start in self._query.starts
        )

    def has_required(self, text: str) -> bool:
        """Whether what must stand in a text does; raises `TimeoutError` if a pattern takes too long to tell."""
        query = self._query
        if query.pattern is not None:
            return query.pattern.search(text, timeout=PATTERN_SECONDS) is not None
        if not query.required and not self._phrases:
            return True
        plain = normal(text)
        return all(needle in plain for needle in query.required) and all(
            phrase.search(plain) for phrase in self._phrases
        )


def whole_words(phrase: str) -> re.Pattern[str]:
    """A pattern for a folded phrase that begins and ends where words do; dense script has no such places."""
    before = "" if is_dense(phrase[0]) or not phrase[0].isalnum() else r"(?<![^\W_])"
    after = "" if is_dense(phrase[-1]) or not phrase[-1].isalnum() else r"(?![^\W_])"
    return re.compile(before + re.escape(phrase) + after)


def _hint(weights: Mapping[str, float]) -> re.Pattern[str] | None:
    """A pattern that stands in every text with one of the terms: cutting a text into terms is dear."""
    beginnings: set[str] = set()
    for term in weights:
        beginnings.add(term[: max(1, len(term) - _KEPT)] if term.isascii() and term.isalpha() else term)
        beginnings.update(form for form, lemma in LEMMAS.items() if lemma == term)
    if not beginnings:
        return None
    return re.compile("|".join(map(re.escape, sorted(beginnings))))
