"""Views as pure values: how an engine's output becomes items, and how items become messages again.

What an engine is given is a list of *pieces*: raw messages, and literals of the view that is in force already. Each
carries a tag. What comes back tagged and equal is kept, tagged and changed is an edit, untagged is new; where an engine
drops tags, equal messages are recognised. Items partition the depths up to the cover, and what follows the cover is
raw, so that assembling gives exactly the engine's output. This module knows no database.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple

from everlong.model import Message
from everlong.store.content import encoded

TAG = "_node"
"""The key that carries a message's place through an engine; it is never stored."""

Kind = Literal["keep", "edit", "new"]


class Piece(NamedTuple):
    """One message of the context, and the stretch of depths that it stands for; silent where there is no message."""

    kind: Kind
    from_depth: int
    to_depth: int
    message: Message | None
    tag: str = ""
    is_raw: bool = False
    """Whether it is a stored message as it was said, rather than a literal of a view."""
    ts: float = 0.0
    """Of a stored message, when it was said."""


class Item(NamedTuple):
    """One item of a view: depths ``(from_depth, to_depth]`` are sent as they are, as this message, or as nothing."""

    kind: Kind
    from_depth: int
    to_depth: int
    message: Message | None = None


class Derived(NamedTuple):
    """What an engine's output amounts to."""

    items: list[Item]
    cover_depth: int


def tagged(pieces: Sequence[Piece]) -> list[Message]:
    """Deep copies of the messages for an engine, each with its tag."""
    return [{**copy.deepcopy(piece.message), TAG: piece.tag} for piece in pieces if piece.message is not None]


def untagged(message: Message) -> Message:
    """The message without its tag."""
    return {key: value for key, value in message.items() if key != TAG} if TAG in message else message


def derive(pieces: Sequence[Piece], output: Sequence[Message]) -> Derived:
    """The items that turn the pieces into an engine's output, with as little covered as can be."""
    said = [piece for piece in pieces if piece.message is not None]
    plain = [untagged(message) for message in output]
    tags = [message.get(TAG) for message in output]
    given = [_bytes(piece.message) for piece in said]
    made = [_bytes(message) for message in plain]

    def same(place: int, index: int) -> bool:
        return made[place] == given[index] and tags[place] in {None, said[index].tag}

    tail = 0
    while tail < min(len(said), len(plain)) and same(-1 - tail, -1 - tail):
        tail += 1
    tail = _raw_tail(pieces, said, tail)
    end_in, end_out = len(said) - tail, len(plain) - tail
    matched = _matches(said[:end_in], tags[:end_out], made[:end_out], given[:end_in])
    cover = said[end_in].from_depth if tail else (pieces[-1].to_depth if pieces else 0)
    items = _items(said, plain[:end_out], matched, made, given, cover)
    return Derived(_merged(_whole_units(items, said)), cover)


def _bytes(message: Message | None) -> bytes:
    """Equal for messages that are equal, whatever the order of their keys."""
    return encoded(_sorted(message))


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def _raw_tail(pieces: Sequence[Piece], said: Sequence[Piece], tail: int) -> int:
    """The longest end of at most ``tail`` messages that is raw without a gap and begins with a message of its own."""
    depth = pieces[-1].to_depth if pieces else 0
    best = 0
    for count in range(1, tail + 1):
        piece = said[-count]
        if not piece.is_raw or piece.to_depth != depth:
            break
        if piece.from_depth < piece.to_depth:  # not one of those that follow a node
            best = count
        depth = piece.from_depth
    return best


def _matches(
    said: Sequence[Piece], tags: Sequence[object], made: Sequence[bytes], given: Sequence[bytes]
) -> list[int | None]:
    """For each message of the output the piece that it came from, in increasing order; None for what is new."""
    by_tag = {piece.tag: index for index, piece in enumerate(said)}
    claimed = {by_tag[tag] for tag in tags if isinstance(tag, str) and tag in by_tag}
    by_bytes: dict[bytes, list[int]] = {}
    for place, data in enumerate(given):
        if place not in claimed:
            by_bytes.setdefault(data, []).append(place)
    guesses: list[int | None] = []
    last = -1
    for place, tag in enumerate(tags):
        index: int | None = by_tag.get(tag) if isinstance(tag, str) else None
        if index is None and tag is None:
            later = by_bytes.get(made[place], [])
            at = bisect_left(later, last + 1)
            index = later[at] if at < len(later) else None
        guesses.append(index)
        if index is not None:
            last = index
    return _increasing(guesses)


def _increasing(guesses: Sequence[int | None]) -> list[int | None]:
    """The longest strictly increasing choice of the guesses; the others become None."""
    ends: list[int] = []  # the smallest last value of a run of each length
    places: list[int] = []
    before = [-1] * len(guesses)
    for place, value in enumerate(guesses):
        if value is None:
            continue
        length = bisect_left(ends, value)
        before[place] = places[length - 1] if length else -1
        ends[length : length + 1] = [value]
        places[length : length + 1] = [place]
    chosen: list[int | None] = [None] * len(guesses)
    at = places[-1] if places else -1
    while at >= 0:
        chosen[at] = guesses[at]
        at = before[at]
    return chosen


def _items(
    said: Sequence[Piece],
    plain: Sequence[Message],
    matched: Sequence[int | None],
    made: Sequence[bytes],
    given: Sequence[bytes],
    cover: int,
) -> list[tuple[Item, int | None]]:
    """One item per message of the output and one per silent gap, each with the piece that it keeps as it is."""
    items: list[tuple[Item, int | None]] = []
    new: list[Message] = []
    depth = 0

    def close(gap_end: int) -> None:
        nonlocal depth
        for message in new:  # the first stands for what is missing, the others beside it
            items.append((Item("new", depth, gap_end, message), None))
            depth = gap_end
        new.clear()
        if depth < gap_end:
            items.append((Item("new", depth, gap_end), None))
            depth = gap_end

    for place, index in enumerate(matched):
        if index is None or said[index].to_depth > cover:
            new.append(plain[place])
            continue
        piece = said[index]
        close(piece.from_depth)
        equal = made[place] == given[index]
        kind: Kind = "edit" if piece.is_raw and not equal else piece.kind
        message = None if kind == "keep" else plain[place]
        items.append((Item(kind, piece.from_depth, piece.to_depth, message), index if equal else None))
        depth = piece.to_depth
    close(cover)
    return items


def _whole_units(items: Sequence[tuple[Item, int | None]], said: Sequence[Piece]) -> list[Item]:
    """A node is kept only together with all that follows it unnumbered; what is kept in part becomes literal."""
    result: list[Item] = []
    place = 0
    while place < len(items):
        item, index = items[place]
        if item.kind != "keep" or index is None:
            result.append(item)
            place += 1
            continue
        unit = 1
        while index + unit < len(said) and _follows(said[index + unit], item.to_depth):
            unit += 1
        there = [found for _, found in items[place : place + unit]]
        begins = item.from_depth < item.to_depth
        if begins and there == list(range(index, index + unit)):
            result.append(item)
            place += unit
        else:
            kind: Kind = "edit" if begins else "new"
            result.append(Item(kind, item.from_depth, item.to_depth, said[index].message))
            place += 1
    return result


def _follows(piece: Piece, depth: int) -> bool:
    return piece.is_raw and piece.from_depth == piece.to_depth == depth


def _merged(items: Sequence[Item]) -> list[Item]:
    """Neighbouring kept stretches as one; empty silent items left out."""
    result: list[Item] = []
    for item in items:
        last = result[-1] if result else None
        if last and item.kind == last.kind == "keep" and last.to_depth == item.from_depth:
            result[-1] = Item("keep", last.from_depth, item.to_depth)
        elif item.kind == "keep" or item.message is not None or item.from_depth < item.to_depth:
            result.append(item)
    return result


def problems_of(items: Sequence[Item], cover: int) -> list[str]:
    """What is wrong with a view's items as a partition of the depths up to the cover."""
    depth = 0
    for item in items:
        if item.from_depth != depth or item.to_depth < item.from_depth:
            return [f"an item covers ({item.from_depth}, {item.to_depth}] where ({depth}, …] was to follow"]
        if item.kind == "edit" and item.message is None:
            return [f"the edit of ({item.from_depth}, {item.to_depth}] has no message"]
        depth = item.to_depth
    return [] if depth == cover else [f"the items end at {depth}, and the view covers up to {cover}"]
