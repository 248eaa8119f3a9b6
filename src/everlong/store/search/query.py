"""Queries: a text that a person typed becomes terms to look up; only a broken pattern is refused.

Plain words are ranked, any of them counts and none must be there. What stands between double quotes must be there.
Paths and identifiers are words in a row. Operators of search languages are only words here. Knows no database.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from everlong.errors import QueryError
from everlong.store.search.text import (
    DENSE_RUN,
    WEAK,
    folded,
    is_dense,
    known_terms,
    linked_names,
    linked_terms,
    terms_of,
    words_of,
)

_CHOICE = re.compile(r"[|(\[{]|\\[^\W\d_]")
_OPTIONAL = re.compile(r".[?*]")
_PLAIN = re.compile(r"[A-Za-z0-9_]+")


def required_literals(pattern: str) -> tuple[str, ...]:
    """Return words of at least three characters that stand in every match of a plain pattern; none of any other."""
    if _CHOICE.search(pattern):
        return ()
    return tuple(dict.fromkeys(word for word in _PLAIN.findall(_OPTIONAL.sub(" ", pattern)) if len(word) >= 3))


Mode = Literal["auto", "phrase", "substring", "regex"]
"""The reading of a query: ``auto`` as words and quoted phrases, ``phrase`` or ``substring`` verbatim, or a pattern."""

MAX_TERMS = 64
"""The most terms of a query that count; of a pasted page, the first ones."""

MAX_CHARS = 20_000
WEAK_WEIGHT = 0.5
MAX_REQUIRED = 16

_QUOTED = re.compile('["“”„«»]([^"“”„«»]+)["“”„«»]')
_QUESTION = re.compile(
    r"^\W*(?:(?:and|so|but|by|in|on|at|for|from|to|with|since|until|of) )?"
    r"(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|has|have|had|can|could|would|will)\b"
)
_WEAK_TERMS = frozenset(term for word in WEAK for term in terms_of(word))


@dataclass(frozen=True, slots=True)
class Query:
    """A query, read: terms with their weight, words in a row, and what must be there literally."""

    text: str
    mode: Mode
    terms: dict[str, float] = field(default_factory=dict)
    """Index terms that are looked up, any of them."""
    starts: tuple[str, ...] = ()
    """Single characters of dense scripts: terms that begin with one count."""
    links: tuple[str, ...] = ()
    """Terms for the neighbouring parts of paths and identifiers; a passage that has them is preferred."""
    literals: tuple[str, ...] = ()
    """Paths, identifiers and runs of dense script as they were typed, folded; a text that has one is preferred."""
    required: tuple[str, ...] = ()
    """Texts that must occur, be it within words; folded and with single spaces."""
    phrases: tuple[str, ...] = ()
    """Texts that must occur as whole words; folded and with single spaces."""
    pattern: Any = None
    hints: tuple[str, ...] = ()
    """Literals that every match of a pattern contains."""
    is_question: bool = False

    def weight_of(self, word: str) -> float:
        """Return the weight of a word as it is written: that of its weightiest term."""
        known = known_terms(word)
        if " " not in known:  # as those of nearly all words
            return self.terms.get(known, 0.0)
        return max(self.terms.get(term, 0.0) for term in known.split())

    @property
    def is_ranked(self) -> bool:
        """True if there is something to rank by."""
        return bool(self.terms or self.starts)

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked for."""
        return not (self.is_ranked or self.is_literal)

    @property
    def is_literal(self) -> bool:
        """True if a text must be read to know whether it matches."""
        return bool(self.required or self.phrases or self.pattern)


def normal(text: str) -> str:
    """Return a text as literal matches see it: folded, white space as single spaces."""
    return " ".join(folded(text).split())


def read_query(text: str, mode: Mode = "auto") -> Query:
    """Read what a person typed; raises `QueryError` for a pattern that is none and for an unknown mode."""
    if mode not in get_args(Mode):
        raise QueryError(f"the search mode {mode!r} is not known; allowed are {', '.join(get_args(Mode))}")
    text = text[:MAX_CHARS]
    if mode == "regex":
        return _read_pattern(text)
    if mode != "auto":
        needle = normal(text)
        found = (needle,) if needle else ()
        return Query(text, mode, phrases=found) if mode == "phrase" else Query(text, mode, required=found)
    return _read_words(text)


def _read_pattern(text: str) -> Query:
    import regex  # noqa: PLC0415 - only for regular expressions

    try:
        pattern = regex.compile(text)
    except (regex.error, OverflowError, RecursionError, ValueError) as error:
        raise QueryError(
            f"{text[:80]!r} is no regular expression: {error}; see docs/search.md for the syntax"
        ) from error
    return Query(text, "regex", pattern=pattern, hints=required_literals(text)) if text else Query(text, "regex")


def _read_words(text: str) -> Query:
    quoted = [normal(phrase) for phrase in _QUOTED.findall(text)]
    phrases = tuple(dict.fromkeys(phrase for phrase in quoted if phrase))[:MAX_REQUIRED]
    terms, starts = _weighted_terms(text)
    if not terms and not starts and not phrases:  # only function words, punctuation or symbols: taken as they stand
        needle = normal(text)
        return Query(text, "auto", required=(needle,) if needle else ())
    lowered = folded(text)
    literals = [*map(normal, linked_names(text)), *(run for run in DENSE_RUN.findall(lowered) if len(run) > 1)]
    return Query(
        text,
        "auto",
        terms=terms,
        starts=starts,
        links=tuple(linked_terms(text))[:MAX_TERMS],
        literals=tuple(dict.fromkeys(literals))[:MAX_REQUIRED],
        phrases=phrases,
        is_question="?" in text or bool(_QUESTION.match(lowered)),
    )


def _weighted_terms(text: str) -> tuple[dict[str, float], tuple[str, ...]]:
    terms: dict[str, float] = {}
    starts: dict[str, None] = {}
    for word in words_of(text):
        if DENSE_RUN.match(word):
            run = folded(word)
            if len(run) == 1:
                starts[run] = None
            for place in range(len(run) - 1):
                terms.setdefault(run[place : place + 2], 1.0)
            continue
        for term in terms_of(word):
            terms.setdefault(term, WEAK_WEIGHT if term in _WEAK_TERMS else 1.0)
    first = dict(list(terms.items())[:MAX_TERMS])
    return first, tuple(starts)[:MAX_REQUIRED]


PATTERN_SECONDS = 0.25
"""The seconds that a pattern may work on one text; what takes longer does not match."""


class Matcher:
    """Tests texts for what they must have by one query."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._phrases = [whole_words(phrase) for phrase in query.phrases]
        self._pieces = {piece for needle in (*query.required, *query.phrases) for piece in needle.split()}

    def has_required(self, text: str) -> bool:
        """Return whether a text has what it must have; raise `TimeoutError` if a pattern takes too long."""
        query = self._query
        if query.pattern is not None:
            return query.pattern.search(text, timeout=PATTERN_SECONDS) is not None
        plain = folded(text)
        if not all(piece in plain for piece in self._pieces):  # as in most texts: the rest takes ten times as long
            return False
        plain = " ".join(plain.split())
        return all(needle in plain for needle in (*query.required, *query.phrases)) and all(
            phrase.search(plain) for phrase in self._phrases
        )


def whole_words(phrase: str) -> re.Pattern[str]:
    """Return a pattern for a folded phrase that begins and ends where words do; dense script has no such places."""
    before = "" if is_dense(phrase[0]) or not phrase[0].isalnum() else r"(?<![^\W_])"
    after = "" if is_dense(phrase[-1]) or not phrase[-1].isalnum() else r"(?![^\W_])"
    return re.compile(before + re.escape(phrase) + after)
