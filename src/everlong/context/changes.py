"""What became of each message: kept, changed, summarized, added.

Compares a conversation before and after a compaction. A compressor hands unchanged messages on as the very same
objects, so this needs no guess about equal texts; lists of other engines are aligned by equality.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from everlong.context.literals import COMPACTION_NOTE
from everlong.model import Message, text_of

Fate = Literal["kept", "cleared", "noted", "repeated", "summarized", "added"]


class Change(NamedTuple):
    """A message and what became of it; ``source`` is its place before, None for an added one."""

    fate: Fate
    message: Message
    source: int | None


def changes(before: Sequence[Message], after: Sequence[Message]) -> list[Change]:
    """Every message of both lists once: the old ones in their order, the new ones where they were put in."""
    partners = _partners(before, after)
    placed: list[Change] = []
    cursor = 0
    seen: set[int] = set()
    for message, source in zip(after, partners, strict=True):
        if source is None:
            placed.append(Change("added", message, None))
            continue
        placed.extend(Change("summarized", before[gone], gone) for gone in range(cursor, source))
        cursor = max(cursor, source + 1)
        repeated = source in seen
        seen.add(source)
        placed.append(Change("repeated" if repeated else _fate(before[source], message), message, source))
    placed.extend(Change("summarized", before[gone], gone) for gone in range(cursor, len(before)))
    kept = {change.source for change in placed if change.fate != "summarized"}
    return [change for change in placed if change.fate != "summarized" or change.source not in kept]


def _fate(old: Message, new: Message) -> Fate:
    if old is new or old == new:
        return "kept"
    return "noted" if text_of(new).endswith(COMPACTION_NOTE) else "cleared"


def _partners(before: Sequence[Message], after: Sequence[Message]) -> list[int | None]:
    """For each message after, the place of the one before that it came from."""
    by_object = {id(message): place for place, message in enumerate(before)}
    by_call: defaultdict[tuple[object, object], deque[int]] = defaultdict(deque)
    unclaimed = set(range(len(before)))
    partners: list[int | None] = []
    for message in after:
        place = by_object.get(id(message))
        partners.append(place)
        unclaimed.discard(-1 if place is None else place)
    for place in sorted(unclaimed):
        by_call[before[place]["role"], before[place].get("tool_call_id")].append(place)
    for position, message in enumerate(after):
        if partners[position] is None:
            waiting = by_call.get((message["role"], message.get("tool_call_id")))
            if waiting and _could_be(before[waiting[0]], message):
                partners[position] = waiting.popleft()
    return partners


def _could_be(old: Message, new: Message) -> bool:
    """Whether a changed message may be this old one: results by their id, others if they begin alike."""
    if old["role"] == "tool":
        return True
    return bool(text_of(old)) and text_of(new).startswith(text_of(old)[:40])
