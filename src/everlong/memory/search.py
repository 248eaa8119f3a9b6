"""Which notes answer a question in words: those that have the most of them, the newest first among equals.

Any word may match, since a question seldom has the words of its answer only. Takes texts; knows no file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORDS = re.compile(r"\w+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0eff]")
"""Scripts written without spaces, whose runs are no words."""


def ranked(query: str, texts: Sequence[str]) -> list[int]:
    """The places of the texts that have words of the query, best first; of all texts, newest first, for no words."""
    wanted = _terms(query)
    if not wanted:
        return list(range(len(texts) - 1, -1, -1))
    phrase = " ".join(query.casefold().split())
    found = []
    for place, text in enumerate(texts):
        folded = " ".join(text.casefold().split())
        hits = sum(term in folded for term in wanted)
        if hits:
            found.append((-hits - (phrase in folded), -place))
    return [-place for _, place in sorted(found)]


def _terms(query: str) -> set[str]:
    terms: set[str] = set()
    for word in _WORDS.findall(query.casefold()):
        if len(word) > 2 and _UNSPACED.search(word):
            terms.update(word[at : at + 2] for at in range(len(word) - 1))
        else:
            terms.add(word)
    return terms
