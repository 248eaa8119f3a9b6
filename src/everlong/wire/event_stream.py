"""Server-sent events, taken apart as their bytes come, up to a bound.

Nobody knows how long an event will be, so at most `MOST_EVENT` bytes of one are kept. A longer event is handed on in
pieces and not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from everlong.model.long_texts import structure

__all__ = ["MOST_ANSWER", "MOST_EVENT", "MOST_EVENTS", "EventPiece", "EventStream"]

MOST_ANSWER = 8_000_000
"""Bytes of an answer that is read; images and sounds are larger than any text."""
MOST_EVENT = 1_000_000
"""Bytes of an event that is read."""
MOST_EVENTS = 250_000
"""Events of an answer that are read; the longest answers of models have half as many."""
_MOST_LINES, _MOST_VALUES = 10_000, 30_000
"""Lines and JSON values of an event that is read; more at once would hold up other threads."""
_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_SEAM = 3
"""Bytes at the end of a chunk that may be the beginning of a blank line."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventPiece(NamedTuple):
    """A whole event, or a piece of one that is too long."""

    raw: bytes
    """The bytes as they came, with the blank line at the end."""
    data: bytes | None
    """The data of a whole event; None for an event that is too long, or has too many values."""


class EventStream:
    """A stream of events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_long = False
        """True inside of an event that is too long."""

    @property
    def waiting(self) -> int:
        """Bytes behind the last blank line."""
        return len(self._rest)

    def take(self, chunk: bytes) -> Iterator[EventPiece]:
        """Yield the events that end in a chunk, and pieces of those that are too long."""
        seen, place = max(0, len(self._rest) - _SEAM), 0
        self._rest += chunk
        for blank in _BLANK.finditer(self._rest, seen):
            yield self._piece(bytes(self._rest[place : blank.end()]))
            self._is_long, place = False, blank.end()
        del self._rest[:place]
        if self._is_long or len(self._rest) > MOST_EVENT:
            self._is_long = True
            piece = bytes(self._rest[:-_SEAM])
            del self._rest[:-_SEAM]
            if piece:
                yield EventPiece(piece, None)

    def end(self) -> EventPiece:
        """Return the bytes behind the last blank line, as if the event ended there."""
        rest, self._rest = bytes(self._rest), bytearray()
        return self._piece(rest)

    def _piece(self, raw: bytes) -> EventPiece:
        if self._is_long or len(raw) > MOST_EVENT or raw.count(b"\n") + raw.count(b"\r") > _MOST_LINES:
            return EventPiece(raw, None)
        lines = _LINE_END.split(raw.removeprefix(_BYTE_ORDER_MARK))
        data = b"\n".join(line[5:] for line in lines if line.startswith(b"data:")).strip()
        is_much = len(data) > _MOST_VALUES and structure(data, 0, _MOST_VALUES)[0] > _MOST_VALUES
        return EventPiece(raw, None if is_much else data)
