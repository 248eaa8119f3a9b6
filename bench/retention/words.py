"""Plain words: what a text is about besides its names and numbers.

Knows English stop words and the commonest words of code; in scripts without spaces a run of characters is one word.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"(?<![\w./@-])[^\W\d_]{3,}(?![\w/@]|[.-]\w)")
"""Not a part of a path, of a dotted or hyphenated name, or of an address: those are what lists are made of."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    about above after again against all also and any are because been before being below between both but can cannot
    could did does doing down during each few for from further had has have having her here hers him his how into its
    itself just let like may might more most must nor not now off once one only onto other our out over own per please
    same shall she should since some such than that the their them then there these they this those through too two
    under until upon use used using very want was way well were what when where whether which while who whom whose why
    will with within without would yes yet you your yours def class return import else elif none true false null var
    let const function async await export default self
        """,
    )
)


def plain_words(text: str) -> set[str]:
    """Return the distinct words of three letters or more, in lower case, without stop words and without names."""
    return {word for found in _WORD.findall(text) if (word := _plain(found))}


def placed_words(text: str) -> list[tuple[int, str]]:
    """Return the same words in order, each with its place."""
    return [(found.start(), word) for found in _WORD.finditer(text) if (word := _plain(found.group()))]


def _plain(word: str) -> str:
    """Return a word in lower case; empty for stop words and for names written in camel case."""
    lower = word.lower()
    is_name = word[1:] != lower[1:] and not word.isupper()
    return "" if is_name or lower in STOP_WORDS else lower
