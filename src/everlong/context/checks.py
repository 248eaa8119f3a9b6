"""The checks that a summary must pass: each looks at one thing, fails for one reason, and names what it found.

    goal            the goal is what a person said, not a client's addition, code, or nobody's words
    newest request  the newest request is named as such, and no other one is
    rules           every standing rule is there, word for word
    frontier        open items, errors and files in hand are stated, and none of them is called done
    entities        enough of the names, numbers and paths of the conversation are kept
    invented        no name and no number that stands nowhere in the conversation
    contradiction   nothing is said the other way round than in the conversation
    wrapper         nothing that a client added stands as a statement
    code            no code, markup or data outside of Critical Context

A score is what the checks leave of 1. Knows the summary and the evidence; does not mend anything.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from everlong.context.frontier import Frontier, inherited_frontier, is_frontier_item, without_frontier
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.language import ALL, is_closing, newest_label, said_in, sentences
from everlong.context.summary.newest import is_restated, is_stale
from everlong.context.summary.text import clip, one_line

__all__ = ["CHECKS", "GOOD", "Evidence", "Fault", "examine", "score_of"]

CHECKS = (
    "goal",
    "newest request",
    "rules",
    "frontier",
    "entities",
    "invented",
    "contradiction",
    "wrapper",
    "code",
)
GOOD = 0.8
"""A summary that scores less is mended; two in a row change the strategy."""
_FAILED = 0.72
"""What a failed check leaves of a score."""
_FAILED_GOAL = 0.48
"""What a wrong goal leaves: whoever goes on from it does something that nobody asked for."""
_FURTHER = 0.93
"""What each further fault of the same check leaves of it."""
_MOST_FURTHER = 4
_PLAIN_SHARE = 0.9
"""What a summary without a fault scores that keeps no name at all."""
_LEAST_KEPT = 0.04
_ENOUGH_KEPT = 0.35

_STATED = (
    "Goal",
    "Constraints & Preferences",
    "Done",
    "In Progress",
    "Blocked",
    "Key Decisions",
    "Resolved Questions",
    "Pending User Asks",
    "Next Steps",
)
_NO_CODE = (
    "Goal",
    "Constraints & Preferences",
    "Key Decisions",
    "Resolved Questions",
    "Pending User Asks",
    "Next Steps",
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]{2,}|[\u3400-\u9fff]{2}|\d[\d.,:]*\d|\d")
_COMMON = frozenset(
    [
        "the",
        "and",
        "for",
        "with",
        "that",
        "this",
        "from",
        "are",
        "was",
        "were",
        "has",
        "have",
        "had",
        "will",
        "would",
        "can",
        "could",
        "should",
        "its",
        "not",
        "but",
        "you",
        "your",
        "our",
        "they",
        "them",
        "their",
        "then",
        "than",
        "into",
        "onto",
        "over",
        "under",
        "about",
        "after",
        "before",
        "user",
        "newest",
        "request",
        "all",
        "any",
        "each",
        "one",
        "two",
        "new",
        "use",
        "used",
        "using",
        "via",
        "per",
        "also",
        "only",
        "does",
        "did",
        "done",
        "now",
        "still",
        "more",
        "most",
        "some",
        "such",
        "so",
        "be",
        "been",
        "being",
        "is",
        "it",
        "in",
        "on",
        "to",
        "of",
        "a",
        "an",
        "at",
        "by",
        "as",
        "or",
        "if",
        "no",
    ]
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|cannot|without|nor|neither|avoid|stop|forbid\w*|refuse\w*)\b|n't\b|n’t\b"
    r"|不要|不能|不得|不许|不用|禁止|别|没有|避免|从不|绝不|不再",
    re.IGNORECASE,
)
_LEAST_COMPARED = 3
_SAME_ITEM, _SAME_SENTENCE = 0.8, 0.6
_CODE_LINE = re.compile(
    r"^[-*•\s]*(?:"
    r"[\w-]+\s*:\s*[^;{}]{1,60};\s*$|</?[a-zA-Z][\w-]*(?:\s[^>]*)?/?>.*|[.#]?[\w-]+(?:\s[.#>\w-]+)*\s*\{\s*$|[{}()\[\];,]+\s*$"
    r"|(?:const|let|var|function|import|export|return|class|def|from|public|private|static|async|await|if|for|while)\b"
    r"[^.!?]*[;{(:=]\s*$|[\w.]+\([^)]*\)\s*[;{]\s*$|@(?:media|import|keyframes)\b.*|[\w.\[\]'\"]+\s*[+-]?=\s*\S.*[;(]?$"
    r"|\"[\w-]+\"\s*:\s*.+,?\s*$|\$\s?\w+=|#include\b|SELECT\s.+\sFROM\s|(?:drwx|-rw)[rwx-]{6,}.*"
    r")"
)
_MARKUP = re.compile(r"<[^>]*>|\"[^\"]*\"|[\w-]+=\S+")
_PROSE = re.compile(r"(?<![\w.<#-])[A-Za-z]{2,}(?![\w(=:{-])|[\u3400-\u9fff]")
_LEAST_PROSE = 5
_NUMBER = re.compile(r"(?<![\w./#-])\$?\d+(?:[.,:]\d+)*(?:\s?(?:%|[a-zA-Z]{1,3}\b))?")
_VAGUE = frozenset(
    [
        "a",
        "about",
        "and",
        "are",
        "as",
        "at",
        "by",
        "for",
        "from",
        "has",
        "have",
        "in",
        "is",
        "it",
        "of",
        "on",
        "or",
        "over",
        "than",
        "that",
        "the",
        "then",
        "these",
        "to",
        "was",
        "were",
        "with",
        "step",
        "line",
        "lines",
        "option",
    ]
)
"""Words beside a figure that do not tell what it is a figure of."""
_FIGURES = re.compile(r"\d[\d.,:]*")
_FIGURE_WORD = re.compile(r"\d[\d.,:]*|[^\W\d_]+")
_NEXT_WORD = re.compile(r"[\W_]*([^\W\d_]+)")
_NEAR = 48
"""Characters before a figure among which the two words before it nearly always are."""
_LOOK_AT = 20_000
"""Characters of a text that are read."""
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<![.!?:•\"“(`/\-] )(?<!^)(?<=[a-z,] )[A-Z][a-z]{2,}[A-Za-z]*\b")


class Fault(NamedTuple):
    """What a check found."""

    check: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what}"


@dataclass
class Evidence:
    """What a summary is held against."""

    people: Sequence[str]
    """What people said, oldest first."""
    others: Sequence[str] = ()
    """What the assistant said, and what an earlier summary says."""
    newest: str = ""
    rules: Sequence[str] = ()
    """The standing rules, word for word."""
    beside: Callable[[], str] = lambda: ""
    """The text that stands beside the summary."""
    frontier: Frontier | None = None
    is_wrapper: Callable[[str], bool] = lambda _: False
    is_no_goal: Callable[[str], bool] = lambda _: False
    """Whether words are a client's or the project's, and no person's."""
    unknown: Callable[[set[str]], set[str]] = lambda _: set()
    """Those of some words that stand nowhere in the conversation."""
    invented: Callable[[str], Sequence[str]] = lambda _: ()

    @cached_property
    def people_words(self) -> set[str]:
        """The telling words that people used."""
        return {word for text in self.people for word in _words(text)}

    @cached_property
    def told(self) -> _Told:
        """What was said, sentence by sentence."""
        return _Told((*self.people, *self.others))

    @cached_property
    def figures(self) -> dict[tuple[str, ...], set[str]]:
        """The figures that were said between the same words."""
        found: dict[tuple[str, ...], set[str]] = {}
        for text in (*self.people, *self.others):
            for around, figure in _figures(text):
                found.setdefault(around, set()).add(figure)
        return found


class _Told:
    """What was said, in which a sentence is found again by its telling words."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._lines = "\n".join(text[:_LOOK_AT] for text in texts).split("\n")
        self._lowered = [line.lower() for line in self._lines]
        self._text = "\n".join(self._lowered)
        self._starts = list(accumulate((len(line) + 1 for line in self._lowered), initial=0))
        self._with_word: dict[str, set[int]] = {}
        self._read: dict[int, list[tuple[str, set[str]]]] = {}

    def turns_round(self, clause: str) -> bool:
        """Return whether a clause was said in the same words, but only with the other sign."""
        words = set(_words(clause))
        if len(words) < _LEAST_COMPARED:
            return False
        least = _SAME_ITEM * len(words)
        # Whoever has that many of the words has one of these. Long words are rare, so that few lines are read at all.
        keys = sorted(words, key=lambda word: (-len(word), word))[: len(words) - ceil(least) + 1]
        says_no, is_opposed = _says_no(clause), False
        for number in self._candidates(clause, keys):
            line = self._lowered[number]
            if len([word for word in words if word in line]) < least:
                continue
            for said, told in self._clauses_of(number):
                shared = len(words & told)
                if shared >= least and len(told) >= _LEAST_COMPARED:
                    if _says_no(said) == says_no:
                        return False
                    is_opposed = is_opposed or shared >= _SAME_SENTENCE * len(told)
        return is_opposed

    def _candidates(self, clause: str, keys: Sequence[str]) -> Iterator[int]:
        """Yield the numbers of the lines that may say a clause, first that in which it stands word for word."""
        place = self._text.find(clause.lower())
        if place >= 0:
            yield bisect_right(self._starts, place) - 1
        for key in keys:
            yield from self._lines_with(key)

    def _lines_with(self, word: str) -> set[int]:
        """Return the numbers of the lines in which a word stands, as a whole one or as a part."""
        numbers = self._with_word.get(word)
        if numbers is None:
            numbers = self._with_word[word] = set()
            place = self._text.find(word)
            while place >= 0:
                number = bisect_right(self._starts, place) - 1
                numbers.add(number)
                place = self._text.find(word, self._starts[number + 1])
        return numbers

    def _clauses_of(self, number: int) -> list[tuple[str, set[str]]]:
        """Return the clauses of a line, each with its telling words."""
        read = self._read.get(number)
        if read is None:
            read = self._read[number] = [(clause, set(_words(clause))) for clause in _clauses(self._lines[number])]
        return read


def examine(summary: str, evidence: Evidence, kept: float, *, is_draft: bool = False) -> list[Fault]:
    """Return the faults of a summary.

    A draft is not blamed for what is added to it later: the newest request, the rules, and the frontier.
    """
    document = SummaryDocument.parse(summary)
    faults = [
        *_goal(document, evidence),
        *_newest(document, evidence, is_draft=is_draft),
        *_frontier(document, summary, evidence, is_draft=is_draft),
        *_contradictions(document, evidence),
        *_wrappers(document, evidence),
        *_code(document),
    ]
    if not is_draft:
        faults += [*_rules(summary, evidence), *_invented(document, summary, evidence)]
        if kept < _LEAST_KEPT:
            faults.append(Fault("entities", f"keeps {kept:.0%} of the names of the conversation"))
    return faults


def score_of(faults: Iterable[Fault], kept: float) -> float:
    """Return what faults and lost names leave of 1, in two decimals."""
    score = _PLAIN_SHARE + (1 - _PLAIN_SHARE) * min(1.0, kept / _ENOUGH_KEPT)
    by_check: dict[str, int] = {}
    for fault in faults:
        by_check[fault.check] = by_check.get(fault.check, 0) + 1
    for check, count in by_check.items():
        score *= (_FAILED_GOAL if check == "goal" else _FAILED) * _FURTHER ** min(count - 1, _MOST_FURTHER)
    return round(score, 2)


# -- the checks --------------------------------------------------------------------------------------------------------


def _goal(document: SummaryDocument, evidence: Evidence) -> list[Fault]:
    faults: list[Fault] = []
    for item in document.items["Goal"]:
        plain = said_in(item)
        if evidence.is_no_goal(item):
            faults.append(Fault("goal", f"a client's words, not a person's: {clip(plain, 80)}"))
        elif _is_code(item):
            faults.append(Fault("goal", f"code, not a person's words: {clip(plain, 80)}"))
        else:
            words = _words(plain)
            strange = [word for word in words if word not in evidence.people_words]
            if evidence.people_words and len(words) >= _LEAST_COMPARED and len(strange) > 0.6 * len(words):
                faults.append(Fault("goal", f"nobody asked for it: {clip(plain, 80)}"))
    return faults


def _newest(document: SummaryDocument, evidence: Evidence, *, is_draft: bool) -> list[Fault]:
    if not evidence.newest:
        return []
    named = [item for item in document.items["Pending User Asks"] if newest_label(item)]
    wrong = [item for item in named if evidence.is_no_goal(item)]
    if wrong:
        return [Fault("goal", f"a client's words are called the newest request: {clip(said_in(wrong[0]), 80)}")]
    stale = [item for item in named if is_stale(item, evidence.newest)]
    if stale:
        return [Fault("newest request", f"another request is called the newest: {clip(said_in(stale[0]), 80)}")]
    if not is_draft and not is_restated(document, evidence.newest):
        return [Fault("newest request", f"not named: {clip(one_line(evidence.newest), 80)}")]
    return []


def _rules(summary: str, evidence: Evidence) -> list[Fault]:
    if not evidence.rules:
        return []
    standing = _plain(f"{summary}\n{evidence.beside()}")
    return [Fault("rules", f"lost: {clip(rule, 80)}") for rule in evidence.rules if _plain(rule) not in standing]


def _frontier(document: SummaryDocument, summary: str, evidence: Evidence, *, is_draft: bool) -> list[Fault]:
    frontier = evidence.frontier
    if frontier is None:
        return []
    faults: list[Fault] = []
    done = [(item, set(_words(item))) for item in document.items["Done"]]
    for item in frontier.plan:
        words = set(_words(item.text))
        if item.state in ("pending", "in_progress") and words:
            said = next((text for text, told in done if len(words & told) >= _SAME_ITEM * len(words)), "")
            if said and not _says_no(said):
                faults.append(Fault("frontier", f"open, but called done: {clip(item.text, 80)}"))
    stated = inherited_frontier(summary)
    if stated is not None and stated.plan:
        states = {_plain(item.text): item.state for item in frontier.plan}
        stale = [item for item in stated.plan if states.get(_plain(item.text), item.state) != item.state]
        faults += [Fault("frontier", f"its state is another one: {clip(item.text, 80)}") for item in stale]
    faults += [
        Fault("frontier", f"not as it is: {clip(one_line(item), 80)}")
        for item in _ours(document)
        if item not in _as_it_is(frontier) and not item.startswith(("- Plan (", "- 计划 ("))
    ]
    gone = [] if stated is None else [item for item in stated.plan if item.text not in {i.text for i in frontier.plan}]
    faults += [Fault("frontier", f"not in the plan as last written: {clip(item.text, 80)}") for item in gone]
    if is_draft:
        return faults
    text = _plain(summary)
    wanted = [item.text for item in frontier.plan if item.state in ("pending", "in_progress")]
    wanted += [error.lines[-1] for error in frontier.errors if error.lines]
    wanted += [file.path for file in frontier.files]
    faults += [
        Fault("frontier", f"not stated: {clip(one_line(part), 80)}") for part in wanted if _plain(part) not in text
    ]
    return faults


def _ours(document: SummaryDocument) -> list[str]:
    return [item for section in _STATED for item in document.items[section] if is_frontier_item(item)]


def _as_it_is(frontier: Frontier) -> set[str]:
    return {item for phrases in ALL for items in frontier.items(phrases).values() for item in items}


def _invented(document: SummaryDocument, summary: str, evidence: Evidence) -> list[Fault]:
    # The frontier's own lines are held against the frontier.
    stated = (item for section in _STATED for item in document.items[section] if not is_frontier_item(item))
    prose = "\n".join(map(one_line, stated))
    named = list(evidence.invented(without_frontier(summary)))
    figures = {figure for found in _NUMBER.findall(prose) for figure in _FIGURE.findall(found)}
    counted = {figure for figure in figures if len(figure) > 1 or "." in figure}
    words = set(_NAME.findall(prose))
    strange = evidence.unknown(counted | words) if counted or words else set()
    lowered = evidence.unknown({word.lower() for word in strange if word.isalpha()})
    strange = {word for word in strange if not word.isalpha() or word.lower() in lowered}
    found = dict.fromkeys([*named, *sorted(word for word in strange if not any(word in name for name in named))])
    return [Fault("invented", f"stands nowhere in the conversation: {name}") for name in found]


def _contradictions(document: SummaryDocument, evidence: Evidence) -> list[Fault]:
    faults: list[Fault] = []
    for section in _STATED:
        for item in document.items[section]:
            if is_closing(item) or newest_label(item) or "\n" in item:
                continue
            faults += [
                Fault("contradiction", f"another figure than was said: {clip(' '.join((*around[:-1], figure)), 80)}")
                for around, figure in _figures(item)
                if figure not in evidence.figures.get(around, {figure}) and not is_frontier_item(item)
            ]
            faults += [
                Fault("contradiction", f"said the other way round: {clip(clause, 80)}")
                for clause in _clauses(said_in(item))
                if not clause.endswith("...") and evidence.told.turns_round(clause)
            ]
    return faults


def _wrappers(document: SummaryDocument, evidence: Evidence) -> list[Fault]:
    items = (item for section in _STATED[1:] for item in document.items[section])
    return [
        Fault("wrapper", f"a client's words: {clip(said_in(item), 80)}") for item in items if evidence.is_wrapper(item)
    ]


def _code(document: SummaryDocument) -> list[Fault]:
    lines = [line for section in _NO_CODE for item in document.items[section] for line in item.split("\n")]
    found = [line for line in lines if _is_code(line)]
    return [Fault("code", f"code where a statement belongs: {clip(line.strip(), 80)}") for line in found[:8]]


# -- words -------------------------------------------------------------------------------------------------------------


def _is_code(line: str) -> bool:
    """Whether a line is code, markup or data; a sentence that names a tag or a setting is none."""
    return _CODE_LINE.match(line) is not None and len(_PROSE.findall(_MARKUP.sub(" ", line))) < _LEAST_PROSE


def _words(text: str) -> list[str]:
    return [word for found in _WORD.findall(text.lower()) if (word := found.strip("'’-.,:")) and word not in _COMMON]


def _says_no(text: str) -> bool:
    return len(_NEGATION.findall(text)) % 2 == 1


_CLAUSE_END = re.compile(r"[;；]\s+|\s+(?:—|–|->|→)\s+|,\s+(?=(?:and|but|so|then|because|not|never)\b)|，")


def _clauses(text: str) -> list[str]:
    return [
        clause for sentence in sentences(text[:_LOOK_AT]) for clause in _CLAUSE_END.split(sentence) if clause.strip()
    ]


def _figures(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each figure of a text with the words around it: two before and one after, and the telling ones next to it."""
    lowered = text[:_LOOK_AT].lower()
    for found in _FIGURES.finditer(lowered):
        after = _NEXT_WORD.match(lowered, found.end())
        before = _words_before(lowered, found.start()) if after else []
        if after and len(before) == 2 and before[0][0].isalpha() and before[1][0].isalpha():
            figure = found[0].rstrip(".,:")
            yield (*before, after[1]), figure
            if before[1] not in _VAGUE and after[1] not in _VAGUE:
                yield (before[1], after[1]), figure


def _words_before(text: str, place: int) -> list[str]:
    """Return the two words before a place; reads no more of the text than it needs."""
    length = _NEAR
    words = _FIGURE_WORD.findall(text, max(0, place - length), place)
    while len(words) < 3 and length < place:  # the first one found may be the rest of a longer word
        length *= 2
        words = _FIGURE_WORD.findall(text, max(0, place - length), place)
    return words[-2:]


def _plain(text: str) -> str:
    return re.sub(r"[\s\"“”'’`*_]+", " ", text).strip().lower()
