"""Carrying a view over to a fork that a client made by clearing old tool results itself.

Such a fork begins before the end of what the view covers, so it could not use the view as it is, and the whole old
conversation would be sent again. Where `everlong.store.clearing` finds that only old things are missing, the fork gets
the same view with its depths moved. It remembers where it comes from: what voids the one voids the other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, or_, select

from everlong.store.clearing import Shift, Told, shift_of, shifted, told_by
from everlong.store.kin import branches_of_tree
from everlong.store.paths import Segment, segments_to
from everlong.store.schema import branch, view
from everlong.store.tree import Branch, Match, Request
from everlong.store.viewing import NewView, System, items_of, put_in_force, write_view
from everlong.store.views import Derived, problems_of

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

_TRIED = 4
"""So many of the newest views are looked at."""
_FEW = 4
"""For a list with no more new blocks, forks are not looked through: very many conversations may begin alike."""
_THINNED = 32
"""Of so many blocks a client that clears leaves one, at least; a shorter list is another conversation."""


def _newest(where: ColumnElement[bool]) -> Select[Any]:
    return (
        select(view, branch.c.id.label("number"), branch.c.head_depth)
        .join(branch, branch.c.view_id == view.c.id)
        .where(where, view.c.state != "void", view.c.saw_depth <= branch.c.head_depth)
        .order_by(view.c.id.desc(), branch.c.id.desc())
        .limit(_TRIED)
    )


# Made once: to put a statement together takes several times as long as to run it.
_IS_LEADING = branch.c.id.in_(bindparam("to", expanding=True))
_LEADING = _newest(_IS_LEADING)
_PASSING = _newest(or_(_IS_LEADING, branch.c.id.in_(branches_of_tree(bindparam("last"), bindparam("beyond")))))


def view_to_carry(core: StoreCore, connection: Connection, request: Request, match: Match) -> NewView | None:
    """The view that a list should have on the fork that it becomes, if it is an older conversation, cleared."""
    if match.branch is None:
        return None
    here = segments_to(connection, match.branch, match.depth)
    sent: list[Told] = []
    new = request.start.depth + len(request.trace.ids) - match.depth
    for row in _views_near(connection, here, match.depth if new > _FEW else None):
        path = segments_to(connection, row.number, row.head_depth)
        start = _common_depth(here, path)
        if row.saw_depth <= start or start < request.start.depth:
            continue
        if row.head_depth - match.depth > _THINNED * (new + 1):
            continue
        entries = core.reader.entries(connection, path, start, row.head_depth)
        if any(entry.forgotten for entry in entries):
            continue
        sent = sent or [told for one in request.messages for told in told_by(request.chain, request.clean(one))]
        stored = [told for entry in entries if entry.id for told in told_by(request.chain, entry.message)]
        target = max(row.cover_depth, row.saw_depth)
        shift = shift_of(stored, sent[start - request.start.depth :], start, row.cover_depth, target)
        carried = None if shift is None else _moved(core, connection, request, row, shift)
        if carried is not None:
            return carried
    return None


def carry(core: StoreCore, connection: Connection, carried: NewView, to: Branch) -> None:
    """Put a carried view in force on the fork, in the transaction that made it; not where it has a better one."""
    row = connection.execute(
        select(branch.c.view_id, branch.c.epoch, view.c.cover_depth)
        .outerjoin(view, view.c.id == branch.c.view_id)
        .where(branch.c.id == to.id)
    ).one()
    if row.cover_depth is None or row.cover_depth < carried.derived.cover_depth:
        ident = write_view(connection, core.database, core.tenant, to.id, carried, row.view_id, time.time())
        put_in_force(connection, to.id, ident, row.epoch)


def _views_near(connection: Connection, here: list[Segment], beyond: int | None) -> list[Row[Any]]:
    """The newest views in force on the branches that lead to a place, and on those that lead beyond a depth there."""
    to = [part.branch for part in here]
    if beyond is None:
        return list(connection.execute(_LEADING, {"to": to}).all())
    return list(connection.execute(_PASSING, {"to": to, "last": to[-1], "beyond": beyond}).all())


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


def _moved(core: StoreCore, connection: Connection, request: Request, row: Row[Any], shift: Shift) -> NewView | None:
    items = shifted(items_of(connection, core.reader, row.id), shift)
    cover, saw = shift(row.cover_depth), shift(shift.until)
    ends = {request.start.depth + end for end in request.trace.ends}
    places = {depth for item in items for depth in (item.from_depth, item.to_depth) if depth > shift.start}
    if problems_of(items, cover) or not (places | ({cover} if cover > shift.start else set())) <= ends:
        return None  # the client cut its messages elsewhere
    replaced = None
    if row.preamble is not None:
        replaced = core.reader.values(connection, [bytes(row.preamble)])[bytes(row.preamble)]["system"]
    system = System([], row.system_suffix, replaced)
    return NewView(Derived(items, cover), system, saw, row.profile, row.tokens, row.state, origin=row.id)
