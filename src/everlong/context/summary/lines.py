"""The lines of a message that could be kept word for word, each with the entities that it names.

Lines of user turns, of what the assistant said and passed to tools, and of results. Long ones are cut between words.
How many are offered depends on how much room a summary has: few where a whole day must fit a page, nearly all where
a quarter of the conversation may stay. Which are chosen is not decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Any, NamedTuple

from everlong.context.summary.entities import entities
from everlong.context.summary.language import sentences
from everlong.context.summary.records import Told, records
from everlong.context.summary.text import clip
from everlong.model import Message, calls_of, text_of


class Line(NamedTuple):
    """A line of the original, the entities on it, and how many plain words keep them company."""

    text: str
    entities: tuple[str, ...]
    words: int

    @classmethod
    def of(cls, text: str) -> Line:
        """A line with what it names."""
        return cls.naming(text, tuple(dict.fromkeys(entities(text))))

    @classmethod
    def naming(cls, text: str, names: tuple[str, ...]) -> Line:
        """A line whose entities are already known."""
        words = (_ASCII_WORD if text.isascii() else _PLAIN_WORD).findall(text)
        return cls(text, names, min(_MOST_WORDS, len(words)))


_PLAIN_WORD = re.compile(r"(?<![\w./])[A-Za-z]{3,}(?![\w./(])|[\u3400-\u9fff]{2}")
_ASCII_WORD = re.compile(r"[A-Za-z](?<![A-Za-z0-9_./][A-Za-z])[A-Za-z]{2,}(?![A-Za-z0-9_./(])")
"""The same for most texts, in a form that is searched faster."""
_MOST_WORDS = 6


_LONGEST = 300
_INDENTATION = re.compile(r"\t\s*|\s{3,}")
"""White space that only lines things up; two spaces may be part of a date, as in ``Oct  3``."""
_MOST_READ = 16_000
"""Characters of a long text that are read: its beginning and its end."""
_MOST_PASSED = 4 * _MOST_READ
"""Characters of a call's arguments that are read, however many they are."""

_FEW = {"user": (12, 140), "assistant": (8, 140), "tool": (5, 900)}
"""By role: the most lines of a message, and the characters that entitle it to one more."""
_MANY = {"user": (80, 60), "assistant": (80, 60), "tool": (80, 60)}


def few_lines(message: Message) -> tuple[Line, ...]:
    """The lines of a message that say most, for a summary that is short beside what it stands for."""
    return _chosen(message, *_FEW.get(message["role"], (5, 900)))


def many_lines(message: Message) -> tuple[Line, ...]:
    """Nearly all lines of a message that name anything, for a summary with room."""
    return _chosen(message, *_MANY.get(message["role"], (80, 60)))


def names_in(message: Message) -> Iterator[str]:
    """Every entity that a message names."""
    for _, values in raw_lines(message):
        yield from entities(values)


def _chosen(message: Message, most: int, characters_per_line: int) -> tuple[Line, ...]:
    """The lines with the most entities for their length, in their order."""
    scored: list[tuple[float, int, str, tuple[str, ...]]] = []
    seen: set[str] = set()
    size = 0
    for place, (raw, values) in enumerate(raw_lines(message)):
        size += len(raw)
        if len(raw) >= 4 and raw not in seen:
            seen.add(raw)
            names = tuple(dict.fromkeys(entities(values)))
            if names:
                scored.append((-len(names) / (len(raw) + 40), place, raw, names))
    most = min(most, 1 + size // characters_per_line)
    if len(scored) > most:
        scored = sorted(nsmallest(most, scored), key=lambda entry: entry[1])
    return tuple(Line.naming(raw, names) for _, _, raw, names in scored)


def raw_lines(message: Message) -> Iterator[Told]:
    """The pieces of a message among which its lines are chosen."""
    text = _bounded(text_of(message))
    if message["role"] != "tool":  # people and models write sentences, programs write lines
        yield from cut_lines(sentences(text))
    elif found := structured(message):
        yield from found
    else:
        yield from cut_lines(text.splitlines())
    for call in calls_of(message):
        for value in argument_texts(call.arguments):
            yield from cut_lines(_bounded(value).splitlines())


def structured(message: Message) -> list[Told]:
    """The records of a result that is structured data; none of any other."""
    found = records(_bounded(text_of(message))) or ()
    return [piece for told in found for piece in ([told] if len(told.text) <= _LONGEST else cut_lines([told.text]))]


def cut_lines(pieces: Iterable[str]) -> Iterator[Told]:
    """Lines of bounded length, cut between words, without indentation."""
    for piece in pieces:
        text = piece.strip()
        if "   " in text or "\t" in text:
            text = _INDENTATION.sub(" ", text)
        while len(text) > _LONGEST:
            start = clip(text, _LONGEST).removesuffix(" ...")
            yield Told(start, start)
            text = text[len(start) :].lstrip()
        if text:
            yield Told(text, text)


def argument_texts(arguments: str) -> Iterator[str]:
    """Every text value of a call's arguments; the arguments themselves where they are no JSON."""
    try:
        waiting: list[Any] = [json.loads(arguments)] if arguments else []
    except (ValueError, RecursionError):
        yield arguments
        return
    read = 0
    while waiting and read < _MOST_PASSED:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif item is not None:
            value = item if isinstance(item, str) else str(item)
            read += min(len(value), _MOST_READ) + 1
            yield value


def _bounded(text: str) -> str:
    return text if len(text) <= _MOST_READ else f"{text[: _MOST_READ * 2 // 3]}\n{text[-_MOST_READ // 3 :]}"
