"""A model's summary is the summary; here it gets the few facts that it lacks.

Every line of it stays as it is. What is added: the newest request, what the user took back, files that were changed,
and lines of the conversation with facts that are missing, in Critical Context under their source. All of that together
takes at most a fifth of the summary. Asks no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from everlong.context.summary.document import SECTIONS, SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.language import changes_file, is_closing, newest_label
from everlong.context.summary.newest import restated
from everlong.context.verify import Yardstick
from everlong.model import Message, text_of

ADDED_SHARE = 0.18
"""What may be added to a summary of a model, as a share of it: with headings and line breaks at most a fifth."""
_FILES_SHARE = 0.5
"""What of that files may take."""
_THIN = 40
"""A summary of fewer tokens stands for nothing: it is put in front of the built-in one."""
_HEADING_TOKENS = 6
_WHOLE_CHARACTERS = 2_000_000
"""Up to this size, more than half a million tokens, the extract beside a model's summary reads every turn."""
_EVERY = 96
_NEWEST = 8
_MOST_MISSING = 24
_CONTEXT = "Critical Context"


def readable(turns: Sequence[Message]) -> Sequence[Message]:
    """The turns that the extract beside a model's summary reads: all, or of a huge stretch an even choice."""
    characters = 0
    for message in turns:
        characters += len(text_of(message))
        if characters > _WHOLE_CHARACTERS:
            return [*turns[:-_NEWEST:_EVERY], *turns[-_NEWEST:]]
    return turns


def completed(
    prose: SummaryDocument,
    extract: str,
    yardstick: Yardstick,
    budget: int,
    count: Callable[[str], int],
    *,
    quotes_newest: bool = False,
) -> str:
    """The prose as it is, with what it lacks of the extract's facts; within the budget.

    With ``quotes_newest`` the extract's line on the newest request replaces the prose's, because it is word for word.
    """
    made = SummaryDocument.parse(extract)
    document = SummaryDocument({section: list(prose.items[section]) for section in SECTIONS})
    document = restated(document, made, yardstick.newest, quotes=quotes_newest)
    if count(prose.render()) < _THIN:
        return _in_front(document, made).fit(budget, count, newest_label)
    text = document.fit(budget, count, newest_label)
    room = min(budget - count(text), int(count(text) * ADDED_SHARE))
    room -= _add_closings(document, made, room, count)
    room -= _add_files(document, made, int(room * _FILES_SHARE), count)
    _add_lines(document, made, yardstick, room, count)
    return document.fit(budget, count, newest_label)


def _in_front(prose: SummaryDocument, extract: SummaryDocument) -> SummaryDocument:
    """The few words of a model in front of those of the built-in summary; the model's goal is the goal."""
    known = {_plain(item) for items in prose.items.values() for item in items}
    merged = {
        section: [*prose.items[section], *(item for item in extract.items[section] if _plain(item) not in known)]
        for section in SECTIONS
    }
    for section in ("Goal", "Pending User Asks"):
        merged[section] = prose.items[section] or extract.items[section]
    return SummaryDocument(merged)


def _add_closings(document: SummaryDocument, made: SummaryDocument, room: int, count: Callable[[str], int]) -> int:
    """Say what the user took back, or it would be taken up again; returns the tokens that it takes."""
    said = document.render()
    closed = [item for item in made.items["Key Decisions"] if is_closing(item) and item not in said]
    return _append(document, _CONTEXT, closed, room, count)


def _add_files(document: SummaryDocument, made: SummaryDocument, room: int, count: Callable[[str], int]) -> int:
    """Name the changed files that the prose does not; returns the tokens that they take."""
    said = set(entities(document.render()))
    unsaid = [
        item for item in made.items["Relevant Files"] if changes_file(item) and not said.intersection(_file_names(item))
    ]
    return _append(document, "Relevant Files", unsaid, room, count)


def _append(
    document: SummaryDocument, section: str, items: Sequence[str], room: int, count: Callable[[str], int]
) -> int:
    spent = 0
    for item in items:
        cost = count(item) + 1 + (0 if document.items[section] else _HEADING_TOKENS)
        if spent + cost <= room:
            document.items[section].append(item)
            spent += cost
    return spent


def _file_names(item: str) -> set[str]:
    """A file's path and its last part."""
    path = item.removeprefix("- ").lstrip("`").split("`")[0].split(" ")[0]
    return {path, path.rsplit("/", 1)[-1]}


class _Line(NamedTuple):
    source: str
    text: str
    names: frozenset[str]


def _add_lines(
    document: SummaryDocument, made: SummaryDocument, yardstick: Yardstick, room: int, count: Callable[[str], int]
) -> None:
    """Add the lines with the weightiest facts that stand nowhere yet, each under its source."""
    lost = set(yardstick.missing(document.render()))
    lines = [line for item in made.items[_CONTEXT] for line in _lines_of(item) if line.names & lost]
    chosen: dict[str, list[str]] = {}
    room -= 0 if document.items[_CONTEXT] else _HEADING_TOKENS
    while lines and room > 0:
        best = max(lines, key=lambda line: _worth(line, lost, yardstick.wanted, chosen))
        lines.remove(best)
        cost = count(best.text) + 1 + (count(best.source) + 1 if best.source not in chosen else 0)
        if cost <= room and best.names & lost:
            chosen.setdefault(best.source, []).append(best.text)
            lost -= best.names
            room -= cost
    document.items[_CONTEXT] += [
        "\n".join([source, *(f"  {text}" for text in texts)]) for source, texts in chosen.items()
    ]


def _worth(line: _Line, lost: set[str], wanted: Mapping[str, float], chosen: Mapping[str, object]) -> float:
    length = len(line.text) + (0 if line.source in chosen else len(line.source)) + 16
    return sum(wanted[name] for name in line.names & lost) / length


def _lines_of(item: str) -> Iterator[_Line]:
    """The lines that an item groups under a source."""
    source, *lines = item.split("\n")
    for line in lines:
        yield _Line(source, line.strip(), frozenset(entities(line)))


def missing_lines(prose: SummaryDocument, extract: str, yardstick: Yardstick) -> tuple[str, ...]:
    """The lines of the extract with the weightiest names that the prose lacks."""
    lost = set(yardstick.missing(prose.render()))
    found: list[str] = []
    items = [item for items in SummaryDocument.parse(extract).items.values() for item in items]
    pieces = [piece for item in items for piece in _pieces(item)]
    worth = {piece: sum(yardstick.wanted[name] for name in lost & set(entities(piece))) for piece in pieces}
    for piece in sorted(worth, key=lambda piece: -worth[piece])[:_MOST_MISSING]:
        names = lost & set(entities(piece))
        if names:
            found.append(piece)
            lost -= names
    return tuple(found)


def _pieces(item: str) -> Iterator[str]:
    """An item, or each of its lines with the source that they stand under."""
    if "\n" not in item:
        yield item
    for line in _lines_of(item):
        yield f"- {line.source} {line.text}"


def _plain(item: str) -> str:
    return item.lstrip("-*• ").strip().lower()
