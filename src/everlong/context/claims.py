"""The claims of a summary, compared with the statements of the conversation.

A claim is a clause: its telling words, whether it is denied, its figures, and the order of the things it names. It is
compared with the clauses in which people and assistants said the same, newest last, so that a change in a later turn
is no contradiction. Words are compared by their stems; a failure counts as a denied success.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from everlong.context.summary.language import sentences
from everlong.context.text import one_line

__all__ = ["ClaimClause", "Statements", "clauses_of", "read_clause", "stem", "telling_words"]

_LOOK_AT = 20_000
"""Characters of a text that are read."""
_SUCCESS = "+success"
"""The token for every word that tells the outcome of something."""
_LEAST_ALIKE = 0.8
_LEAST_COVERED = 0.5
_SAME_MATTER = 0.6
"""Shares of a clause's words that another one must have to say the same, or to be about the same."""

_TOKEN = re.compile(
    r"[A-Za-z_][\w'’]*(?:[./:@-]+\w[\w'’]*)*|/[\w./-]*\w|\d+(?:[.,:]\d+)*(?:st|nd|rd|th)?\b|\d+(?:[.,:]\d+)*"
    r"|[\u3400-\u9fff]+|[,;]"
)
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_CLAUSE_END = re.compile(
    r"[;；，]\s*|[:?!]\s+|\s+(?:->|→)\s+|,\s+(?=[A-Z]\w+ [a-z]+(?:ed|s)\b)"
    r"|,\s+(?=(?:and|but|so|then|because|since|which|as|not|never|instead|the|it|there|he"
    r"|she|they|we|I)\b)|\s+(?=(?:because|since|although|whereas)\b)"
)
_NO = frozenset(
    """
    not never no none cannot without nor neither nothing nobody against avoid avoided stop forbid forbidden
    refuse refused denies reject isn't
    """.split()  # noqa: SIM905 - words, as one reads them
)
_HAN_NO = re.compile(r"不要|不能|不得|不许|不必|不再|不会|不是|不|禁止|别(?!的|人)|没有|没|未|避免|从不|绝不")
_HAN_ASPECT = re.compile(r"已经|已|还|也|都|了|可以|的")
_GOOD = frozenset(
    """
    pass passes passed passing green ok succeed succeeds succeeded successful works worked confirmed approved
    accepted finished completed complete fixed solved mended resolved settled liked allowed granted
    """.split()  # noqa: SIM905 - words, as one reads them
)
_BAD = frozenset(
    """
    fail fails failed failing failure red broken breaks crashed crashes rejected cancelled canceled declined
    denied unfinished incomplete unresolved unsettled disliked blocked
    """.split()  # noqa: SIM905 - words, as one reads them
)
_IRREGULAR = {
    "used": "use",
    "uses": "use",
    "using": "use",
    "came": "come",
    "kept": "keep",
    "wrote": "write",
    "written": "write",
    "went": "go",
    "gone": "go",
    "sent": "send",
    "built": "build",
    "rebuilt": "rebuild",
    "chose": "choose",
    "chosen": "choose",
    "found": "find",
    "made": "make",
    "paid": "pay",
    "redone": "redo",
    "ran": "run",
    "took": "take",
    "taken": "take",
    "said": "say",
    "left": "leave",
    "won't": "will",
    "can't": "can",
}
_EMPTY = frozenset(
    """
    a an the and or but so of in on at to for from by with as is are was were be been being am it its this
    that these those there here they them their he she his her you your we our us i me my mine will would
    shall should can could may might must do does did done has have had having just now then than still yet
    also too very only already more most some any all each both if when while because since although which
    who whom whose what how why about into onto over under after before again please let lets get gets got
    newest request user thing things rather instead want wants wanted
    """.split()  # noqa: SIM905 - words, as one reads them
)
_PIVOT = re.compile(r"\b(?:rather than|instead of|in place of|over|to|before|after)\b|→|->")
_ASIDE = re.compile(r"\s?\([^()]*\)")
_ORDER_END = re.compile(r"[.;:]\s")
_CHOICES = frozenset(["rather than", "instead of", "in place of", "over"])
_SCOPE = 2
"""The number of telling words after a denial that it covers."""
_QUOTED = 60
_BESIDE = 3
"""Words on either side of a pivot that are compared."""
_PAIR = re.compile(r"\b([a-z][\w'-]+) for (?:the |an? |my |our |its |their )?([a-z][\w'-]+)")


_CODE = re.compile(r"\b(?=(\w+ \w+) ([A-Z]{3})\b)")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}[A-Za-z]*\b|^[A-Z][a-z]{2,}(?= [a-z]+ (?:me|us)\b)")
_MONTHS = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_MONTH_DAY = re.compile(rf"\b{_MONTHS} \d{{1,2}}\b")
_CLOCK = re.compile(r"\b\d{1,2}:\d\d\b")
_VALUE = rf"({_MONTHS} \d{{1,2}}|\d{{1,2}}:\d\d|[$€£]?\d[\d.,]{{0,12}}\d ?(?:%|\w{{1,3}}\b)?)"
_NOT_OLD = re.compile(rf"\b{_VALUE},? (?:not|instead of|rather than|and not) (?:the |on |at )?{_VALUE}")
_MOVED = re.compile(
    r"\b(?:moved|changed|postponed|shifted|pushed|put)(?: \w+){0,3} (?:to|till|until) "
    rf"({_MONTHS} \d{{1,2}}|\d{{1,2}}:\d\d)"
)


@lru_cache(maxsize=8_192)
def stem(word: str) -> str:
    """Return a word without the ending of its tense or number."""
    word = _IRREGULAR.get(word, word)
    if word.endswith(("'s", "’s")):
        word = word[:-2]
    if len(word) < 5 or not word.isalpha() or not word.isascii():
        return word[:-1] if len(word) == 4 and word.endswith("s") and not word.endswith("ss") else word
    for ending in ("ing", "ied", "ies", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sl" else word


@dataclass(frozen=True, slots=True)
class ClaimClause:
    """A clause by its telling words."""

    text: str
    words: frozenset[str]
    is_denied: bool
    figures: frozenset[str]
    denied: frozenset[str] = frozenset()
    """The denied words: the first ones after each denial."""

    @property
    def names(self) -> frozenset[str]:
        """The telling words that are no figures."""
        return self.words - self.figures


def telling_words(text: str) -> set[str]:
    """Return the stems of a text's telling words: those that carry its meaning."""
    return set(_read(text[:_LOOK_AT]).words)


def read_clause(text: str) -> ClaimClause:
    """Read one clause."""
    read = _read(text)
    figures = frozenset(word for word in read.words if word[0].isdigit())
    return ClaimClause(text, frozenset(read.words), read.denials % 2 == 1, figures, frozenset(read.denied))


def clauses_of(text: str) -> list[ClaimClause]:
    """Read all clauses of a text."""
    return [
        read_clause(clause)
        for sentence in sentences(text[:_LOOK_AT])
        for clause in _CLAUSE_END.split(sentence)
        if clause.strip()
    ]


class _Reading(NamedTuple):
    """The telling words of a text, the number of its denials, and the denied words."""

    words: list[str]
    denials: int
    denied: list[str]


def _read(text: str) -> _Reading:
    words: list[str] = []
    denied: list[str] = []
    denials = scope = 0
    for token in _TOKEN.findall(text.lower().replace("’", "'")):
        if token[0] in ",;":
            scope = 0
        elif "\u3400" <= token[0] <= "\u9fff":
            denials += len(_HAN_NO.findall(token))
            for run in _HAN_ASPECT.sub(" ", _HAN_NO.sub(" ", token)).split():
                words += [run[place : place + 2] for place in range(max(1, len(run) - 1))]
        elif token in _NO or token.endswith("n't"):
            denials, scope = denials + 1, _SCOPE
        elif token in _GOOD or token in _BAD:
            denials += token in _BAD
            words.append(_SUCCESS)
        elif token not in _EMPTY and (plain := stem(token.strip("'.:-"))) and (len(plain) > 1 or plain.isdigit()):
            words.append(plain)
            if scope:
                denied.append(plain)
                scope -= 1
    return _Reading(words, denials, denied)


class Statements:
    """All statements of a conversation, oldest first, searchable by their words."""

    def __init__(self, texts: Iterable[str], *, last_tool: int = 0) -> None:
        kept = [text[:_LOOK_AT] for text in texts]
        self._lines = "\n".join(kept).split("\n")
        lowered = [line.lower() for line in self._lines]
        self._text = "\n".join(lowered)
        self._starts = list(accumulate((len(line) + 1 for line in lowered), initial=0))
        self._after_tools = sum(text.count("\n") + 1 for text in kept[:last_tool])
        """The first line after the last tool result."""
        self._with_word: dict[str, frozenset[int]] = {}
        self._clauses: dict[int, list[ClaimClause]] = {}

    def contradicts(self, claim: ClaimClause, *, has_open_error: bool = False) -> bool:
        """Return whether the conversation says the opposite of a claim in the same words."""
        if len(claim.words) < 2 or self.quotes(claim.text):
            return False
        found = [(number, clause) for number in self._about(claim) for clause in self._clauses_of(number)]
        alike = [(number, clause.is_denied) for number, clause in found if _is_alike(claim, clause)]
        if not alike or any(is_denied == claim.is_denied for _, is_denied in alike):
            return False
        newest = max(number for number, _ in alike)
        # An outcome may have changed since, if a tool result came after the statement.
        return not (_SUCCESS in claim.words and newest < self._after_tools and (claim.is_denied or not has_open_error))

    def quotes(self, text: str) -> bool:
        """Return whether a text, or the beginning of a long one, was said word for word."""
        words = one_line(text).lower().strip(" .…\"'`*")[:_QUOTED]
        return bool(words) and any(
            not (flat[place - 1 : place].isalnum() or _denies_before(flat, place))
            for flat in (self._flat,)
            for place in _places(flat, words)
        )

    @cached_property
    def _flat(self) -> str:
        return one_line(self._text)

    def other_figures(self, claim: ClaimClause) -> set[str]:
        """Return the figures of a claim that were never said, although another figure was in the same place."""
        if not claim.figures or len(claim.names) < 2:
            return set()
        least = max(2, ceil(_SAME_MATTER * len(claim.names)))
        alike = [
            clause
            for number in self._about(claim)
            for clause in self._sentences_of(number)
            if len(claim.names & clause.names) >= least
        ]
        said = {figure for clause in alike for figure in clause.figures}
        if not alike or not any(clause.figures - claim.figures for clause in alike):
            return set()
        closest = max(len(claim.names & clause.names) for clause in alike)
        lost = {
            figure
            for clause in alike
            if len(claim.names & clause.names) >= closest - 1
            for figure in clause.figures - claim.figures
        }
        return {figure for figure in claim.figures - said if any(_is_like(figure, other) for other in lost)}

    def other_code(self, text: str) -> list[tuple[str, str]]:
        """Return the codes of three capitals that differ from the code that was said, each with the latter."""
        found: list[tuple[str, str]] = []
        for match in _CODE.finditer(text):
            for number in self._lines_with(match[1].lower()):
                said = {code for before, code in _CODE.findall(self._lines[number]) if before == match[1]}
                if said and match[2] not in said:
                    found.append((match[2], min(said)))
                    break
        return found

    def reversed_order(self, text: str) -> str:
        """Return the words in which a text reverses the order of two things; empty if it reverses none."""
        for before, pivot, after in _orders(text):
            if not before or not after:
                continue
            opposed = False
            for number in self._lines_with(pivot):
                for left, same, right in _orders(self._lines[number]):
                    if same != pivot:
                        continue
                    if before & left and after & right:
                        opposed = False
                        break
                    opposed = opposed or bool(before & right and after & left and not before & left)
                else:
                    continue
                break
            if opposed:
                return f"{' '.join(sorted(before))} {pivot} {' '.join(sorted(after))}"
        return self._crossed_pair(text)

    def _crossed_pair(self, text: str) -> str:
        """Return the pair of words that were both said, but each with the other's partner; empty for none."""
        pairs = {(stem(one), stem(other)) for one, other in _PAIR.findall(text.lower())}
        for one, other in pairs:
            for second, fourth in pairs:
                is_crossed = one != second and self._has_pair(one, fourth) and self._has_pair(second, other)
                if is_crossed and not self._has_pair(one, other):
                    return f"{one} for {other}"
        return ""

    def _has_pair(self, one: str, other: str) -> bool:
        numbers = self._lines_with(one) & self._lines_with(other)
        return any(
            (stem(left), stem(right)) == (one, other)
            for number in numbers
            for left, right in _PAIR.findall(self._lines[number].lower())
        )

    def other_name(self, sentence: str) -> str:
        """Return the name that was said in place of a sentence's first word; empty for none."""
        claim = read_clause(sentence.partition(" ")[2])
        if len(claim.words) < 2:
            return ""
        least, named = max(2, ceil(_SAME_MATTER * len(claim.words))), sentence.lower()
        for number in self._about(claim):
            for said in sentences(self._lines[number]):
                if len(claim.words & telling_words(said)) >= least:
                    others = [name for name in _NAME.findall(said) if name.lower() not in named]
                    if others:
                        return str(others[0])
        return ""

    @cached_property
    def superseded(self) -> list[tuple[str, str, frozenset[str]]]:
        """The values that a person replaced, each with the new value and the words said with either."""
        found: list[tuple[str, str, frozenset[str]]] = []
        for number, line in enumerate(self._lines):
            if " not " not in line and "instead of" not in line and not _MOVED.search(line):
                continue
            found += [(match[2], match[1], frozenset(telling_words(line))) for match in _NOT_OLD.finditer(line)]
            for match in _MOVED.finditer(line):
                before = " ".join(self._lines[max(0, number - 3) : number])
                shape = _MONTH_DAY if _MONTH_DAY.fullmatch(match[1]) else _CLOCK
                earlier = [value for value in shape.findall(before) if value != match[1]]
                if earlier:
                    about = telling_words(f"{before} {line}")
                    found.append((earlier[-1], match[1], frozenset(about)))
        return found

    def says_only_no(self, thing: str) -> bool:
        """Return whether every mention of a thing says that there is none."""
        numbers = self._lines_with(thing.lower())
        without = re.compile(rf"\b(?:no|without|not any|没有)\s+(?:\w+\s)?{re.escape(thing.lower())}\b")
        mentions = re.compile(rf"\b{re.escape(thing.lower())}\b")
        texts = [self._lines[number].lower() for number in numbers]
        said = sum(len(mentions.findall(text)) for text in texts)
        return 0 < said == sum(len(without.findall(text)) for text in texts)

    def says(self, words: set[str], share: float) -> bool:
        """Return whether one line has at least that share of some words."""
        if not words:
            return False
        least = ceil(share * len(words))
        keys = sorted(words, key=lambda word: (-len(word), word))[: len(words) - least + 1]
        numbers = {number for key in keys for number in self._lines_with(key)}
        return any(len(words & telling_words(self._lines[number])) >= least for number in numbers)

    def _about(self, claim: ClaimClause) -> list[int]:
        """Return the numbers of the lines with enough words of a claim to be about the same."""
        words = [word for word in claim.names if word != _SUCCESS]
        having = Counter(number for word in words for number in self._lines_with(word))
        least = max(1, ceil(_LEAST_COVERED * len(words)))
        return sorted(number for number, count in having.items() if count >= least)

    def _lines_with(self, word: str) -> frozenset[int]:
        """Return the numbers of the lines with a word, whole or as a part of another."""
        numbers = self._with_word.get(word)
        if numbers is None:
            found: list[int] = []
            place = self._text.find(word)
            while place >= 0:
                number = bisect_right(self._starts, place) - 1
                found.append(number)
                place = self._text.find(word, self._starts[number + 1])
            numbers = self._with_word[word] = frozenset(found)
        return numbers

    def _clauses_of(self, number: int) -> list[ClaimClause]:
        read = self._clauses.get(number)
        if read is None:
            read = self._clauses[number] = clauses_of(self._lines[number])
        return read

    def _sentences_of(self, number: int) -> list[ClaimClause]:
        read = self._clauses.get(-number - 1)
        if read is None:
            read = self._clauses[-number - 1] = [read_clause(text) for text in sentences(self._lines[number])]
        return read


def _is_alike(claim: ClaimClause, said: ClaimClause) -> bool:
    """Return whether two clauses say the same, apart from a denial."""
    shared = len(claim.words & said.words)
    if shared < 2:
        return False
    if claim.is_denied != said.is_denied and not (claim.denied <= said.words and said.denied <= claim.words):
        return False
    few, many = sorted((len(claim.words), len(said.words)))
    if few == 2:
        return shared == few and many <= 4
    return shared >= _LEAST_ALIKE * few and shared >= _LEAST_COVERED * many


def _places(text: str, words: str) -> Iterator[int]:
    place = text.find(words)
    while place >= 0:
        yield place
        place = text.find(words, place + 1)


def _denies_before(text: str, place: int) -> bool:
    """Return whether the words right before a place deny the words after it."""
    before = text[max(0, place - 24) : place].split()[-2:]
    return any(word in _NO or word.endswith(("n't", "n’t")) for word in before) or bool(
        _HAN_NO.search(text[max(0, place - 3) : place])
    )


def _is_like(figure: str, other: str) -> bool:
    """Return whether one figure can stand in the place of another: both clock times, both dates, both plain numbers."""
    return (":" in figure) == (":" in other) and figure[-1:].isdigit() == other[-1:].isdigit()


def _orders(text: str) -> Iterator[tuple[set[str], str, set[str]]]:
    """Yield the words before and after each word that puts two things into an order."""
    for clause in _ORDER_END.split(_ASIDE.sub("", text[:_LOOK_AT])):
        lowered = clause.lower()
        for pivot in _PIVOT.finditer(lowered):
            word = pivot[0]
            before = _read(lowered[: pivot.start()]).words[-_BESIDE:]
            after = _read(lowered[pivot.end() :]).words[:_BESIDE]
            if word not in _CHOICES:  # only its direct neighbours are put into an order
                before, after = before[-1:], after[:1]
            yield set(before), word, set(after)
