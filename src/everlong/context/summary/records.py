"""Structured data as lines that a person would write: one for each record, its keys beside its values.

A tool's JSON comes as one endless line, or as many that say nothing alone. Here each object becomes a line, small
objects inside it stand on the same line, and quotes and braces are gone. Every key and value is the original's own;
which of them are names that matter is said by giving the values apart, since keys recur with every record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_LEAST = 80
"""Shorter texts say what they say as they are."""
_SMALL = 160
"""Characters up to which what is inside an object is told on the object's own line."""
_LONGEST = 240
_MOST_INSIDE = 8
_DEEPEST = 40


class Told(NamedTuple):
    """A line, and the part of it that is not keys."""

    text: str
    values: str


def records(text: str) -> list[Told] | None:
    """The lines of a JSON text; None if it is none, or too short to need it."""
    text = text.strip()
    if len(text) < _LEAST or text[0] not in "{[" or text[-1] not in "}]":
        return None
    try:
        return list(_lines("", json.loads(text), 0))
    except (ValueError, RecursionError):
        return None


def _lines(name: str, value: Any, depth: int) -> Iterator[Told]:
    """The lines of a value: what is small first, then what is too large to stand among it."""
    if isinstance(value, str):
        yield from records(value) or (Told(line, line) for line in value.splitlines())
        return
    larger: list[tuple[str, Any]] = []
    line: list[Told] = []
    size = 0
    for key, item in _entries(name, value):
        told = _told(item, 0)
        if told is None:
            larger.append((key, item))
            continue
        piece = Told(f"{key}: {told.text}", told.values) if isinstance(value, dict) else told
        if line and size + len(piece.text) > _LONGEST:
            yield _joined(name, line)
            line, size = [], 0
        line.append(piece)
        size += len(piece.text)
    if line:
        yield _joined(name, line)
    for key, item in larger if depth < _DEEPEST else ():
        yield from _lines(key, item, depth + 1)


def _entries(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((str(key), item) for key, item in value.items())
    return ((name, item) for item in value)


def _told(value: Any, depth: int) -> Told | None:
    """A value in a few words; None where it takes more."""
    if not isinstance(value, dict | list):
        text = value if isinstance(value, str) else json.dumps(value)
        return Told(text, text) if len(text) <= _LONGEST and "\n" not in text else None
    if len(value) > _MOST_INSIDE or depth > 2:
        return None
    pieces = []
    for key, item in _entries("", value):
        told = _told(item, depth + 1)
        if told is None:
            return None
        pieces.append(Told(f"{key} {told.text}", told.values) if isinstance(value, dict) else told)
    # Where objects follow each other, it must be seen where the next begins.
    inside = _joined("", pieces, "; " if isinstance(value, list) and any(isinstance(v, dict) for v in value) else ", ")
    return inside if len(inside.text) <= _SMALL else None


def _joined(name: str, pieces: Sequence[Told], between: str = ", ") -> Told:
    text = between.join(piece.text for piece in pieces)
    return Told(f"{name}: {text}" if name else text, ", ".join(piece.values for piece in pieces))
