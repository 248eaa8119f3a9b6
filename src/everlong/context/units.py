"""The lines of a message as an explanation counts them: its words, its calls' arguments, its pictures and thinking.

Lines end where the summary's reading of the message ends them, so that each decision belongs to one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everlong.context.summary.entities import entities
from everlong.context.summary.language import sentences
from everlong.context.summary.lines import argument_texts, cut_lines
from everlong.context.summary.records import Told
from everlong.model import Message, calls_of, is_image, is_reasoning, part_text, parts_of, text_of


class Unit(NamedTuple):
    """A line that is not blank; ``call`` names the tool where it stands in a call's arguments."""

    line: int
    text: str
    call: str | None = None
    is_words: bool = True
    """False for a picture, a file or thinking."""


def units_of(message: Message) -> Iterator[Unit]:
    """Every line of a message, numbered from 1."""
    text, number = text_of(message), 0
    for line in text.splitlines() if message["role"] == "tool" else text.split("\n"):
        number += 1
        if line.strip():
            yield Unit(number, line.strip())
    for part in parts_of(message):
        if not part_text(part) and part.get("type", "text") != "text":
            number += 1
            yield Unit(number, _part_name(part), is_words=False)
    for call in calls_of(message):
        has_words = False
        for value in argument_texts(call.arguments):
            for line in value.splitlines():
                number += 1
                if line.strip():
                    has_words = True
                    yield Unit(number, line.strip(), call.name)
        if not has_words:
            number += 1
            yield Unit(number, f"{call.name}()", call.name)


def _part_name(part: dict[str, object]) -> str:
    if is_reasoning(part):
        return "[thinking]"
    return "[image]" if is_image(part) else f"[{part.get('type')}]"


def pieces_of(unit: Unit, role: str, records: Sequence[Told] = ()) -> list[str]:
    """The sentences or pieces of a line that a summary chooses among; the line itself where it has none.

    Where structured data was read as records, the pieces are the records that say something of the line.
    """
    if records and unit.call is None:
        names = set(entities(unit.text))
        return [told.text for told in records if not names.isdisjoint(entities(told.values))]
    spoken = unit.call is None and role != "tool"
    return cut_lines(sentences(unit.text) if spoken else [unit.text]) or [unit.text]
