"""Carrying a view over to a fork that a client made by clearing old tool results itself.

Such a fork begins before the end of what the view covers, so it could not use the view as it is, and the whole old
conversation would be sent again. Where `everlong.store.clearing` finds that only old things are missing, the fork gets
the same view with its depths moved. It remembers where it comes from: what voids the one voids the other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, select

from everlong.store.clearing import Shift, Told, shift_of, shifted, told_by
from everlong.store.kin import branches_of_tree
from everlong.store.paths import Segment, segments_to
from everlong.store.schema import branch, view
from everlong.store.tree import Branch, Match, Request
from everlong.store.viewing import NewView, System, items_of, put_in_force, write_view
from everlong.store.views import Derived, problems_of

if TYPE_CHECKING:
    from everlong.store.store import Store

_TRIED = 4
"""So many of the newest views of a tree are looked at."""


def view_to_carry(store: Store, connection: Connection, request: Request, match: Match) -> NewView | None:
    """The view that a list should have on the fork that it becomes, if it is an older conversation, cleared."""
    if match.branch is None:
        return None
    here = segments_to(connection, match.branch, match.depth)
    sent: list[Told] = []
    for row in _views_of_tree(connection, here[0].branch):
        path = segments_to(connection, row.number, row.head_depth)
        start = _common_depth(here, path)
        if row.saw_depth <= start or start < request.start.depth:
            continue
        entries = store.reader.entries(connection, path, start, row.head_depth)
        if any(entry.forgotten for entry in entries):
            continue
        sent = sent or [told for one in request.messages for told in told_by(request.chain, request.clean(one))]
        stored = [told for entry in entries if entry.id for told in told_by(request.chain, entry.message)]
        target = max(row.cover_depth, row.saw_depth)
        shift = shift_of(stored, sent[start - request.start.depth :], start, row.cover_depth, target)
        carried = None if shift is None else _moved(store, connection, request, row, shift)
        if carried is not None:
            return carried
    return None


def carry(store: Store, connection: Connection, carried: NewView, to: Branch) -> None:
    """Put a carried view in force on the fork, in the transaction that made it; not where it has a better one."""
    row = connection.execute(
        select(branch.c.view_id, branch.c.epoch, view.c.cover_depth)
        .outerjoin(view, view.c.id == branch.c.view_id)
        .where(branch.c.id == to.id)
    ).one()
    if row.cover_depth is None or row.cover_depth < carried.derived.cover_depth:
        ident = write_view(connection, store.database, store.tenant, to.id, carried, row.view_id, time.time())
        put_in_force(connection, to.id, ident, row.epoch)


def _views_of_tree(connection: Connection, root: int) -> list[Row[Any]]:
    """The newest views in force on the branches of a tree."""
    query = (
        select(view, branch.c.id.label("number"), branch.c.head_depth)
        .join(branch, branch.c.view_id == view.c.id)
        .where(branch.c.id.in_(branches_of_tree(root)), view.c.state != "void", view.c.saw_depth <= branch.c.head_depth)
        .order_by(view.c.id.desc(), branch.c.id.desc())
        .limit(_TRIED)
    )
    return list(connection.execute(query).all())


def _common_depth(one: list[Segment], other: list[Segment]) -> int:
    """How deep two paths are the same."""
    depth = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.branch != theirs.branch:
            break
        depth = min(mine.high, theirs.high)
        if mine.high != theirs.high:
            break
    return depth


def _moved(store: Store, connection: Connection, request: Request, row: Row[Any], shift: Shift) -> NewView | None:
    items = shifted(items_of(connection, store.reader, row.id), shift)
    cover, saw = shift(row.cover_depth), shift(shift.until)
    ends = {request.start.depth + end for end in request.trace.ends}
    places = {depth for item in items for depth in (item.from_depth, item.to_depth) if depth > shift.start}
    if problems_of(items, cover) or not (places | ({cover} if cover > shift.start else set())) <= ends:
        return None  # the client cut its messages elsewhere
    replaced = None
    if row.preamble is not None:
        replaced = store.reader.values(connection, [bytes(row.preamble)])[bytes(row.preamble)]["system"]
    system = System([], row.system_suffix, replaced)
    return NewView(Derived(items, cover), system, saw, row.profile, row.tokens, row.state, origin=row.id)
