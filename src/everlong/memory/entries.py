"""The notes of a Markdown file: found wherever a person or a program put them, and changed without touching the rest.

A note is a list item at the left margin with everything indented below it, or a paragraph, or a fenced block. Headings,
rulers and comments (``<!-- -->``) are for people: they are no notes and stay where they are. This module takes and
gives texts; it knows no file and no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]{1,4}(?=\S)")
_NO_NOTE = re.compile(r"#{1,6}(?:\s|$)|(?:-{3,}|\*{3,}|_{3,}|={3,})\s*$")
_ORIGIN = "<!-- from "
_FENCE = re.compile(r"`{3,}|~{3,}")


class Entry(NamedTuple):
    """One note: the lines it takes, what stands before its first word, and its words."""

    start: int
    end: int
    marker: str
    text: str


def lines_of(text: str) -> list[str]:
    """The lines of a file with their ends."""
    return _LINES.findall(text)


def entries_of(text: str) -> list[Entry]:
    """Every note of a file, from the top."""
    lines = lines_of(text.removeprefix("\ufeff"))
    return [entry for entry in _walk(lines) if entry.text]


def _walk(lines: list[str]) -> Iterator[Entry]:
    at = 0
    closings = _Closings(lines)
    while at < len(lines):
        line = lines[at]
        if not line.strip() or _NO_NOTE.match(line):
            at += 1
        elif end := closings.comment_end(at):
            at = end
        elif item := _ITEM.match(line):
            end = _item_end(lines, at + 1)
            yield Entry(at, end, item[0], _item_text(lines[at:end], item[0]))
            at = end
        else:
            end = closings.fence_end(at) or _paragraph_end(lines, at + 1)
            yield Entry(at, end, "", _joined(lines[at:end]))
            at = end


class _Closings:
    """Where comments and fenced blocks end; those that never do are plain text, and are looked for only once."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._never: set[str] = set()

    def comment_end(self, at: int) -> int:
        """Behind which line the comment ends that begins here; 0 where none does."""
        line = self._lines[at]
        if not line.startswith("<!--"):
            return 0
        return at + 1 if "-->" in line[4:] else self._first(at + 1, "-->", lambda text: "-->" in text)

    def fence_end(self, at: int) -> int:
        """Behind which line the fenced block ends that begins here; 0 where none does."""
        fence = _FENCE.match(self._lines[at])
        return self._first(at + 1, fence[0], lambda text: text.rstrip() == fence[0]) if fence else 0

    def _first(self, start: int, kind: str, closes: Callable[[str], bool]) -> int:
        if kind in self._never:
            return 0
        found = next((number + 1 for number in range(start, len(self._lines)) if closes(self._lines[number])), 0)
        if not found:
            self._never.add(kind)
        return found


def _paragraph_end(lines: list[str], at: int) -> int:
    while at < len(lines) and not _begins_anew(lines[at]):
        at += 1
    return at


def _begins_anew(line: str) -> bool:
    return bool(
        not line.strip() or _NO_NOTE.match(line) or _ITEM.match(line) or line.startswith(("<!--", "```", "~~~"))
    )


def _item_end(lines: list[str], at: int) -> int:
    """Behind which line an item ends: what is indented belongs to it, also after blank lines."""
    end = at
    while at < len(lines):
        line = lines[at]
        if line.strip():
            if line[0] not in " \t" and (at > end or _begins_anew(line)):
                break
            end = at + 1
        at += 1
    return end


def _item_text(lines: list[str], marker: str) -> str:
    rest = [_dedented(line, len(marker)) for line in lines[1:]]
    return _joined([lines[0][len(marker) :], *rest])


def _dedented(line: str, width: int) -> str:
    if line.startswith("\t"):
        return line[1:]
    return line[min(width, len(line) - len(line.lstrip(" "))) :]


def _joined(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in lines).strip()


def with_added(text: str, note: str, origin: str = "") -> str:
    """The file with one more note at its end, after a comment that says where it came from."""
    newline = _line_end(text)
    lines = lines_of(text)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    entries = entries_of(text)
    follows_item = bool(entries) and entries[-1].marker != "" and entries[-1].end == len(lines)
    if lines and lines[-1].strip() and not follows_item:
        lines.append(newline)
    comment = [f"{_ORIGIN}{' '.join(origin.replace('--', '- -').split())} -->{newline}"] if origin else []
    return "".join([*lines, *comment, *_item_lines("- ", note, newline)])


def with_replaced(text: str, entry: Entry, note: str) -> str:
    """The file with other words in the place of a note: a list item stays one, a paragraph if it can."""
    newline = _line_end(text)
    lines = lines_of(text)
    mark = "\ufeff" if entry.start == 0 and text.startswith("\ufeff") else ""
    before, after = lines[: entry.start], lines[entry.end :]
    if not entry.marker:
        plain = "".join([*before, mark, *(f"{line}{newline}" for line in note.split("\n")), *after])
        if [each.text for each in entries_of(plain)] == [
            note if each == entry else each.text for each in entries_of(text)
        ]:
            return plain
    return "".join([*before, *_item_lines(mark + (entry.marker or "- "), note, newline), *after])


def with_removed(text: str, entry: Entry) -> str:
    """The file without a note and what says where it came from, and without the second of two blank lines."""
    lines = lines_of(text)
    mark = "\ufeff" if entry.start == 0 and text.startswith("\ufeff") else ""
    after = entry.end
    if entry.start and lines[entry.start - 1].startswith(_ORIGIN):
        entry = entry._replace(start=entry.start - 1)
    if after < len(lines) and not lines[after].strip() and (entry.start == 0 or not lines[entry.start - 1].strip()):
        after += 1
    return mark + "".join([*lines[: entry.start], *lines[after:]])


def _item_lines(marker: str, note: str, newline: str) -> list[str]:
    indent = " " * len(marker.lstrip("\ufeff"))
    first, *rest = note.split("\n")
    return [f"{marker}{first}{newline}", *(f"{indent}{line}{newline}" if line else newline for line in rest)]


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
