"""A model's prose and the conversation's own lines in one document, so that no model can make a summary worse.

The prose comes first; items of the extract that say what it does not fill the rest of the budget, by the value of the
names that each adds per token. Where the whole would still measure below the extract, the prose yields. Asks no model.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from everlong.context.summary.document import SECTIONS, SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.language import is_closing, newest_label
from everlong.context.summary.newest import restated
from everlong.context.verify import Yardstick
from everlong.model import Message, text_of

_PROSE_SHARES = (1.0, 0.5, 0.3, 0.15)
"""What the prose may take of the budget; the next share is tried where the extract alone would be better."""
_ITEM_VALUE = 1.5
"""What an item is worth for what it says besides names."""
_SPARE = 0.005
"""What share of the names that the extract keeps prose may cost: next to none, however well it reads."""
_TIGHT = 600
"""Tokens below which a summary has no room for prose that costs any name."""
_HEADING_TOKENS = 6
_ROUNDS = 4
_WHOLE_CHARACTERS = 2_000_000
"""Up to this size, more than half a million tokens, the extract beside a model's summary reads every turn."""
_EVERY = 96
_NEWEST = 8
_MOST_MISSING = 24


class Filled(NamedTuple):
    """A model's summary with the extract's lines, and how much of it is the model's."""

    text: str
    score: float
    prose_share: float


def readable(turns: Sequence[Message]) -> Sequence[Message]:
    """The turns that the extract beside a model's summary reads: all, or of a huge stretch an even choice."""
    characters = 0
    for message in turns:
        characters += len(text_of(message))
        if characters > _WHOLE_CHARACTERS:
            return [*turns[:-_NEWEST:_EVERY], *turns[-_NEWEST:]]
    return turns


def filled(
    prose: SummaryDocument,
    extract: str,
    yardstick: Yardstick,
    budget: int,
    count: Callable[[str], int],
    *,
    quotes_newest: bool = False,
) -> Filled:
    """The prose, and with it what fits of the extract; never measured below the extract alone.

    With ``quotes_newest`` the extract's line on the newest request replaces the prose's, because it is word for word.
    """
    least, tried, made = yardstick.score(extract), "", SummaryDocument.parse(extract)
    least_kept = yardstick.kept(extract) - _SPARE
    needed = set(entities(extract)) if budget < _TIGHT else set[str]()
    for share in _PROSE_SHARES:
        bounded = SummaryDocument({section: list(items) for section, items in prose.items.items()})
        if not bounded.fit(int(budget * share), count):
            break
        bounded = with_musts(bounded, made, yardstick.newest, quotes_newest=quotes_newest)
        said = bounded.fit(budget, count, newest_label)
        if said == tried:
            continue
        tried = said
        text = merged(bounded, made, yardstick.wanted, budget, count)
        score = yardstick.score(text)
        if score >= least and yardstick.kept(text) >= least_kept and needed.issubset(entities(text)):
            return Filled(text, score, share)
    return Filled(extract, least, 0.0)


def with_musts(
    prose: SummaryDocument, extract: SummaryDocument, newest: str, *, quotes_newest: bool = False
) -> SummaryDocument:
    """The prose with what no summary may lack: which request is the newest, and what the user took back."""
    document = restated(prose, extract, newest, quotes=quotes_newest)
    section = "Key Decisions"
    closed = [item for item in extract.items[section] if is_closing(item) and item not in document.items[section]]
    return SummaryDocument({**document.items, section: [*document.items[section], *closed]})


def merged(
    prose: SummaryDocument,
    extract: SummaryDocument,
    weights: Mapping[str, float],
    budget: int,
    count: Callable[[str], int],
) -> str:
    """Prose first in each section, then the items of the extract that add most per token."""
    said = prose.render()
    covered = set(entities(said))
    known = {_plain(item) for items in prose.items.values() for item in items}
    items = [(section, item) for section in SECTIONS for item in extract.items[section] if _plain(item) not in known]
    names = [frozenset(entities(item)) for _, item in items]
    costs = [count(item) + 1 for _, item in items]
    chosen: list[int] = []
    text, slack = said, budget - count(said)
    for _ in range(_ROUNDS):  # what headings and line breaks really cost is known once the text is there
        more = _cover(names, costs, weights, covered, slack - _HEADING_TOKENS, set(chosen))
        if not more:
            break
        chosen += more
        text = _together(prose, [items[index] for index in sorted(chosen)])
        while (slack := budget - count(text)) < 0:
            chosen.pop()
            text = _together(prose, [items[index] for index in sorted(chosen)])
    return text


def _together(prose: SummaryDocument, added: Sequence[tuple[str, str]]) -> str:
    document = SummaryDocument({section: list(prose.items[section]) for section in SECTIONS})
    for section, item in added:
        document.items[section].append(item)
    return document.render()


def _cover(
    names: Sequence[frozenset[str]],
    costs: Sequence[int],
    weights: Mapping[str, float],
    covered: set[str],
    room: int,
    taken: set[int],
) -> list[int]:
    """Items in the order of what each adds per token to those before it, as many as there is room for."""

    def value(index: int) -> float:
        return (_ITEM_VALUE + sum(weights.get(name, 1.0) for name in names[index] - covered)) / costs[index]

    heap = [(-value(index), index) for index in range(len(names)) if index not in taken]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap:
        worth, index = heapq.heappop(heap)
        if costs[index] > room:
            continue
        now = -value(index)
        if now > worth and heap and now > heap[0][0]:  # others covered its names meanwhile
            heapq.heappush(heap, (now, index))
            continue
        chosen.append(index)
        covered |= names[index]
        room -= costs[index]
    return chosen


def missing_lines(prose: SummaryDocument, extract: str, yardstick: Yardstick) -> tuple[str, ...]:
    """The lines of the extract with the weightiest names that the prose lacks."""
    lost = set(yardstick.missing(prose.render()))
    found: list[str] = []
    items = [item for items in SummaryDocument.parse(extract).items.values() for item in items]
    worth = {item: sum(yardstick.wanted[name] for name in lost & set(entities(item))) for item in items}
    for item in sorted(worth, key=lambda item: -worth[item])[:_MOST_MISSING]:
        names = lost & set(entities(item))
        if names:
            found.append(item)
            lost -= names
    return tuple(found)


def _plain(item: str) -> str:
    return item.lstrip("-*• ").strip().lower()
