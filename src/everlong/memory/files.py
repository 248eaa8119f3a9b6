"""A file of notes in Markdown: read whole, changed under a lock, replaced whole, never over somebody's edit.

Programs take the folder's lock; people with an editor do not. So the file is read once more right before it is
replaced, and the change is worked out anew if somebody edited it meanwhile.

A note is a list item or a paragraph; headings, rules and comments are none.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from everlong.config.files import try_lock, write_whole
from everlong.errors import NotesError

_PAUSE_SECONDS = 0.01
_ATTEMPTS = 20
_FILE_CHARS = 40_000


@contextmanager
def _hold_lock(folder: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the folder's lock in a ``with`` block; raises `NotesError` if others keep it for too long."""
    # The file stays: if it were deleted, two processes could lock two different files of that name.
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + wait_seconds
    try:
        while not try_lock(handle):
            if time.monotonic() >= deadline:
                raise NotesError(
                    f"another program has kept the notes in {folder} locked for {wait_seconds:g} seconds; nothing was "
                    "changed; try again later"
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(handle)  # which gives the lock back


class _EditedMeanwhile(Exception):  # noqa: N818 - never leaves this module
    """The file is no longer the one that was read."""


class NotesFile:
    """One file of notes, which need not exist yet."""

    def __init__(self, path: Path, wait_seconds: float) -> None:
        self.path = path
        self._wait_seconds = wait_seconds

    def notes(self) -> list[str]:
        """Return the notes, from the top; invalid UTF-8 becomes a replacement character."""
        return [note.text for note in _read_notes(self._bytes().decode("utf-8-sig", "replace"))]

    def change(self, choose: Callable[[list[str]], int], note: str, *, opening: str, origin: str) -> str:
        """Put a note in the place of another, or remove that one, and return what was there.

        Args:
            choose: returns the place among the notes, or their number for a new one; called again if somebody edited
                the file meanwhile.
            note: the new words; empty to remove the note.
            opening: the beginning of a new file.
            origin: where a new note comes from, for a comment above it.

        Raises:
            NotesError: nothing was changed.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _hold_lock(self.path.parent, self._wait_seconds):
                for _ in range(_ATTEMPTS):
                    try:
                        return self._try_change(choose, note, opening, origin)
                    except _EditedMeanwhile:
                        continue
        except OSError as error:
            raise NotesError(f"cannot write {self.path}: {error.strerror or error}; nothing was changed") from error
        raise NotesError(f"{self.path} is being changed all the time by another program; nothing was changed")

    def _try_change(self, choose: Callable[[list[str]], int], note: str, opening: str, origin: str) -> str:
        read = self._bytes()
        try:
            before = read.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = read.count(b"\n", 0, error.start) + 1
            raise NotesError(
                f"{self.path} is not UTF-8 (line {line}), so it is only read and not changed; save it as UTF-8"
            ) from error
        notes = _read_notes(before)
        texts = [one.text for one in notes]
        place = choose(texts)
        if place == len(notes):
            after = _with_added(before or opening, note, origin)
        else:
            after = _with_replaced(before, notes[place], note)
        self._check(before, after, [*texts[:place], *([note] if note else []), *texts[place + 1 :]])

        def check_again() -> None:
            if self._bytes() != read:
                raise _EditedMeanwhile

        write_whole(self.path, after, check=check_again)
        return "".join(texts[place : place + 1])

    def _check(self, before: str, after: str, wanted: list[str]) -> None:
        if len(after) > max(_FILE_CHARS, len(before)):
            raise NotesError(
                f"{self.path.name} is full: it has {len(before):,} of {_FILE_CHARS:,} characters; merge notes with "
                "memory_replace or remove old ones with memory_remove, then try again"
            )
        if [one.text for one in _read_notes(after)] != wanted:
            raise NotesError(
                f"this would change other notes of {self.path.name} too, because of a comment that is not closed or "
                "of indented lines; ask the user to tidy the file; nothing was changed"
            )

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise NotesError(f"cannot read {self.path}: {error.strerror or error}") from error


# -- notes in Markdown -------------------------------------------------------------------------------------------------


_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]{1,4}(?=\S)")
_NO_NOTE = re.compile(r"#{1,6}(?:\s|$)|(?:-{3,}|\*{3,}|_{3,}|={3,})\s*$")
_ORIGIN = "<!-- from "


class _Note(NamedTuple):
    """One note: its lines, its list marker (empty for a paragraph), and its text."""

    start: int
    end: int
    marker: str
    text: str


def _read_notes(text: str) -> list[_Note]:
    """Return every note of a file, from the top."""
    lines = _LINES.findall(text)
    found: list[_Note] = []
    at = 0
    while at < len(lines):
        start, after = at, _comment_end(lines, at)
        at = after or at + 1
        if after or not lines[start].strip() or _NO_NOTE.match(lines[start]):
            continue
        item = _ITEM.match(lines[start])
        marker = item[0] if item else ""
        at = _note_end(lines, at, is_item=item is not None)
        rest = [_dedent(line, len(marker)) for line in lines[start + 1 : at]]
        text = "\n".join(line.rstrip() for line in [lines[start][len(marker) :], *rest]).strip()
        found += [_Note(start, at, marker, text)] if text else []
    return found


def _comment_end(lines: list[str], at: int) -> int:
    """Return the line after the comment that begins here; 0 where none does, or where it never ends."""
    if not lines[at].startswith("<!--"):
        return 0
    return next((number + 1 for number in range(at, len(lines)) if "-->" in lines[number]), 0)


def _note_end(lines: list[str], at: int, *, is_item: bool) -> int:
    """Return the line after a note; indented lines belong to an item, even after blank lines."""
    end = at
    for number, line in enumerate(lines[at:], start=at):
        if line.strip():
            begins_anew = number > end or _NO_NOTE.match(line) or _ITEM.match(line) or line.startswith("<!--")
            if begins_anew and not (is_item and line[0] in " \t"):
                break
            end = number + 1
    return end


def _dedent(line: str, width: int) -> str:
    """Return a line without the indentation under a list marker, if there is one."""
    if width and line.startswith("\t"):
        return line[1:]
    return line[min(width, len(line) - len(line.lstrip(" "))) :]


def _with_added(text: str, note: str, origin: str) -> str:
    """Return the file with one more note at its end, after a comment with its origin."""
    lines, entries = _LINES.findall(text), _read_notes(text)
    follows_item = bool(entries) and entries[-1].marker != "" and entries[-1].end == len(lines)
    ended = "" if not text or text.endswith("\n") else "\n"
    gap = "\n" if lines and lines[-1].strip() and not follows_item else ""
    comment = f"{_ORIGIN}{' '.join(origin.replace('--', '- -').split())} -->\n" if origin else ""
    return f"{text}{ended}{gap}{comment}{list_item('- ', note)}\n"


def _with_replaced(text: str, entry: _Note, note: str) -> str:
    """Return the file with a note replaced; one without words goes, with the comment of its origin."""
    lines = _LINES.findall(text)
    before, after = lines[: entry.start], lines[entry.end :]
    if note:
        return "".join([*before, list_item(entry.marker or "- ", note), "\n", *after])
    if before and before[-1].startswith(_ORIGIN):
        before.pop()
    if after and not after[0].strip() and (not before or not before[-1].strip()):
        del after[0]
    return "".join([*before, *after])


def list_item(marker: str, text: str) -> str:
    """Return a text as a list item, its further lines indented."""
    first, *rest = text.split("\n")
    return "\n".join([f"{marker}{first}", *(f"{' ' * len(marker)}{line}" if line else "" for line in rest)])
