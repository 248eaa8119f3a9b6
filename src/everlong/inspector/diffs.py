"""Diffs: changes of files that calls and results carry, as lines that were added, removed or stayed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from everlong.store.transcripts import TranscriptPiece

__all__ = ["Diff", "DiffLine", "find_diff", "read_unified"]

_UNIFIED = re.compile(r"^(?:diff --git |--- .+\n\+\+\+ |@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@)", re.MULTILINE)
_ARGUMENT = re.compile(r"^([A-Za-z_]+):(?: (.*)|)$", re.MULTILINE)
_OLD = ("old_string", "old_str", "old", "search")
_NEW = ("new_string", "new_str", "new", "replace")
_PATHS = ("file_path", "path", "file")
_KNOWN = {*_OLD, *_NEW, *_PATHS, "replace_all", "expected_replacements", "command"}
_LONGEST = 20_000
_CONTEXT = 3

Kind = Literal["added", "removed", "same", "place"]


class DiffLine(NamedTuple):
    """One line of a diff."""

    kind: Kind
    text: str


Diff = tuple[DiffLine, ...]


def find_diff(piece: TranscriptPiece) -> Diff | None:
    """Return the change that a call asks for or that a result shows; None if it is none."""
    if len(piece.body) > _LONGEST:
        return None
    if _UNIFIED.search(piece.body):
        return read_unified(piece.body)
    return _replacement(piece.body) if piece.kind == "call" else None


def read_unified(text: str) -> Diff:
    """Return the lines of a unified diff."""
    return tuple(map(_line, text.splitlines()))


def _line(text: str) -> DiffLine:
    if text.startswith(("@@", "diff --git ", "index ", "--- ", "+++ ")):
        return DiffLine("place", text)
    kinds: dict[str, Kind] = {"+": "added", "-": "removed"}
    return DiffLine(kinds.get(text[:1], "same"), text)


def _replacement(body: str) -> Diff | None:
    """Return the diff of a call that replaces one text by another, from its arguments as they are shown."""
    arguments = _arguments(body)
    old = next((arguments[name] for name in _OLD if name in arguments), None)
    new = next((arguments[name] for name in _NEW if name in arguments), None)
    if old is None or new is None:
        return None
    path = next((arguments[name] for name in _PATHS if name in arguments), "")
    return tuple(_compared(path, old.splitlines(), new.splitlines()))


def _compared(path: str, old: list[str], new: list[str]) -> Iterator[DiffLine]:
    if path:
        yield DiffLine("place", path)
    for line in list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]:
        yield _line(line)


def _arguments(body: str) -> dict[str, str]:
    """Return the arguments of a call as `readable_arguments` wrote them: ``name: value``, or the value below."""
    firsts: dict[str, re.Match[str]] = {}
    for match in _ARGUMENT.finditer(body):
        if match[1] in _KNOWN:
            firsts.setdefault(match[1], match)
    found = list(firsts.values())
    arguments: dict[str, str] = {}
    for place, match in enumerate(found):
        end = found[place + 1].start() - 1 if place + 1 < len(found) else len(body)
        arguments[match[1]] = match[2] if match[2] is not None else body[match.end() + 1 : end]
    return arguments
