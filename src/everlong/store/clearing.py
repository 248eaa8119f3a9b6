"""Clients that clear old tool results themselves: what they send is the old conversation with parts missing.

Compares, block by block, what is stored with what is sent. Where everything that differs was removed, or is a result
that became shorter, each depth of the old conversation has its place in the new one. Knows messages and depths only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

from everlong.model import HashChain, Message, blocks_of, calls_of, parts_of
from everlong.store.content import encoded
from everlong.store.views import Item


class Told(NamedTuple):
    """One block: who said it, its hash, what kind it is, and of a result the call's id and its size."""

    side: str
    hash: bytes
    kind: Literal["text", "call", "result"]
    call: str = ""
    size: int = 0


class Shift(NamedTuple):
    """Where the depths of the old conversation are in the new one."""

    start: int
    """Up to here both are the same."""
    kept: list[int]
    """Depths of the old conversation after the start whose blocks are still there, in order."""
    until: int
    """The depth of the old conversation up to which it was compared."""

    def __call__(self, depth: int) -> int:
        """The new depth of an old one."""
        return depth if depth <= self.start else self.start + bisect_right(self.kept, depth)


def told_by(chain: HashChain, message: Message) -> list[Told]:
    """The blocks of a message."""
    hashes = chain.trace([message]).blocks
    sides = [block.side for block in blocks_of(message)]
    found: list[tuple[Literal["text", "call", "result"], str, int]] = []
    if message.get("role") == "tool":
        found.append(("result", str(message.get("tool_call_id") or ""), len(encoded(message.get("content")))))
    else:
        parts = parts_of(message)
        if message.get("role") == "assistant":
            parts = sorted(parts, key=lambda part: part.get("type") == "tool_use")  # as blocks are counted
        for part in parts:
            found += [_kind(part)] * len(blocks_of({"role": message.get("role"), "content": [part]}))
        found += [("call", call.id, 0) for call in calls_of(message)]
    return [Told(side, made, *kind) for side, made, kind in zip(sides, hashes, found, strict=False)]


def _kind(part: Message) -> tuple[Literal["text", "call", "result"], str, int]:
    if part.get("type") == "tool_use":
        return "call", str(part.get("id") or ""), 0
    if part.get("type") == "tool_result":
        return "result", str(part.get("tool_use_id") or ""), len(encoded(part.get("content")))
    return "text", "", 0


def shift_of(stored: Sequence[Told], sent: Sequence[Told], start: int, cover: int, target: int) -> Shift | None:
    """How ``sent`` follows from ``stored``, both after a common start, at least up to a target depth.

    None where something before the target was added or reworded, or where words were removed and the conversation
    after the cover is not all there: then it went another way, rather than lost what was old.
    """
    kept: list[int] = []
    place = 0
    for block in sent:
        at = next((at for at in range(place, len(stored)) if _is_left_of(block, stored[at])), None)
        if at is None:
            break
        kept.append(start + at + 1)
        place = at + 1
    if not kept or kept[-1] < target:
        return None
    there = set(kept)
    gone = [told for at, told in enumerate(stored, start + 1) if at <= target and at not in there]
    if any(told.kind == "text" for told in gone):
        tail = range(cover + 1, start + len(stored) + 1)
        if not tail or not there.issuperset(tail):
            return None
    return Shift(start, kept, target)


def _is_left_of(sent: Told, stored: Told) -> bool:
    """Whether a block is a stored one, or what is left of a stored result."""
    if sent.hash == stored.hash:
        return sent.side == stored.side
    is_result = sent.kind == stored.kind == "result"
    return is_result and bool(sent.call) and sent.call == stored.call and sent.size < stored.size


def shifted(items: Sequence[Item], shift: Shift) -> list[Item]:
    """The items of a view over the old conversation as items over the new one."""
    moved: list[Item] = []
    for item in items:
        low, high = shift(item.from_depth), shift(item.to_depth)
        is_empty = low == high
        if is_empty and (item.kind != "new" or item.message is None):
            continue  # what it kept or edited was removed
        moved.append(Item(item.kind, low, high, item.message))
    return moved
