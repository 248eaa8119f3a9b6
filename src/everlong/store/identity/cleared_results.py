"""Cleared tool results: a client that drops old results sends a fork, to which the view in force is carried over.

Such a fork begins before the end of what the view covers. It could not use the view as it is, and the whole old
conversation would be sent again. Where only old results are missing, the fork gets the same view with its depths moved.
The view remembers its origin: what voids the one voids the other.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, or_, select

from everlong.model import HashChain, Message, blocks_of, calls_of, parts_of
from everlong.store.content import encoded
from everlong.store.paths import Segment, branches_of_tree, segments_to
from everlong.store.schema import branch, view
from everlong.store.tree import Branch, Match, RecordRequest
from everlong.store.views import (
    DerivedView,
    NewView,
    SystemMessages,
    ViewItem,
    items_of,
    problems_of,
    put_in_force,
    write_view,
)

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


_MOST_VIEWS = 4
"""The newest views that are considered."""
_FEW_BLOCKS = 4
"""For a list with no more new blocks, forks are not considered: very many conversations may begin alike."""
MOST_BLOCKS_PER_LEFT = 32
"""A client that clears leaves at least one block of so many; a shorter list is another conversation."""


class ToldBlock(NamedTuple):
    """One block: its side, hash and kind, and of a result the call's id and its size."""

    side: str
    hash: bytes
    kind: Literal["text", "call", "result"]
    call: str = ""
    size: int = 0


class Shift(NamedTuple):
    """A mapping from depths of the old conversation to depths of the new one."""

    start: int
    """Up to here both are the same."""
    kept: list[int]
    """Depths of the old conversation after the start whose blocks are still there, in order."""
    until: int
    """The depth of the old conversation up to which it was compared."""

    def __call__(self, depth: int) -> int:
        """Return the new depth of an old one."""
        return depth if depth <= self.start else self.start + bisect_right(self.kept, depth)


def blocks_told_by(chain: HashChain, message: Message) -> list[ToldBlock]:
    """Return the blocks of a message."""
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
    return [ToldBlock(side, made, *kind) for side, made, kind in zip(sides, hashes, found, strict=False)]


def _kind(part: Message) -> tuple[Literal["text", "call", "result"], str, int]:
    if part.get("type") == "tool_use":
        return "call", str(part.get("id") or ""), 0
    if part.get("type") == "tool_result":
        return "result", str(part.get("tool_use_id") or ""), len(encoded(part.get("content")))
    return "text", "", 0


def find_shift(
    stored: Sequence[ToldBlock], sent: Sequence[ToldBlock], start: int, cover: int, target: int
) -> Shift | None:
    """Return how ``sent`` follows from ``stored``, both after a common start, at least up to a target depth.

    Returns None for a conversation that went another way rather than lost old results: where something before the
    target was added or reworded, or where words were removed and the part after the cover is not complete.
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


def _is_left_of(sent: ToldBlock, stored: ToldBlock) -> bool:
    """Return whether a block is a stored one, or what is left of a stored result."""
    if sent.hash == stored.hash:
        return sent.side == stored.side
    is_result = sent.kind == stored.kind == "result"
    return is_result and bool(sent.call) and sent.call == stored.call and sent.size < stored.size


def shift_items(items: Sequence[ViewItem], shift: Shift) -> list[ViewItem]:
    """Return the items of a view over the old conversation as items over the new one."""
    moved: list[ViewItem] = []
    for item in items:
        low, high = shift(item.from_depth), shift(item.to_depth)
        is_empty = low == high
        if is_empty and (item.kind != "new" or item.message is None):
            continue  # what it kept or edited was removed
        moved.append(ViewItem(item.kind, low, high, item.message))
    return moved


def _newest_views(where: ColumnElement[bool]) -> Select[Any]:
    return (
        select(view, branch.c.id.label("number"), branch.c.head_depth)
        .join(branch, branch.c.view_id == view.c.id)
        .where(where, view.c.state != "void", view.c.saw_depth <= branch.c.head_depth)
        .order_by(view.c.id.desc(), branch.c.id.desc())
        .limit(_MOST_VIEWS)
    )


# Built once: building a statement takes several times as long as running it.
_IS_ON_PATH = branch.c.id.in_(bindparam("to", expanding=True))
_VIEWS_ON_PATH = _newest_views(_IS_ON_PATH)
_VIEWS_NEARBY = _newest_views(
    or_(_IS_ON_PATH, branch.c.id.in_(branches_of_tree(bindparam("last"), bindparam("beyond"))))
)


def view_to_carry(core: StoreCore, connection: Connection, request: RecordRequest, match: Match) -> NewView | None:
    """Return the view for the fork that a list becomes, if it is a stored conversation without old results."""
    if match.branch is None:
        return None
    here = segments_to(connection, match.branch, match.depth)
    sent: list[ToldBlock] = []
    new = request.start.depth + len(request.trace.ids) - match.depth
    for row in _views_near(connection, here, match.depth if new > _FEW_BLOCKS else None):
        path = segments_to(connection, row.number, row.head_depth)
        start = _common_depth(here, path)
        if row.saw_depth <= start or start < request.start.depth:
            continue
        if row.head_depth - match.depth > MOST_BLOCKS_PER_LEFT * (new + 1):
            continue
        entries = core.reader.entries(connection, path, start, row.head_depth)
        if any(entry.forgotten for entry in entries):
            continue
        sent = sent or [told for one in request.messages for told in blocks_told_by(request.chain, request.clean(one))]
        stored = [told for entry in entries if entry.id for told in blocks_told_by(request.chain, entry.message)]
        target = max(row.cover_depth, row.saw_depth)
        shift = find_shift(stored, sent[start - request.start.depth :], start, row.cover_depth, target)
        carried = None if shift is None else _shift_view(core, connection, request, row, shift)
        if carried is not None:
            return carried
    return None


def carry(core: StoreCore, connection: Connection, carried: NewView, to: Branch) -> None:
    """Put a carried view in force on the fork that the transaction has made, unless it has a better one."""
    row = connection.execute(
        select(branch.c.view_id, branch.c.epoch, view.c.cover_depth)
        .outerjoin(view, view.c.id == branch.c.view_id)
        .where(branch.c.id == to.id)
    ).one()
    if row.cover_depth is None or row.cover_depth < carried.derived.cover_depth:
        ident = write_view(core, connection, to.id, carried, row.view_id, time.time())
        put_in_force(connection, to.id, ident, row.epoch)


def _views_near(connection: Connection, here: list[Segment], beyond: int | None) -> list[Row[Any]]:
    """Return the newest views in force on the branches of a path, and on those that leave it beyond a depth."""
    to = [part.branch for part in here]
    if beyond is None:
        return list(connection.execute(_VIEWS_ON_PATH, {"to": to}).all())
    return list(connection.execute(_VIEWS_NEARBY, {"to": to, "last": to[-1], "beyond": beyond}).all())


def _common_depth(one: list[Segment], other: list[Segment]) -> int:
    """Return the depth up to which two paths are the same."""
    depth = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.branch != theirs.branch:
            break
        depth = min(mine.high, theirs.high)
        if mine.high != theirs.high:
            break
    return depth


def _shift_view(
    core: StoreCore, connection: Connection, request: RecordRequest, row: Row[Any], shift: Shift
) -> NewView | None:
    items = shift_items(items_of(connection, core.reader, row.id), shift)
    cover, saw = shift(row.cover_depth), shift(shift.until)
    ends = {request.start.depth + end for end in request.trace.ends}
    places = {depth for item in items for depth in (item.from_depth, item.to_depth) if depth > shift.start}
    if problems_of(items, cover) or not (places | ({cover} if cover > shift.start else set())) <= ends:
        return None  # the client cut its messages elsewhere
    replaced = None
    if row.preamble is not None:
        replaced = core.reader.values(connection, [bytes(row.preamble)])[bytes(row.preamble)]["system"]
    system = SystemMessages([], row.system_suffix, replaced)
    return NewView(DerivedView(items, cover), system, saw, row.profile, row.state, origin=row.id)
