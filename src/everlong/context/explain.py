"""Why each line of a conversation was kept or dropped, as values: for the person who asks, for tests, for tools.

Holds the account and answers questions about it. How it is drawn up is another module's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal, get_args

from everlong.context.report import CompactionReport
from everlong.model import Message

Fate = Literal["kept", "quoted", "told", "partly", "unclear", "dropped"]
"""Kept in its place; in the summary in its own words; in the summary by all that it names; its parts fared
differently; not to be found by words or names in a summary that a model wrote; or gone."""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of some words, and why."""

    text: str
    fate: Fate
    rule: str
    """The reason in a word or two that does not change, for programs."""
    reason: str
    """The reason in a sentence, for people."""
    section: str | None = None
    """The heading of the summary under which it stands, or that says what it says."""
    item: str | None = None
    """The words of the summary that say it."""
    names: tuple[str, ...] = ()
    """The names, paths, numbers and ids that it brought into the summary."""
    also: int | None = None
    """For dropped words, the first message of the result in which the very same words stand all the same."""
    lost: tuple[str, ...] = ()
    """For dropped words, what they name that stands nowhere in the result."""


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    """One line of the original with what became of it."""

    message: int
    """The place of its message in the conversation, from 0."""
    role: str
    line: int
    """Its place in the message, from 1; lines of a call's arguments follow those of the text."""
    call: str | None
    """The tool whose call it belongs to; None for the message's own words."""
    text: str
    parts: tuple[Verdict, ...]
    """One verdict, or one for each sentence or piece that was decided on by itself."""

    @property
    def fate(self) -> Fate:
        """What became of the line; ``partly`` where its parts fared differently."""
        fates = {part.fate for part in self.parts}
        return fates.pop() if len(fates) == 1 else "partly"

    @property
    def reason(self) -> str:
        """Why, in a sentence; for several parts, the different reasons in their order."""
        return "; ".join(dict.fromkeys(part.reason for part in self.parts))

    def to_dict(self) -> dict[str, Any]:
        """The line as JSON-ready data."""
        return {**asdict(self), "fate": self.fate, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A compaction with the account of every line that is not blank."""

    messages: list[Message]
    """The compacted conversation."""
    report: CompactionReport
    lines: tuple[ExplainedLine, ...]

    @property
    def fates(self) -> dict[Fate, int]:
        """How many lines fared how; those that none did are left out."""
        counted = Counter(line.fate for line in self.lines)
        return {fate: counted[fate] for fate in FATES if counted[fate]}

    def about(self, text: str) -> Explanation:
        """The account of the lines that contain a text, whatever its case."""
        wanted = text.casefold()
        found = tuple(line for line in self.lines if wanted in line.text.casefold())
        return Explanation(self.messages, self.report, found)

    def by_message(self) -> Iterator[tuple[int, list[ExplainedLine]]]:
        """The lines of each message that has any."""
        for index, lines in groupby(self.lines, key=lambda line: line.message):
            yield index, list(lines)

    def to_dict(self) -> dict[str, Any]:
        """The account as JSON-ready data, without the messages and the report."""
        return {"fates": self.fates, "lines": [line.to_dict() for line in self.lines]}
