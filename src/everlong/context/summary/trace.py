"""The trace of a summary: which candidates and lines were chosen or passed over, and why.

`SummaryTrace` ignores everything and costs next to nothing; `TraceRecording` keeps each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from everlong.context.summary.entities import entities
from everlong.context.summary.key_lines import KeyLine, LineGroup, all_lines
from everlong.context.summary.outline import Candidate, Outline
from everlong.model import Message

Item: TypeAlias = Candidate | KeyLine
Decision = Literal["taken", "said", "too_long", "less", "outranked", "unreached"]
Gain: TypeAlias = Callable[[KeyLine], float]
Waiting: TypeAlias = tuple[float, int]
"""The negative gain of a line and its negative position: the best and newest sorts first."""

LINES_SECTION = "Critical Context"
EARLIER = -1
"""The turn of what an earlier summary said."""


class SummaryTrace:
    """A trace that is told of every decision and keeps nothing."""

    __slots__ = ()

    def begin(self, turns: Sequence[Message], outline: Outline) -> None:
        """Begin a new choice, and forget the one before."""

    def note_weighed(self, groups: Sequence[LineGroup], gain: Gain, looked_at: Iterable[KeyLine]) -> None:
        """Note the lines that could be chosen, what each adds at that moment, and those that are considered."""

    def note_taken(self, item: Item, text: str, worth: float) -> None:
        """Note that an item was chosen, and stands as ``text``."""

    def note_task(self, item: Candidate, text: str) -> None:
        """Note that a task of the chronicle was chosen, and stands as ``text``."""

    def note_passed(self, item: Item, cost: int, left: int) -> None:
        """Note that an item was looked at and not chosen: too long for the room left, or said already."""


NO_TRACE = SummaryTrace()


class SummaryPlace(NamedTuple):
    """The place of a text in a summary."""

    section: str
    text: str


@dataclass(slots=True)
class TraceNote:
    """The decision about one item."""

    item: Item
    decision: Decision = "unreached"
    text: str = ""
    """The words in the summary, if it was taken."""
    worth: float = 0.0
    added: tuple[str, ...] = ()
    """The names that stood nowhere before it was taken."""
    cost: int = 0
    left: int = 0
    """The tokens that were left when it was too long."""

    @property
    def section(self) -> str:
        """The section where it stands or would have stood."""
        return LINES_SECTION if isinstance(self.item, KeyLine) else self.item.section

    @property
    def source(self) -> str:
        """Its words before anything was cut."""
        return self.item.line.text if isinstance(self.item, KeyLine) else self.item.text


class TraceRecording(SummaryTrace):
    """A trace that keeps the decisions of the latest choice."""

    __slots__ = ("_candidates", "_gain", "_lines", "_said", "last_worth", "length", "looked_at", "offered", "turns")

    def __init__(self) -> None:
        self.turns: Sequence[Message] = ()
        self.length = 0
        self.offered: list[int] = []
        """The number of lines of each turn that could be chosen."""
        self.last_worth: float | None = None
        """The gain per character of the last line taken; None if none was."""
        self.looked_at = 0
        """The number of lines that were considered, best first."""
        self._lines: dict[tuple[int, str], TraceNote] = {}
        self._candidates: dict[tuple[str, int, str], TraceNote] = {}
        self._said: dict[str, SummaryPlace] = {}
        self._gain: Gain | None = None

    def begin(self, turns: Sequence[Message], outline: Outline) -> None:
        """Forget the choice before, and note everything that can be chosen now."""
        self.turns, self.length, self.last_worth, self._gain = turns, outline.length, None, None
        self.offered = [0] * outline.length
        for group in outline.lines:
            self.offered[int(group.order)] = len(group.lines)
        self._said = {}
        self._lines = {_line_key(key_line): TraceNote(key_line) for key_line in all_lines(outline.line_groups())}
        self._candidates = {candidate[:3]: TraceNote(candidate) for candidate in outline.candidates}

    def note_weighed(self, groups: Sequence[LineGroup], gain: Gain, looked_at: Iterable[KeyLine]) -> None:
        """Note each line's worth: lines without any say nothing new, and only the best are considered."""
        keys = [_line_key(key_line) for key_line in looked_at]
        self._gain, self.looked_at = gain, len(keys)
        considered = set(keys)
        for key_line in all_lines(groups):
            key = _line_key(key_line)
            note = self._lines[key]
            if note.decision != "taken":
                note.worth = gain(key_line)
                note.decision = "less" if key in considered else "outranked" if note.worth > 0 else "said"

    def note_taken(self, item: Item, text: str, worth: float) -> None:
        """Note what the item adds, and that its names are said from now on."""
        note = self._note(item)
        names = tuple(dict.fromkeys(entities(text)))
        note.added = tuple(name for name in names if name not in self._said)
        note.decision, note.text, note.worth = "taken", text, worth
        where = SummaryPlace(note.section, text)
        for key in (*names, text.casefold(), note.source.casefold()):
            self._said.setdefault(key, where)
        if isinstance(item, KeyLine):
            self.last_worth = worth

    def note_task(self, item: Candidate, text: str) -> None:
        """Note what the line of a task adds."""
        self._candidates[item[:3]] = TraceNote(item)
        self.note_taken(item, text, item.worth)

    def note_passed(self, item: Item, cost: int, left: int) -> None:
        """Note why an item was passed over, unless it stands already."""
        note = self._note(item)
        if note.decision != "taken":
            note.decision, note.cost, note.left = ("too_long" if cost > left else "said"), cost, left

    # -- what was noted --------------------------------------------------------------------------------------------

    def line(self, turn: int, text: str) -> TraceNote | None:
        """Return the note on a line of a turn; None if it was not among the lines to choose from."""
        note = self._lines.get((turn, text))
        if note is not None and note.decision == "less" and self._gain and isinstance(note.item, KeyLine):
            note.worth = self._gain(note.item)  # lines chosen since may have said some of its names
            note.decision = "less" if note.worth > 0 else "said"
        return note

    def candidates(self) -> Iterator[TraceNote]:
        """Return the notes on everything but lines."""
        return iter(self._candidates.values())

    def lines(self) -> Iterator[TraceNote]:
        """Return the notes on all lines."""
        return iter(self._lines.values())

    def where(self, text: str) -> SummaryPlace | None:
        """Return where a text stands, or else the first of its names that is said at all."""
        keys = (text.casefold(), f"- {text}".casefold(), *entities(text))
        return next((said for key in keys if (said := self._said.get(key))), None)

    def _note(self, item: Item) -> TraceNote:
        return self._lines[_line_key(item)] if isinstance(item, KeyLine) else self._candidates[item[:3]]


def _line_key(key_line: KeyLine) -> tuple[int, str]:
    return (EARLIER if key_line.order < 0 else int(key_line.order), key_line.line.text)
