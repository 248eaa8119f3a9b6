"""Quotations of stored conversations, for models: within a number of tokens, and never to be taken for anything else.

Every quoted line begins with ``>``. A text is shortened before it is quoted, so the mark stands before each line that
is left, and what a conversation says cannot pass for a heading, an id or an instruction beside it. A name that somebody
else chose, such as a title, stands inside of our own lines in quotation marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from everlong.agent.text import outside_name
from everlong.context.text import TextCount, shorten_text
from everlong.store.transcripts.parts import plain

__all__ = ["Quotation", "Quote", "fit_quotations", "name_quoted", "quoted", "role_named"]

_SEPARATOR = "\n\n"
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Quote(NamedTuple):
    """A heading of ours, and the words of a conversation under it; either may be empty."""

    heading: str
    words: str = ""

    def render(self) -> str:
        """Return the heading and the quoted words."""
        return "\n".join(filter(None, [self.heading, quoted(self.words) if self.words else ""]))


Quotation: TypeAlias = Sequence[Quote]
"""Quotes that belong together, such as a question and its answer."""


def quoted(text: str) -> str:
    """Return a text of a conversation with a mark before each line; every character in it is visible."""
    return "\n".join(f"> {line}".rstrip() for line in plain(text).split("\n"))


def name_quoted(text: str, most: int = 90) -> str:
    """Return a name that somebody else chose, for a line of ours: in quotation marks that it cannot close."""
    return f'"{outside_name(text, most)}"'


def role_named(role: object) -> str:
    """Return the role of a message for a line of ours; a file may have any."""
    return role if isinstance(role, str) and role in _ROLES else name_quoted(str(role), 20)


def fit_quotations(
    quotations: Sequence[Quotation],
    room: int,
    count: TextCount,
    *,
    opening: str = "",
    closing: str = "",
    between: str = _SEPARATOR,
    shortens: bool = False,
) -> tuple[str, int]:
    """Return as many quotations as have room together with an opening and a closing, and how many these are.

    The first one is shortened if it has no room; with ``shortens``, the last one that has some room is too.
    """

    def whole(parts: Sequence[str], last: str) -> str:
        return between.join(filter(None, [opening, *parts, last, closing]))

    parts: list[str] = []
    for number, quotation in enumerate(quotations):
        text = _render(quotation)
        if count(whole(parts, text)) > room:
            if number and not shortens:
                break
            text = _shorten(quotation, room, lambda some: count(whole(parts, some)))
            if text:
                parts.append(text)
            break
        parts.append(text)
    return whole(parts, ""), len(parts)


def _render(quotation: Quotation) -> str:
    return "\n".join(quote.render() for quote in quotation)


def _shorten(quotation: Quotation, room: int, measure: TextCount) -> str:
    """Return a quotation with less of its longest words, or without its last quotes; empty if nothing has room."""
    for length in range(len(quotation), 0, -1):
        kept = list(quotation[:length])
        longest = max(range(length), key=lambda place: len(kept[place].words))

        def insert_words(words: str, kept: list[Quote] = kept, longest: int = longest) -> str:
            changed = [*kept[:longest], kept[longest]._replace(words=words), *kept[longest + 1 :]]
            return _render(changed)

        words = shorten_text(kept[longest].words, room, lambda some: measure(insert_words(some)), otherwise="")
        if words:
            return insert_words(words)
    return ""
