"""Quotations: what a conversation says, and where it comes from, in lines that nobody takes for ours.

Every quoted line begins with ``>``. A text is shortened before it is quoted, so the mark stands before each line that
is left, and what a conversation says cannot pass for a heading, an id or an instruction beside it. A file that a folder
brought along speaks for nobody until the user has trusted that folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from everlong.agent.text import outside_name
from everlong.agent.tools.history import foreign_file
from everlong.context.text import TextCount, shorten_text
from everlong.store.conversations import ConversationFilters, ListCursor
from everlong.store.transcripts.parts import plain

if TYPE_CHECKING:
    from everlong.store import Conversation, Store

__all__ = [
    "Quotation",
    "Quote",
    "conversations_of",
    "fit_quotations",
    "folder_spellings",
    "name_quoted",
    "quoted",
    "role_named",
    "source_of",
    "when",
]

_SEPARATOR = "\n\n"
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PAGE = 20


def conversations_of(
    store: Store, folders: Sequence[str] | None, after: ListCursor | None = None
) -> Iterator[Conversation]:
    """Yield the conversations that work in one of some folders now, the most recently active first; None for all."""
    filters = ConversationFilters(folders=None if folders is None else tuple(folders))
    while True:
        page = store.conversations.page(filters, limit=_PAGE, after=after)
        yield from (one for one in page if folders is None or one.folder in folders)
        if len(page) < _PAGE:
            return
        after = ListCursor(page[-1].active, page[-1].id)


def source_of(one: Conversation) -> str:
    """Return where words come from, for a line of an answer: conversation, title, client, and whose they are."""
    facts = [f"conversation {one.id}"]
    if one.title:
        facts.append(name_quoted(one.title))
    facts.append(f"in {name_quoted(one.client or one.source, 40)}")
    return ", ".join(filter(None, [*facts, foreign_file(one)]))


def when(seconds: float) -> str:
    """Return a time as people and models read it, in UTC; empty for a time that no clock knows."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def folder_spellings(folder: Path, shell_folder: str | None = None) -> tuple[str, ...]:
    """Return the paths by which clients may call a folder: the real one, and the way that the shell came by."""
    spelled = [str(folder.absolute()), str(folder.resolve())]
    if shell_folder and os.path.isabs(shell_folder) and Path(shell_folder).resolve() == folder.resolve():  # noqa: PTH117 - text
        spelled.append(shell_folder)
    return tuple(dict.fromkeys(spelled))


# -- quotations --------------------------------------------------------------------------------------------------------


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
    quotations: Sequence[Quotation], room: int, count: TextCount, *, opening: str = "", between: str = _SEPARATOR
) -> tuple[str, int]:
    """Return as many quotations as have room together with an opening, and how many these are.

    The first one is shortened if it has no room.
    """

    def whole(parts: Sequence[str], last: str) -> str:
        return between.join(filter(None, [opening, *parts, last]))

    parts: list[str] = []
    for quotation in quotations:
        text = _render(quotation)
        if count(whole(parts, text)) > room:
            if not parts and (text := _shorten(quotation, room, lambda some: count(whole((), some)))):
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
