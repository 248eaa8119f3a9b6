"""A recording in asciinema's format (version 2): a line of JSON for the header, then one for each piece of output.

Times are made up: keys come as fast as a person types, the rest as fast as it can be read. What differs from one
recording to the next (session ids, moments, durations) is replaced by something of the same length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyte

__all__ = ["Cast", "plain_text"]

_KEY, _PIECE, _READING = 0.06, 0.12, 1.6
"""Seconds: from key to key, from one piece of output to the next, and before something is typed."""
_ALIKE = (
    (re.compile(r"\b20\d{6}_\d{6}_[0-9a-f]{6}\b"), "20260105_090000_c0ffee"),
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b"), "2026-01-05 09:00:00"),
    (re.compile(r"\b\d\.\d s\b"), "0.1 s"),
)
_ASKS = re.compile(r"\x1b\[6n")
"""A question to the terminal; a player would have it answered into the reader's own shell."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78])|[\x00\x07\x0f]")


@dataclass(frozen=True)
class Cast:
    """A recording."""

    columns: int
    lines: int
    title: str
    events: tuple[tuple[float, str], ...]
    """Pieces of output, each with its time in seconds from the beginning."""

    @classmethod
    def from_pieces(cls, columns: int, lines: int, title: str, pieces: Iterable[tuple[str, bytes]]) -> Cast:
        """Return a recording of a terminal's output."""
        kinds, texts = _joined(pieces)
        at, before = 0.0, "shown"
        events = []
        for kind, text in zip(kinds, _normal(texts), strict=True):
            at += _KEY if kind == before == "typed" else _READING if kind == "typed" else _PIECE
            before = kind
            if text:
                events.append((round(at, 2), text))
        return cls(columns, lines, title, tuple(events))

    def dump(self) -> str:
        """Return the text of the file."""
        header = {"version": 2, "width": self.columns, "height": self.lines, "title": self.title}
        rows = [header, *([at, "o", text] for at, text in self.events)]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    @classmethod
    def load(cls, text: str) -> Cast:
        """Return the recording that a file holds."""
        header, *rows = map(json.loads, text.splitlines())
        events = tuple((at, said) for at, kind, said in rows if kind == "o")
        return cls(header["width"], header["height"], header.get("title", ""), events)

    @property
    def output(self) -> str:
        """All that was written."""
        return "".join(text for _, text in self.events)

    def screen(self, events: int | None = None) -> pyte.Screen:
        """Return the screen after so many events."""
        screen = pyte.Screen(self.columns, self.lines)
        stream = pyte.Stream(screen)
        for _, text in self.events[:events]:
            stream.feed(text)
        return screen

    def displays(self) -> Iterator[str]:
        """Yield the text of the screen after each event."""
        screen = pyte.Screen(self.columns, self.lines)
        stream = pyte.Stream(screen)
        for _, text in self.events:
            stream.feed(text)
            yield "\n".join(line.rstrip() for line in screen.display)


def plain_text(output: str) -> str:
    """Return the output without control sequences."""
    return _ESCAPES.sub("", output).replace("\r", "")


def _joined(pieces: Iterable[tuple[str, bytes]]) -> tuple[list[str], list[str]]:
    """Return kinds and texts; a character that was cut in two goes with its second half."""
    kinds: list[str] = []
    texts: list[str] = []
    rest = b""
    for kind, data in pieces:
        whole = rest + data
        text = whole.decode("utf-8", "ignore")
        rest = whole[len(text.encode()) :]
        kinds.append(kind)
        texts.append(text)
    return kinds, texts


def _normal(texts: Sequence[str]) -> list[str]:
    """Return the texts with varying words replaced, even if they were written in two pieces."""
    whole = "".join(texts)
    for pattern, alike in _ALIKE:
        whole = pattern.sub(alike, whole)
    at, normal = 0, []
    for text in texts:
        normal.append(_ASKS.sub("", whole[at : at + len(text)]))
        at += len(text)
    return normal
