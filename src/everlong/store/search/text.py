"""Text as the index knows it: folded, cut into terms, stemmed.

One way for what is stored and what is asked, so that they meet. Case, accents and compatibility forms do not matter.
Words are stemmed (English; others stay as they are), identifiers and paths fall into their parts, and scripts that
write without spaces are cut into pairs of characters. Knows no database and no ranking.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import Stemmer

_STOP_WORDS = """
a an the of to in is it its and or for on at by be am are was were been being as this that these those with from but
if so than then i me my mine you your yours he him his she her hers we us our ours they them their theirs not no nor
do does did done doing have has had having s t d m ll re ve don didn doesn isn wasn aren weren haven hasn hadn couldn
wouldn shouldn ain
"""
STOP = frozenset(_STOP_WORDS.split())
"""Function words: they stand in most messages, so that an index entry for them would find nothing."""

_WEAK_WORDS = """
what which who whom whose when where why how will would could should can may might must shall about into out up down
over under again also just only very too there here some any all both each more most other such own same like get got
go make tell say know think thing want let ever still even much many lot really because during while after before
since until between through off above below once per via kind type sort name call happen please show find search look
mention discuss talk said told ask long have use ok yes hi hey hello thank
"""
WEAK = frozenset(_WEAK_WORDS.split())
"""Words of a question that carry little of what is asked; they count for less when there are others."""

_IRREGULAR = """
arise arose arisen; awake awoke awoken; bear bore borne; beat beaten; become became; begin began begun; bend bent; bet;
bind bound; bite bit bitten; bleed bled; blow blew blown; break broke broken; breed bred; bring brought; build built;
burn burnt; buy bought; catch caught; choose chose chosen; come came; creep crept; deal dealt; dig dug; draw drew drawn;
dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt;
fight fought; find found; flee fled; fly flew flown; forbid forbade forbidden; forget forgot forgotten;
forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone; grow grew grown;
hang hung; hear heard; hide hid hidden; hold held; keep kept; kneel knelt; know knew known; lay laid; lead led;
lean leant; learn learnt; leave left; lend lent; lie lain; lose lost; make made; mean meant; meet met; pay paid;
ride rode ridden; ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send sent;
sew sewn; shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung; sink sank sunk;
sit sat; sleep slept; slide slid; smell smelt; speak spoke spoken; spell spelt; spend spent; spill spilt; stand stood;
steal stole stolen; stick stuck; sting stung; strike struck; swear swore sworn; sweep swept; swim swam swum;
swing swung; take took taken; teach taught; tear tore torn; tell told; think thought; throw threw thrown;
understand understood; wake woke woken; wear wore worn; weep wept; win won; withdraw withdrew withdrawn;
write wrote written; rebuild rebuilt; rewrite rewrote rewritten; overcome overcame; undergo underwent;
man men; woman women; foot feet; tooth teeth; mouse mice; goose geese; person people; life lives;
wife wives; knife knives; leaf leaves; half halves; shelf shelves; wolf wolves; loaf loaves; thief thieves;
index indices; criterion criteria; datum data; analysis analyses; crisis crises; medium media; matrix matrices;
good better best; bad worse worst; far further farther furthest;
mum mom mummy mommy mama mother; dad daddy papa father; gran granny grandma nana grandmother;
grandad granddad grandpa grandfather; kid child children;
photo photograph pic picture; bike bicycle; tv television; phone telephone; fridge refrigerator; flat apartment;
colour color; favourite favorite; neighbour neighbor; honour honor; humour humor; behaviour behavior; flavour flavor;
centre center; theatre theater; metre meter; grey gray; organise organize; realise realize; recognise recognize;
apologise apologize; practise practice; programme program; travelling traveling; catalogue catalog; dialogue dialog;
config configuration; repo repository; db database; auth authentication; env environment; dir directory folder;
doc documentation; admin administrator; app application; param parameter; arg argument; async asynchronous
"""

LEMMAS: dict[str, str] = {
    form: entry.split()[0]
    for entry in _IRREGULAR.replace("\n", " ").split(";")
    if entry.split()
    for form in entry.split()
}
"""Irregular forms, spellings and short forms, each with the word under which it is indexed."""
# Words that are other words' forms stay themselves.
LEMMAS["lives"], LEMMAS["leaves"], LEMMAS["data"] = "live", "leave", "data"
LEMMAS["media"], LEMMAS["application"], LEMMAS["found"] = "media", "application", "find"

INDEX_VERSION = 9
"""Raised whenever the same text gives other terms than before; an index of another version is made anew."""

MAX_TERM = 64
"""Longer words (encoded data, mostly) are known by their beginning."""

# Han with its extensions, kana, Hangul, and the scripts of South-East Asia that put no spaces between words.
DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    "\u3040-\u30ff\u3130-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)

DENSE_RUN = re.compile(f"[{DENSE}]+")
TOKEN = re.compile(f"[{DENSE}]+|[^\\W_{DENSE}]+")
_LINKED = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_./\\:@#]{1,3}[^\W_]++)+")
_ASCII_TOKEN = re.compile("[A-Za-z0-9]+")
_HUMP_GAP = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


# Accents, soft hyphens, zero-width characters; half characters, which no database stores.
_MARKS = re.compile("[\u0300-\u0337\u0339-\u036f\u00ad\u200b-\u200d\u2060\ufeff]+")
_HALVES = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """Return the text without differences of accent and compatibility form, and only with what a database stores."""
    text = text.replace("\0", " ")
    if text.isascii():
        return text
    composed = unicodedata.normalize("NFKC", _MARKS.sub("", unicodedata.normalize("NFKD", text)))
    return _HALVES.sub("\ufffd", composed)


def folded(text: str) -> str:
    """Return the plain text without differences of case."""
    return plain(text).casefold()


_LONGEST_NAME = 500
"""Characters of a name that is found by its parts too. Thirty megabytes of `aAaA` would make as many parts."""


def _terms_of_word(word: str) -> str:
    if DENSE_RUN.match(word):
        return " ".join(pairs_of(folded(word)))
    parts = _HUMP_GAP.split(word) if len(word) <= _LONGEST_NAME and not word.islower() else []
    # The whole name, then its parts: `readFile` is found as `readfile`, `read file` and `read_file`.
    return " ".join(filter(None, map(_stem, map(folded, [word, *parts] if len(parts) > 1 else [word]))))


_kept_terms = lru_cache(maxsize=200_000)(_terms_of_word)


def known_terms(word: str) -> str:
    """Return the terms under which a word is indexed, parted by spaces: none for function words, several for names."""
    return _terms_of_word(word) if len(word) >= MAX_TERM else _kept_terms(word)  # encoded data does not come twice


def _stem(word: str) -> str:
    """Return the term of one folded word; empty if the index leaves the word out."""
    if word in STOP:
        return ""
    word = LEMMAS.get(word, word)[:MAX_TERM]
    if not word.isascii() or not word.isalpha():
        return word
    stem: str = _stemmer().stemWord(word)
    return LEMMAS.get(stem, stem)


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)


def words_of(text: str) -> list[str]:
    """Yield the words of a text as they are written; a stretch of a script without spaces is one word."""
    return (_ASCII_TOKEN if text.isascii() else TOKEN).findall(plain(text))


def terms_of(text: str) -> list[str]:
    """Return the index terms of a text, in order and with repetitions."""
    return _joined_terms(text).split()


def is_dense(term: str) -> bool:
    """Return whether a term is of a script that is cut into pairs."""
    return term > "\u0e00" and DENSE_RUN.match(term) is not None


def _joined_terms(text: str) -> str:
    return " ".join(map(known_terms, words_of(text)))


def pairs_of(run: str) -> list[str]:
    """Every two neighbouring characters of a run, and its last one alone, so that each character begins a term."""
    return [run[place : place + 2] for place in range(len(run))]


def passage_terms(text: str) -> tuple[str, ...]:
    """Return the terms of each passage of a text, separated by spaces, with those of paths and identifiers."""
    said = (text[start:stop] for start, stop in passage_spans(text))
    return tuple(" ".join([_joined_terms(one), *linked_terms(one)]) for one in said)


def linked_names(text: str) -> list[str]:
    """Return the paths and identifiers in a text."""
    return list(_LINKED.findall(text))


def linked_terms(text: str) -> list[str]:
    """Return a term for every two neighbouring parts of the paths and identifiers in a text.

    Without them 397 of 400 names in `bench.store.retrieval --exact` come first, with them 400.
    """
    found: dict[str, None] = {}
    for name in linked_names(text):
        parts = [folded(part)[:MAX_TERM] for part in TOKEN.findall(name)]
        found.update((f"{one}\u00b7{other}", None) for one, other in pairwise(parts))
    return list(found)


def required_terms(text: str, *, is_whole: bool) -> list[str]:
    """Return terms that every text has which contains this one, a folded one.

    With ``is_whole``, the words at its ends are whole words there.
    """
    found: list[str] = []
    for word in TOKEN.finditer(text):
        before, after = text[max(word.start() - 1, 0) : word.start()], text[word.end() : word.end() + 1]
        if is_dense(word[0]):
            found += pairs_of(word[0])[:-1]
        elif is_whole or (before and after):
            found += terms_of(word[0])[:1]
    return list(dict.fromkeys(found))


# -- passages ----------------------------------------------------------------------------------------------------------

PASSAGE = 400
"""The approximate number of characters of a passage."""

SHORT = 600
"""The most characters of a text that is a single passage."""

PLACE_BITS = 13
"""The bits of a passage's place in its document. Texts of a million characters have longer passages, not more."""

_ENDS = ("\n", ". ", " ", "。", "，", ",", ";", "}")


class Span(NamedTuple):
    """The place of a passage in its text."""

    start: int
    stop: int


def passage_spans(text: str) -> list[Span]:
    """Return the passages of a text, in order: whole lines, sentences or words.

    They cover the text, and the same text always gives the same ones: the index knows them by their number.
    """
    size = max(PASSAGE, len(text) >> PLACE_BITS - 2)
    count = 1 if len(text) <= SHORT else -(-(len(text) - size // 2) // size)
    spans, start = [], 0
    for number in range(1, count):
        stop, begin = _cut(text, number * size, size)
        spans.append(Span(start, stop))
        start = begin
    return [*spans, Span(start, len(text))]


def _cut(text: str, high: int, size: int) -> tuple[int, int]:
    """Return where the passage before a cut ends and the one after it begins."""
    for mark in _ENDS:
        place = text.rfind(mark, high - size // 2, high)
        if place >= 0:
            return place + len(mark), place + len(mark)
    # Every pair of characters of dense script must stand whole in a passage.
    return high, high - bool(DENSE_RUN.match(text, high - 1))
