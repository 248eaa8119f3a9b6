"""A result that is too long for a context: its beginning and end, and how to read the rest."""

from __future__ import annotations

from everlong.store.pages import page_ends

STORED = 5_000_000
"""The longest text that is kept whole, in characters."""


def bounded(text: str) -> str:
    """A text that may be kept: of one that is longer than anybody will read, beginning and end."""
    if len(text) <= STORED:
        return text
    first = STORED * 4 // 5
    last = len(text) - STORED // 5 + 200
    return f"{text[:first]}\n[… {last - first:,} characters were not kept …]\n{text[last:]}"


def capped(text: str, limit: int, page_chars: int, ident: str) -> str:
    """At most ``limit`` characters of a longer text; the beginning that is shown is its first page."""
    ends = page_ends(text, page_chars)
    head = text[: ends[0]]
    longest = _between(text, len(head), len(text), ident, len(ends))
    room = max(0, limit - len(head) - len(longest))
    start = len(text) - room
    middle = start + room // 2  # as for the pages: rather a torn line than half of the room unused
    start = text.find("\n", start, middle) + 1 or text.find(" ", start, middle) + 1 or start
    return head + _between(text, len(head), start, ident, len(ends)) + text[start:]


def _between(text: str, start: int, stop: int, ident: str, pages: int) -> str:
    first = text.count("\n", 0, start) + 1
    last = text.count("\n", start, stop) + first
    # The text may end in the middle of a line on either side, so the mark brings its own line ends.
    before = "" if text[:start].endswith("\n") else "\n"
    return (
        f"{before}[… {stop - start:,} of {len(text):,} characters are left out here, lines {first:,} to {last:,}; "
        f'read_output(id="{ident}", page=2) goes on where the text above ends, and there are {pages} pages …]\n'
    )
