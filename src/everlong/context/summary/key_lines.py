"""Key lines: lines of a conversation that could be kept word for word, each with the entities it names.

They come from people, from what the assistant said and passed to tools, and from results; long ones are cut between
words. A tight summary is offered few lines of each message, a roomy one nearly all. The selection chooses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from everlong.context.summary.actions import action_of
from everlong.context.summary.entities import KnownNames, entities
from everlong.context.summary.facts import MOST_READ, Facts, bounded
from everlong.context.summary.language import Phrases, sentences
from everlong.context.text import clip
from everlong.model import Message, calls_of, readable_text


class KeyLine(NamedTuple):
    """A line that could stand under critical context, with its time, its weight and its source."""

    order: float
    """The turn, plus a fraction for the place in it, so that neighbours stay neighbours."""
    line: MessageLine
    weight: float
    source: str = ""


class LineGroup(NamedTuple):
    """Neighbouring lines by one writer."""

    order: float
    weight: float
    lines: Sequence[MessageLine]
    source: str = ""
    """The source of lines that have none of their own."""

    def key_line(self, place: int) -> KeyLine:
        """Return one of the lines by its place in the group; negative places count from the end."""
        line = self.lines[place]
        return KeyLine(self.order + place % len(self.lines) / 1_000, line, self.weight, line.source or self.source)


def all_lines(groups: Iterable[LineGroup]) -> Iterator[KeyLine]:
    """Yield every line of some groups."""
    return (group.key_line(place) for group in groups for place in range(len(group.lines)))


# -- lines of a message ------------------------------------------------------------------------------------------------

_LONGEST_LINE = 300
_INDENTATION = re.compile(r"\t\s*|\s{3,}")
"""White space that only aligns things; two spaces may be part of a date, as in ``Oct  3``."""
_MOST_PASSED = 4 * MOST_READ
"""Characters read of a call's arguments."""
_MOST_KNOWN = 10_000
"""The number of lines that are known at a time."""
_FEW = {"user": (12, 140), "assistant": (8, 140), "tool": (5, 900)}
"""The most lines of a message by role, and the characters that entitle it to one more."""
_MANY = (80, 60)


class MessageLine(NamedTuple):
    """A line of a message, its entities, the number of plain words beside them, and its source."""

    text: str
    entities: tuple[str, ...]
    words: int
    source: str = ""
    """The file or command of the call that it was passed to; empty if the source is the message itself."""

    @classmethod
    def of(cls, text: str) -> MessageLine:
        """Return a line with its entities."""
        return cls(text, tuple(dict.fromkeys(entities(text))), count_plain_words([text])[0])


class KnownLines:
    """The lines of a session with what was read of them; a line that recurs is kept once."""

    def __init__(self, names: KnownNames | None = None) -> None:
        self.names = names or KnownNames()
        self._known: dict[str, MessageLine] = {}

    def read(self, lines: Sequence[str], names: Sequence[tuple[str, ...]]) -> list[MessageLine]:
        """Return lines with their entities, which are given."""
        known = self._known
        if len(known) >= _MOST_KNOWN:  # a new one, because another thread may be reading the old one
            known = self._known = {}
        found = list(map(known.get, lines))
        if None not in found:
            return [line for line in found if line is not None]
        places = [place for place, line in enumerate(found) if line is None]
        words = count_plain_words([lines[place] for place in places])
        for place, count in zip(places, words, strict=True):
            known[lines[place]] = found[place] = MessageLine(lines[place], names[place], count)
        return [line for line in found if line is not None]


def few_lines(message: Message, known: KnownLines | None = None) -> tuple[MessageLine, ...]:
    """Return the lines of a message that say most, for a tight summary."""
    return _choose_lines(message, *_FEW.get(message["role"], _FEW["tool"]), known or KnownLines())


def many_lines(message: Message, known: KnownLines | None = None) -> tuple[MessageLine, ...]:
    """Return nearly all lines of a message that name anything, for a roomy summary."""
    return _choose_lines(message, *_MANY, known or KnownLines())


def names_in(message: Message) -> Iterator[str]:
    """Yield every entity that a message names."""
    for value in _read_pieces(message).values:
        yield from entities(value)


def raw_lines(message: Message) -> list[str]:
    """Return the pieces of a message from which its lines are chosen."""
    return _read_pieces(message).texts


def _choose_lines(message: Message, most: int, characters_per_line: int, known: KnownLines) -> tuple[MessageLine, ...]:
    """Return the lines with the most entities for their length, in their order."""
    texts, values, sources = _read_pieces(message)
    # The first of equal lines counts.
    lines = list(dict.fromkeys(texts))
    told = lines if values is texts else list(_first_of_equal(texts, values).values())
    names = known.names(told)
    places = [place for place, line in enumerate(lines) if names[place] and len(line) >= 4]
    most = min(most, 1 + sum(map(len, texts)) // characters_per_line)
    if len(places) > most:
        places = sorted(sorted(places, key=lambda place: -len(names[place]) / (len(lines[place]) + 40))[:most])
    if told is not lines:  # a line is not known by the names of its values
        known = KnownLines()
    chosen = known.read([lines[place] for place in places], [names[place] for place in places])
    if sources:
        chosen = [line._replace(source=sources[line.text]) if line.text in sources else line for line in chosen]
    return tuple(chosen)


def _first_of_equal(texts: list[str], values: list[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    for text, value in zip(texts, values, strict=True):
        told.setdefault(text, value)
    return told


class _Pieces(NamedTuple):
    """The pieces of a message, and their values without keys: the same list if none has keys."""

    texts: list[str]
    values: list[str]
    sources: dict[str, str]
    """The sources of pieces that were passed to a call."""


def _read_pieces(message: Message) -> _Pieces:
    is_result = message["role"] == "tool"
    if is_result and (found := structured(message)):
        return _Pieces([told.text for told in found], [told.values for told in found], {})
    text = bounded(readable_text(message))
    # People and models write sentences, programs write lines.
    texts = cut_lines(text.splitlines() if is_result else sentences(text))
    sources: dict[str, str] = {}
    for call in calls_of(message):
        passed = cut_lines(_argument_lines(call.arguments))
        texts += passed
        sources.update(dict.fromkeys(passed, action_of(call).source))
    return _Pieces(texts, texts, sources)


def structured(message: Message) -> list[KeyedLine]:
    """Return the records of a result that is structured data; empty for any other."""
    found = records(bounded(readable_text(message))) or ()
    return [
        piece
        for told in found
        for piece in (
            [told] if len(told.text) <= _LONGEST_LINE else [KeyedLine(cut, cut) for cut in cut_lines([told.text])]
        )
    ]


def cut_lines(pieces: Iterable[str]) -> list[str]:
    """Return lines of bounded length, cut between words, without indentation."""
    lines = list(filter(None, map(str.strip, pieces)))
    # Search all lines at once: most messages have none to change.
    together = "\n".join(lines)
    if "\t" in together or "   " in together:
        lines = [_INDENTATION.sub(" ", line) if "   " in line or "\t" in line else line for line in lines]
    if max(map(len, lines), default=0) <= _LONGEST_LINE:
        return lines
    return [part for line in lines for part in _parts(line)]


def _parts(line: str) -> Iterator[str]:
    while len(line) > _LONGEST_LINE:
        start = clip(line, _LONGEST_LINE).removesuffix(" ...")
        yield start
        line = line[len(start) :].lstrip()
    if line:
        yield line


def _argument_lines(arguments: str) -> Iterator[str]:
    for value in argument_texts(arguments):
        yield from bounded(value).splitlines()


def argument_texts(arguments: str) -> Iterator[str]:
    """Yield every text value of a call's arguments; the arguments themselves if they are no JSON."""
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
            read += min(len(value), MOST_READ) + 1
            yield value


_PLAIN_WORD = re.compile(r"(?<![\w./])[A-Za-z]{3,}(?![\w./(])|[\u3400-\u9fff]{2}")
_WORD_BYTES = bytes(byte if re.match(r"[A-Za-z0-9_./\n]", chr(byte)) else 0x20 for byte in range(256))
_MOST_WORDS = 6
_MOST_REMEMBERED = 20_000
_LONGEST_REMEMBERED = 40


class _PlainWords(dict[bytes, bool]):
    """A cache that tells whether a run of word characters is a plain word."""

    def __missing__(self, run: bytes) -> bool:
        is_plain = run.isalpha() and len(run) > 2
        if len(run) <= _LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[run] = is_plain
        return is_plain


_plain_words = _PlainWords()


def count_plain_words(lines: Sequence[str]) -> list[int]:
    """Count the plain words of each line, up to six; parts of names and words before a parenthesis do not count."""
    text = "\n".join(lines)
    if not lines or not text.isascii() or text.count("\n") != len(lines) - 1:
        return [min(_MOST_WORDS, len(_PLAIN_WORD.findall(line))) for line in lines]
    # The same count as the expression gives, but faster: no Python code runs for each word.
    data, is_plain = text.encode().replace(b"(", b"_ ").translate(_WORD_BYTES), _plain_words.__getitem__
    return [min(_MOST_WORDS, sum(map(is_plain, line.split()))) for line in data.split(b"\n")]


# -- lines of structured data ------------------------------------------------------------------------------------------

_SHORTEST_JSON = 80
"""Shorter texts are kept as they are."""
_LONGEST_NESTED = 160
"""The longest nested value, in characters, that is told on its object's own line."""
_LONGEST_RECORD = 240
_MOST_INSIDE = 8
_DEEPEST = 40


class KeyedLine(NamedTuple):
    """A line of JSON, and its values without the keys."""

    text: str
    values: str


def records(text: str) -> list[KeyedLine] | None:
    """Return the lines of a JSON text; None if it is no JSON, or too short to need it."""
    text = text.strip()
    if len(text) < _SHORTEST_JSON or text[0] not in "{[" or text[-1] not in "}]":
        return None
    try:
        return list(_json_lines("", json.loads(text), 0))
    except (ValueError, RecursionError):
        return None


def _json_lines(name: str, value: Any, depth: int) -> Iterator[KeyedLine]:
    """Yield the lines of a value: small entries first, then those too large to stand among them."""
    if isinstance(value, str):
        yield from records(value) or (KeyedLine(line, line) for line in value.splitlines())
        return
    larger: list[tuple[str, Any]] = []
    line: list[KeyedLine] = []
    size = 0
    for key, item in _entries(name, value):
        told = _short_value(item, 0)
        if told is None:
            larger.append((key, item))
            continue
        piece = KeyedLine(f"{key}: {told.text}", told.values) if isinstance(value, dict) else told
        if line and size + len(piece.text) > _LONGEST_RECORD:
            yield _join(name, line)
            line, size = [], 0
        line.append(piece)
        size += len(piece.text)
    if line:
        yield _join(name, line)
    for key, item in larger if depth < _DEEPEST else ():
        yield from _json_lines(key, item, depth + 1)


def _entries(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((str(key), item) for key, item in value.items())
    return ((name, item) for item in value)


def _short_value(value: Any, depth: int) -> KeyedLine | None:
    """Return a value in a few words; None if it takes more."""
    if not isinstance(value, dict | list):
        text = value if isinstance(value, str) else json.dumps(value)
        return KeyedLine(text, text) if len(text) <= _LONGEST_RECORD and "\n" not in text else None
    if len(value) > _MOST_INSIDE or depth > 2:
        return None
    pieces = []
    for key, item in _entries("", value):
        told = _short_value(item, depth + 1)
        if told is None:
            return None
        pieces.append(KeyedLine(f"{key} {told.text}", told.values) if isinstance(value, dict) else told)
    # A semicolon shows where the next object begins.
    inside = _join("", pieces, "; " if isinstance(value, list) and any(isinstance(v, dict) for v in value) else ", ")
    return inside if len(inside.text) <= _LONGEST_NESTED else None


def _join(name: str, pieces: Sequence[KeyedLine], between: str = ", ") -> KeyedLine:
    text = between.join(piece.text for piece in pieces)
    return KeyedLine(f"{name}: {text}" if name else text, ", ".join(piece.values for piece in pieces))


# -- the lines of all turns --------------------------------------------------------------------------------------------

_UNANSWERED = 2.0
"""The weight of a result that nobody has answered yet: the next step starts from it."""
_LINE_WEIGHTS = {"user": 4.0, "assistant": 4.0, "tool": 1.0}
"""The weight of each role's lines: people and models go on to use what they wrote themselves."""


def group_lines(facts: Sequence[Facts], lines: Iterable[Sequence[MessageLine]], phrases: Phrases) -> list[LineGroup]:
    """Return the lines of each turn, weighed by their writer, with their source; skip turns without lines."""
    roles = ["tool" if fact.role == "user" and not fact.said else fact.role for fact in facts]
    unanswered = len(roles)
    while unanswered and roles[unanswered - 1] == "tool":
        unanswered -= 1
    sources = _sources(facts, phrases)
    return [
        LineGroup(order, _LINE_WEIGHTS.get(role, 1.0) if order < unanswered else _UNANSWERED, mine, source)
        for order, (role, mine, source) in enumerate(zip(roles, lines, sources, strict=True))
        if mine
    ]


def _sources(facts: Sequence[Facts], phrases: Phrases) -> list[str]:
    """Return the source of each turn's lines: the call that brought them, or the speaker and the subject."""
    found: list[str] = []
    calls: dict[str, str] = {}
    last, asked = "", ""
    for fact in facts:
        if fact.role == "tool":
            last = calls.get(fact.call_id) or next(iter(calls.values()), phrases.tool_result)
            found.append(last)
        elif fact.role == "assistant":
            calls = {call_id: action.source for call_id, _, action in fact.actions} or calls
            found.append(last or (f'{phrases.answer_to} "{asked}":' if asked else phrases.notes))
        else:
            if fact.said:
                last = ""
            if fact.clauses and not fact.goes_ahead:
                asked = fact.clauses[0].text
            found.append(f"{phrases.user_said}:")
    return found
