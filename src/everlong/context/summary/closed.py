"""Requests that the user took back or replaced, so that a summary never names them as open.

Goes through the user's requests in their order and finds what each one gives up among those before it: clause by
clause, so that a goal of several parts keeps the others. Each closing has the words that were closed and those that
closed them. Compares words only; what a sentence means is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from everlong.context.summary.takeback import TakenBack
from everlong.context.summary.text import clip, one_line

_CLAUSE = re.compile(r"[,;，；、。！!\n]+|(?<=\w)[.?？](?=\s|$)|\s(?:and|then|but|plus)\s", re.IGNORECASE)
_MOST_CLAUSES = 24
_WORD = re.compile(r"[A-Za-z0-9_][\w./-]*[\w]|[A-Za-z0-9]|[\u3400-\u9fff]+")
_STOP_WORDS = re.compile(
    r"the|an?|to|of|for|in|on|with|or|please|can|could|would|you|i|we|want|need|like|should|lets?|us|my|our|your|its?"
    r"|this|that|these|those|is|are|be|do|does|just|now|so|also|some|any|from|by|at|as|into|up|out|about|me|there|here"
    r"|which|part|things?|stuff|idea|plan|task|request|feature|work|whole|entire|ones?|all|last|previous|earlier"
)
_HAN_FILLER = re.compile(r"[的了吧请把给我你帮一个这那]")
_USES = re.compile(r"\b(?:use|using|go with|switch(?: over)? to|take|try)\b|用|换成|改成", re.IGNORECASE)
_LEADING = 2
"""A request is about what is named first in it: the verb, an adjective perhaps, and the thing."""
_STRONG_SHARE = 0.5
_HAN_SHARE = 0.3
_ASKED_LENGTH, _SAID_LENGTH = 90, 140


@dataclass
class Asked:
    """What the user said once, what it takes back, and which of its clauses were taken back later."""

    order: int
    text: str
    """What was said, in short."""
    whole: str
    """The words that can be taken back."""
    takes_back: tuple[TakenBack, ...] = ()
    after_offer: bool = False
    """Whether the assistant had just asked something, so that a bare no is an answer."""
    closed: set[int] = field(default_factory=set)

    @cached_property
    def clauses(self) -> tuple[str, ...]:
        """The parts that can be taken back by themselves; found only for those who ask, since few users take back."""
        return clauses_of(self.whole)

    @property
    def is_closed(self) -> bool:
        """Whether nothing of it is left."""
        return bool(self.closed) and len(self.closed) == len(self.clauses)

    def close(self) -> None:
        """Take back all of it."""
        self.closed = set(range(len(self.clauses)))


class Closing(NamedTuple):
    """Something that was asked, and what closed it."""

    asked: Asked
    words: str
    by: Asked
    taken: TakenBack


def clauses_of(text: str) -> tuple[str, ...]:
    """The parts of a request that can be taken back by themselves."""
    pieces = (one_line(piece).strip(" .-*•>") for piece in _split(text[:4_000]))
    return tuple(islice(filter(_words, pieces), _MOST_CLAUSES))


def _split(text: str) -> Iterator[str]:
    """The text between the ends of clauses, one by one, since only the first few are needed."""
    start = 0
    for end in _CLAUSE.finditer(text):
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def closings(requests: Sequence[Asked]) -> list[Closing]:
    """Everything that was closed, in order; marks the clauses as closed."""
    found: list[Closing] = []
    for place, by in enumerate(requests):
        for taken in by.takes_back:
            earlier = [asked for asked in requests[:place] if not is_same(asked.text, by.text)]
            if taken.what:
                found += _named(earlier, by, taken)
            elif earlier and not (by.after_offer and not taken.instead):
                found = _latest(earlier, by, taken, found)
    return found


def _named(earlier: Sequence[Asked], by: Asked, taken: TakenBack) -> Iterator[Closing]:
    """Close every clause that is about the thing; a longer one that only mentions it is closed in that part."""
    for asked in earlier:
        for number, clause in enumerate(asked.clauses):
            if number in asked.closed or not meets(taken, clause):
                continue
            if _is_about(taken.what, clause):
                asked.closed.add(number)
                yield Closing(asked, clause, by, taken)
            else:
                yield Closing(asked, taken.what, by, taken)


def _latest(earlier: Sequence[Asked], by: Asked, taken: TakenBack, found: list[Closing]) -> list[Closing]:
    """Close the latest request, wherever it is repeated; or, where only a verb tells, its clause with that verb."""
    last = earlier[-1]
    if last.is_closed or (last.takes_back and not any(t.instead for t in last.takes_back)):
        return found  # said twice, it is still one request that was given up
    if taken.by_verb:
        using = [n for n, clause in enumerate(last.clauses) if _USES.search(clause) and n not in last.closed]
        if not using:
            return found
        last.closed.add(using[-1])
        return [*found, Closing(last, last.clauses[using[-1]], by, taken)]
    same = [asked for asked in earlier if asked is last or is_same(asked.text, last.text)]
    for asked in same:
        asked.close()
    # A request that was itself given up no longer closes what it closed.
    kept: list[Closing] = []
    for closing in found:
        if closing.by is last:
            closing.asked.closed.clear()
        else:
            kept.append(closing)
    return [*kept, *(Closing(asked, asked.text, by, taken) for asked in same[-1:])]


def meets(taken: TakenBack, text: str) -> bool:
    """Whether a text speaks of the thing that is taken back."""
    names, there = _words(taken.what), set(_words(text))
    hits = sum(name in there for name in names)
    return bool(hits) and (hits == len(names) if taken.soft else hits >= _STRONG_SHARE * len(names))


def is_same(one: str, other: str) -> bool:
    """Whether two texts are one request, perhaps cut short."""
    first, second = (one_line(text).removesuffix(" ...").casefold() for text in (one, other))
    return bool(first and second) and (first.startswith(second[:200]) or second.startswith(first[:200]))


def _is_about(what: str, clause: str) -> bool:
    names, there = set(_words(what)), _words(clause)
    hits = [place for place, word in enumerate(there) if word in names]
    if not clause.isascii():
        return len(hits) >= _HAN_SHARE * len(there)
    return bool(hits) and (hits[0] <= _LEADING or len(hits) * 2 >= len(there))


def _words(text: str) -> list[str]:
    """The words that carry meaning, in a form in which their endings do not matter; Chinese in pairs of characters."""
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word[0] > "\u2e7f":
            plain = _HAN_FILLER.sub("", word)
            found += [plain[at : at + 2] for at in range(max(1, len(plain) - 1))] if plain else []
        elif not _STOP_WORDS.fullmatch(word):
            found.append(re.sub(r"(?:ing|ed|es|s|e)$", "", word) if len(word) > 4 else word)
    return found


def closing_line(closing: Closing, closed: str, put_off: str) -> str:
    """A closing as an item of a summary."""
    label = put_off if closing.taken.put_off else closed
    asked, said = clip(one_line(closing.words), _ASKED_LENGTH), clip(one_line(closing.by.text), _SAID_LENGTH)
    return f'- {label}: {asked} → "{said}"'
