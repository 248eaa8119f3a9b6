"""Text as the index knows it: folded, cut into terms, stemmed.

One way for what is stored and what is asked, so that they meet. Case, accents and compatibility forms do not matter.
Words are stemmed (English; others stay as they are), identifiers and paths fall into their parts, and scripts that
write without spaces are cut into pairs of characters. Knows no database and no ranking.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import Stemmer

from everlong.store.search.lexicon import LEMMAS, STOP

INDEX_VERSION = 2
"""Raised whenever the same text gives other terms than before; an index of another version is made anew."""

MAX_TERM = 64
"""Longer words (encoded data, mostly) are known by their beginning."""

REPEATS_UNTIL = 200_000
"""In texts of more characters, each term is indexed once: how often it stands there says nothing any more."""

TRIGRAMS_REPEAT_UNTIL = 50_000
"""In texts of more characters, each trigram is given to the index once."""

_PIECE = 20_000
_GAPS = ("\n", " ", "\u3002")
"""Where a long text is cut with nothing lost."""

# Han with its extensions, kana, Hangul, and the scripts of South-East Asia that put no spaces between words.
DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    "\u3040-\u30ff\u3130-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)

_DENSE_RUN = re.compile(f"[{DENSE}]+")
_TOKEN = re.compile(f"[{DENSE}]+|[^\\W_{DENSE}]+")
_ASCII_TOKEN = re.compile("[A-Za-z0-9]+")
_HUMP_GAP = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ORDINAL = re.compile("([0-9]{1,4})(?:st|nd|rd|th)")
_MAX_KNOWN = 200_000


class IndexText(NamedTuple):
    """What the index is given of one text: its terms, parted by spaces, and the characters for trigrams."""

    terms: str
    characters: str


# Marks that no base letter took up, soft hyphens, zero-width characters; half characters, which no database stores.
_REMOVED: dict[int, str] = {
    **dict.fromkeys((*range(0x300, 0x370), 0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), ""),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    0: " ",
}


def _plain_letters() -> dict[int, str]:
    """Letters with accents and the same without, for the alphabets where that is how people type."""
    table: dict[int, str] = {}
    for code in (*range(0xC0, 0x530), *range(0x1E00, 0x2000)):
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) > 1 and all("\u0300" <= mark <= "\u036f" for mark in parts[1:]):
            table[code] = parts[0]
    return {**table, **_REMOVED}


_PLAIN = _plain_letters()
_REMOVABLE = re.compile("[\0\u00ad\u0300-\u036f\u200b-\u200d\u2060\ufeff\ud800-\udfff]")
_PLAINABLE = re.compile("[\0\u00ad\u00c0-\u052f\u1e00-\u1fff\u200b-\u200d\u2060\ufeff\ud800-\udfff]")


def folded(text: str) -> str:
    """The text without differences of case, accent and compatibility form."""
    if text.isascii():
        return text.lower().replace("\0", " ")
    composed = unicodedata.normalize("NFKC", text)
    plain = composed.casefold()
    if plain != composed:
        plain = unicodedata.normalize("NFKC", plain)
    # Looking characters up one by one is slow, and most scripts have none to replace.
    return plain.translate(_PLAIN) if _PLAINABLE.search(plain) else plain


class _Terms(dict[str, str]):
    """Words as they are written, and the terms under which each is indexed, parted by spaces; computed once."""

    def __missing__(self, word: str) -> str:
        terms = _terms_of_word(word)
        if len(word) < MAX_TERM:  # encoded data does not come twice
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[word] = terms
        return terms


def _terms_of_word(word: str) -> str:
    if _DENSE_RUN.match(word):
        return " ".join(pairs_of(folded(word)))
    parts = _HUMP_GAP.split(word) if not word.islower() else []
    # The whole name, then its parts: `readFile` is found as `readfile`, `read file` and `read_file`.
    return " ".join(filter(None, map(_stem, map(folded, [word, *parts] if len(parts) > 1 else [word]))))


def _stem(word: str) -> str:
    """The term of one folded word; empty if it is a word that the index leaves out."""
    if word in STOP:
        return ""
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    word = LEMMAS.get(word, word)[:MAX_TERM]
    if not word.isascii() or not word.isalpha():
        return word
    stem: str = _stemmer().stemWord(word)
    return LEMMAS.get(stem, stem)


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)


_TERMS = _Terms()


def words_of(text: str) -> list[str]:
    """The words of a text as they are written; a stretch of a script without spaces is one word."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        if _REMOVABLE.search(text):
            text = text.translate(_REMOVED)
    if "," in text:
        text = _THOUSANDS.sub("", text)
    return (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text)


def terms_of_word(word: str) -> list[str]:
    """The index terms of one word: none for function words, several for names such as `readFile`."""
    return _TERMS[word].split()


def terms_of(text: str) -> list[str]:
    """The index terms of a text, in order and with repetitions."""
    return _joined_terms(text).split()


def counted(text: str, plain: str, terms: Collection[str], pairs: Sequence[str]) -> tuple[dict[str, int], int]:
    """How often some terms stand in a text, and of how many it consists; ``pairs`` are those of dense script."""
    counts = {pair: count for pair in pairs if (count := plain.count(pair))}
    if len(pairs) == len(terms):  # nothing else is asked for, so no word need be looked at
        return counts, len(text)
    length = 0
    for word in words_of(text):
        if word > "\u0e00" and _DENSE_RUN.match(word):
            length += len(word)
            continue
        found = _TERMS[word]
        if " " not in found:
            length += bool(found)
            if found in terms:
                counts[found] = counts.get(found, 0) + 1
            continue
        for term in found.split():
            length += 1
            if term in terms:
                counts[term] = counts.get(term, 0) + 1
    return counts, length


def is_dense(term: str) -> bool:
    """Whether a term is of a script that is cut into pairs."""
    return term > "\u0e00" and _DENSE_RUN.match(term) is not None


def _joined_terms(text: str) -> str:
    return " ".join(map(_TERMS.__getitem__, words_of(text)))


def pairs_of(run: str) -> list[str]:
    """Every two neighbouring characters of a run, and its last one alone, so that each character begins a term."""
    return [run[place : place + 2] for place in range(len(run))]


def index_text(text: str) -> IndexText:
    """What to index of a text."""
    terms = _joined_terms(text) if len(text) <= REPEATS_UNTIL else _distinct_terms(text)
    return IndexText(terms, characters_of(text) if len(text) <= TRIGRAMS_REPEAT_UNTIL else _distinct_trigrams(text))


def _distinct_terms(text: str) -> str:
    terms: dict[str, None] = {}
    for piece in _pieces(text):
        terms.update(dict.fromkeys(_joined_terms(piece).split()))
    return " ".join(terms)


def _distinct_trigrams(text: str) -> str:
    """Return characters that have all trigrams of a long text, each as seldom as possible; others may come between."""
    known: set[str] = set()
    parts: list[str] = []
    before = " "
    for piece in _pieces(text):
        plain = before + characters_of(piece).strip() + (" " if piece[-1].isspace() else "")
        first = None
        for place in range(len(plain) - 2):
            trigram = plain[place : place + 3]
            if trigram not in known:
                known.add(trigram)
                first = place if first is None else first
            elif first is not None:
                parts.append(plain[first : place + 2])
                first = None
        if first is not None:
            parts.append(plain[first:])
        before = plain[-2:]
    return f"{' '.join(parts)} {before.strip()}  "


def _pieces(text: str) -> Iterator[str]:
    """Cut a long text where that changes no word; one without an end is cut all the same."""
    start, stop = 0, len(text)
    while start < stop:
        end = min(start + _PIECE, stop)
        if end < stop:
            end = max(text.rfind(gap, start + _PIECE // 2, end) for gap in _GAPS) + 1 or end
        yield text[start:end]
        start = end


def characters_of(text: str) -> str:
    """The characters that substrings are looked up by: folded, white space as one space, dense scripts left out."""
    plain = folded(text)
    if not plain.isascii():
        plain = _DENSE_RUN.sub(" ", plain)
    return f" {' '.join(plain.split())}  "
