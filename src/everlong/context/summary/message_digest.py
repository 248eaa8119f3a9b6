"""The digest of a message: everything that compactions read of it, read once and kept.

A `MessageDigests` keeps the readings of an engine's messages: the facts and key lines of the extract, and the pieces
that a summarizing model is shown. Messages are recognized by a hash of their contents, so that a list from another
request, or from a store, finds the readings of the one before. The cache keeps no message; it holds at most so many
readings and then forgets the oldest half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

from everlong.context.steps import KnownSteps, read_steps
from everlong.context.summary.digest import SPOKEN_TOKENS, DigestPiece, TurnPieces, read_turn
from everlong.context.summary.facts import Facts, read_facts
from everlong.context.summary.key_lines import KnownLines, MessageLine, few_lines, many_lines
from everlong.context.text import TextCount
from everlong.model import Message, calls_of, text_of

__all__ = ["MessageDigests", "WantedReadings", "fingerprint"]

_MOST_KEPT = 200_000
"""The number of readings of each kind that are kept."""
_MOST_COUNTERS = 2
"""The number of token counters, or sizes of pieces, whose pieces are kept."""
Read = TypeVar("Read")


class WantedReadings(NamedTuple):
    """The readings that the next compaction will need."""

    lines: Literal["none", "few", "many"]
    """The lines that the extract will choose from; none if it will read only a sample of the messages."""
    counter: TextCount | None
    """The counter by which pieces are cut for a summarizing model; None if no model reads them."""


class MessageDigests:
    """The readings of messages, each made when it is first asked for.

    Args:
        check: called before each reading, because many of them take seconds; ends them by raising.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self.steps = KnownSteps()
        """The newest steps, which every frontier is read from."""
        self._lines = KnownLines()
        self._facts: dict[int, Facts] = {}
        self._few: dict[int, tuple[MessageLine, ...]] = {}
        self._many: dict[int, tuple[MessageLine, ...]] = {}
        self._pieces: list[tuple[int, TextCount, dict[int, _KeptTurn]]] = []

    def facts(self, messages: Sequence[Message]) -> list[Facts]:
        """Return the facts of each message."""
        return self._read_all(messages, self._facts, read_facts)

    def few_lines(self, messages: Sequence[Message]) -> list[tuple[MessageLine, ...]]:
        """Return the lines of each message that say most, for a tight summary."""
        return self._read_all(messages, self._few, lambda message: few_lines(message, self._lines))

    def many_lines(self, messages: Sequence[Message]) -> list[tuple[MessageLine, ...]]:
        """Return nearly all lines of each message that name anything, for a roomy summary."""
        return self._read_all(messages, self._many, lambda message: many_lines(message, self._lines))

    def _read_all(
        self, messages: Sequence[Message], known: dict[int, Read], read: Callable[[Message], Read]
    ) -> list[Read]:
        """Return the reading of each message, in order; read only messages that were never seen before."""
        found: list[Read] = []
        for message in messages:
            key = fingerprint(message)
            reading = known.get(key)
            if reading is None:
                self._check()
                reading = _keep(known, key, read(message))
            found.append(reading)
        return found

    def pieces(self, turns: Sequence[Message], room: int, count: TextCount) -> Iterator[DigestPiece]:
        """Yield every turn in pieces of at most ``room`` tokens, as a summarizing model reads them."""
        most = min(room, SPOKEN_TOKENS)
        known = self._pieces_for(most, count)
        ran: dict[str, str] = {}
        for message in turns:
            title = ran.pop(str(message.get("tool_call_id") or ""), "") if message["role"] == "tool" else ""
            key = hash((fingerprint(message), title)) if title else fingerprint(message)
            kept = known.get(key)
            if kept is None:
                self._check()
                kept = _keep(known, key, _packed(read_turn(message, title, most, count, self._lines.names)))
            if kept.ran:
                ran.update(kept.ran)
            for label, body, tokens in kept.pieces:
                text = body if isinstance(body, str) else body.decode("utf-8", "surrogatepass")
                yield DigestPiece(label, text, tokens)

    def read_ahead(self, messages: Sequence[Message], start: int, wanted: WantedReadings, most: int) -> int:
        """Read messages from ``start`` on until ``most`` characters are read; return where the reading ended."""
        end, left = start, most
        while end < len(messages) and left > 0:
            left -= _size(messages[end])
            end += 1
        while start > 0 and messages[start]["role"] == "tool":  # its pieces name the call that it answers
            start -= 1
        stretch = messages[start:end]
        if wanted.lines != "none":
            self.facts(stretch)
            (self.many_lines if wanted.lines == "many" else self.few_lines)(stretch)
        if wanted.counter is not None:
            for _ in self.pieces(stretch, SPOKEN_TOKENS, wanted.counter):
                pass
        self.steps.read_ahead(read_steps(stretch))
        return end

    def _pieces_for(self, most: int, count: TextCount) -> dict[int, _KeptTurn]:
        """Return the pieces of this size by this counter."""
        for size, counter, known in self._pieces:
            if size == most and counter == count:
                return known
        made: dict[int, _KeptTurn] = {}
        self._pieces = [*self._pieces, (most, count, made)][-_MOST_COUNTERS:]
        return made


class _KeptTurn(NamedTuple):
    """The pieces of a turn as they are kept, and the titles of its calls.

    A text with a single wide character takes two or four bytes for each; where UTF-8 takes less, its bytes are kept.
    """

    pieces: tuple[tuple[str, str | bytes, int], ...]
    ran: tuple[tuple[str, str], ...]


def _packed(turn: TurnPieces) -> _KeptTurn:
    return _KeptTurn(tuple((piece.label, _packed_text(piece.body), piece.tokens) for piece in turn.pieces), turn.ran)


def _packed_text(text: str) -> str | bytes:
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogatepass")
    return data if len(data) < 2 * len(text) else text


def fingerprint(message: Message) -> int:
    """Return a number that is equal for messages with equal content."""
    # A hash instead of the text, so that the cache keeps no conversation in memory.
    content, raw = message.get("content"), message.get("tool_calls")
    text = content if type(content) is str else text_of(message)
    if not raw:
        return hash((message["role"], text, message.get("tool_call_id")))
    try:  # the usual shape, without a check of every part: this runs over whole conversations
        calls: object = tuple([(c["id"], (body := c["function"])["name"], body["arguments"]) for c in raw])
        return hash((message["role"], text, message.get("tool_call_id"), calls))
    except (KeyError, TypeError):
        return hash((message["role"], text, message.get("tool_call_id"), tuple(calls_of(message))))


def _size(message: Message) -> int:
    return len(text_of(message)) + sum(len(call.arguments) for call in calls_of(message))


def _keep(known: dict[int, Read], key: int, found: Read) -> Read:
    if len(known) >= _MOST_KEPT:
        for old in list(islice(known, _MOST_KEPT // 2)):
            known.pop(old, None)
    known[key] = found
    return found
