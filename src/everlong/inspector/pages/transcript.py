"""The transcript: 200 turns of a conversation, whatever its length, with messages in pieces that can be shown.

A turn is the number of a message, so page N holds the turns up to 200 × N for ever, and no page before it has
to be read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from everlong.errors import NotStored
from everlong.inspector.pages.compactions import CompactionRow, compaction_rows, first_cut
from everlong.model import called_tools
from everlong.store.conversations import CompactionMark, ConversationLine
from everlong.store.shown_path import find_message
from everlong.store.transcripts import one_line, pieces_of
from everlong.store.transcripts.parts import broken_words
from everlong.store.whereabouts import Whereabouts, find_whereabouts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from everlong.store import Store
    from everlong.store.transcripts import TranscriptPiece

__all__ = ["TURNS", "DiffLine", "find_diff", "page_of_turn", "read_message_page", "read_transcript"]

TURNS = 200
"""The turns of one page."""
LONGEST_TEXT = 12_000
"""Characters of a piece that a page shows; the page of the message has the rest."""
_HEADLINE = 140
_LOOK_BACK = 8
"""Turns before a page in which the calls that its first results answer are looked for."""


@dataclass(frozen=True, slots=True)
class ShownPiece:
    """One piece of a message, ready to be shown."""

    kind: Literal["text", "thinking", "call", "result", "image", "other"]
    label: str
    headline: str
    """One line of what happened, for a piece that is folded."""
    body: str
    lines: int
    diff: Diff | None
    hidden: int
    """Characters that are not shown."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message of a transcript."""

    turn: int | None
    node: str
    """Its id in hexadecimal digits; empty for messages without identity."""
    role: str
    at: float
    broken: str
    is_forgotten: bool
    pieces: tuple[ShownPiece, ...]


@dataclass(frozen=True, slots=True)
class ShownMark:
    """A compaction between two messages."""

    turn: int
    at: float
    row: CompactionRow | None
    """Its entry of the history; None if that is gone."""


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """One page of a transcript."""

    page: int
    pages: int
    lines: tuple[ShownMessage | ShownMark, ...]
    prompt: str
    """The system prompt; on the first page only."""
    last_turn: int
    """The last turn that is shown, after which a live page goes on."""
    after: int = 0
    """The turn after which the lines begin, if a page asked for those that are new."""

    @property
    def is_newest(self) -> bool:
        """True if no page comes after it."""
        return self.page == self.pages


def page_of_turn(turn: int) -> int:
    """Return the page that shows a turn."""
    return max(0, turn - 1) // TURNS + 1


def read_transcript(store: Store, ident: str, page: int | None = None, seen: int | None = None) -> TranscriptPage:
    """Return one page of a conversation; the newest without a number, the nearest for a number that there is not.

    With ``seen``, only its lines after that turn.
    """
    length = store.conversations.count_turns(ident)
    pages = max(1, -(-length // TURNS))
    chosen = pages if page is None else min(max(1, page), pages)
    after = max((chosen - 1) * TURNS, seen or 0)
    last = max(after, min(length, chosen * TURNS))
    tools = tools_before(store, ident, after) if after else {}
    lines = list(store.conversations.entries(ident, after=after, to=chosen * TURNS))
    has_marks = any(isinstance(one, CompactionMark) for one in lines)
    rows = {row.done.id: row for row in (compaction_rows(store, ident) if has_marks else ())}
    prompt = (store.conversations.system_prompt(ident) or "") if chosen == 1 and not seen else ""
    return TranscriptPage(chosen, pages, tuple(_shown(lines, tools, rows)), prompt, last, seen or 0)


def _shown(
    lines: Sequence[ConversationLine | CompactionMark],
    tools: dict[str, str],
    rows: Mapping[int, CompactionRow],
) -> Iterator[ShownMessage | ShownMark]:
    for line in lines:
        if isinstance(line, CompactionMark):
            yield ShownMark(line.turn, line.at, rows.get(line.compaction.id) if line.compaction else None)
        else:
            tools |= called_tools(line.entry.message)
            yield shown_message(line, tools)


def shown_message(line: ConversationLine, tools: Mapping[str, str], *, most: int = LONGEST_TEXT) -> ShownMessage:
    """Return a message ready to be shown; of a long piece its beginning."""
    entry = line.entry
    return ShownMessage(
        turn=line.turn,
        node=entry.id.hex() if entry.id is not None else "",
        role=one_line(str(entry.message.get("role"))),
        at=entry.ts,
        broken=broken_words(line),
        is_forgotten=entry.forgotten,
        pieces=tuple(_shown_piece(piece, most) for piece in pieces_of(entry.message, tools)),
    )


def _shown_piece(piece: TranscriptPiece, most: int) -> ShownPiece:
    body = piece.body if piece.kind == "image" else piece.body[:most]
    diff = find_diff(piece) if piece.kind in {"call", "result"} and not len(piece.body) > most else None
    return ShownPiece(
        kind=piece.kind,
        label=one_line(piece.label),
        headline=_headline(piece),
        body=body,
        lines=piece.body.count("\n") + 1,
        diff=diff,
        hidden=0 if piece.kind == "image" else max(0, len(piece.body) - most),
    )


def _headline(piece: TranscriptPiece) -> str:
    """Return one line of what a piece says: of a call its arguments, else its first line."""
    start = piece.body[: 4 * _HEADLINE]
    if piece.kind == "call":
        line = one_line(start)
    else:
        line = one_line(next((one for one in start.splitlines() if one.strip()), ""))
    return line if len(line) <= _HEADLINE else f"{line[:_HEADLINE].rstrip()} …"


def tools_before(store: Store, ident: str, turn: int) -> dict[str, str]:
    """Return the tools of the calls up to a turn, whose results may stand right behind it."""
    tools: dict[str, str] = {}
    for line in store.conversations.entries(ident, after=max(0, turn - _LOOK_BACK), to=turn):
        if isinstance(line, ConversationLine):
            tools |= called_tools(line.entry.message)
    return tools


# -- the page of one message: its words, where it was said, and what has become of it since ----------------------------


LONGEST = 400_000
"""Characters of a piece that the page of a message shows."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One message."""

    message: ShownMessage
    conversation: str | None
    title: str
    fate: Whereabouts
    cut_by: int | None
    """The number of the compaction that first sent something else for it."""


def read_message_page(store: Store, ident: str) -> MessagePage:
    """Return a message by the beginning of its id; raise `NotStored` if there is none, or several."""
    found = find_message(store, ident)
    fate = find_whereabouts(store, found.node.hex(), limit=1)
    lines = () if found.session is None else _lines_at(store, found.session, found.turn)
    line = next((one for one in lines if one.entry.id == found.node), None)
    if found.session is None or line is None or not fate:
        raise NotStored(f"the message {ident!r} is in no conversation that is shown")
    tools = tools_before(store, found.session, found.turn)
    return MessagePage(
        message=shown_message(line, tools, most=LONGEST),
        conversation=found.session,
        title=fate[0].title or "",
        fate=fate[0],
        cut_by=None if fate[0].state == "in context" else first_cut(store, found.session, found.turn),
    )


def _lines_at(store: Store, conversation: str, turn: int) -> Iterator[ConversationLine]:
    lines = store.conversations.entries(conversation, after=turn - 1, to=turn)
    return (line for line in lines if isinstance(line, ConversationLine))


# -- diffs: changes of files that calls and results carry --------------------------------------------------------------


_UNIFIED = re.compile(r"^(?:diff --git |--- .+\n\+\+\+ |@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@)", re.MULTILINE)
_ARGUMENT = re.compile(r"^([A-Za-z_]+):(?: (.*)|)$", re.MULTILINE)
_OLD = ("old_string", "old_str", "old", "search")
_NEW = ("new_string", "new_str", "new", "replace")
_PATHS = ("file_path", "path", "file")
_KNOWN = {*_OLD, *_NEW, *_PATHS, "replace_all", "expected_replacements", "command"}
_LONGEST = 20_000
_MOST_LINES = 400
"""Lines of a replacement that are compared: to compare many that are alike takes seconds."""
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
    if old is None or new is None or body.count("\n") > _MOST_LINES:
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
