"""The collection of garbage: everything that no session leads to leaves the store, while others go on writing.

Branches that are not needed are found by reading alone. They are then cut off from their ends, some messages in each
transaction, and each transaction looks again whether the branch is still unneeded. What is left if this is interrupted
is a shorter branch, which the next collection removes.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Column, Connection, delete, exists, func, select, union_all, update

from everlong.store import leases
from everlong.store.database import ShortWrites, in_batches
from everlong.store.paths import segments_to
from everlong.store.schema import (
    annex,
    branch,
    compaction,
    content,
    node,
    pending,
    session,
    summary,
    turn,
    view,
    view_item,
)
from everlong.store.upkeep.references import USERS_OF_CONTENT, drop_unused, remove

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

DAY = 86_400.0

MESSAGES_AT_ONCE = 32
"""The most messages that are removed in one transaction."""

CONTENTS_AT_ONCE = 200
"""The most contents that are removed in one transaction."""


class CollectedGarbage(NamedTuple):
    """The number of branches, messages and contents that a collection removed."""

    branches: int
    messages: int
    contents: int


class _DoomedBranch(NamedTuple):
    """A branch of which no more is needed than up to a depth, or nothing at all."""

    id: int
    head: bytes
    keep: int | None


def collect_garbage(core: StoreCore, min_age: float = DAY, released: Collection[int] = frozenset()) -> CollectedGarbage:
    """Remove branches, or the ends of branches, that no session leads to and that were begun long enough ago.

    Branches that are ``released`` go whatever their age: those of a conversation that was deleted on purpose.
    """
    now = time.time()
    with core.database.read() as connection:
        needed = _needed_depths(core, connection, now - min_age, released)
        query = select(branch.c.id, branch.c.head, branch.c.head_depth).where(branch.c.tenant == core.tenant)
        doomed = [
            _DoomedBranch(row.id, bytes(row.head), needed.get(row.id))
            for row in connection.execute(query.order_by(branch.c.id.desc()))  # forks before what they fork from
            if needed.get(row.id, -1) < row.head_depth
        ]
    branches = messages = 0
    steps = ShortWrites(core.database, MESSAGES_AT_ONCE)
    for one in doomed:
        is_whole, count = _cut_in_steps(core, one, steps)
        branches, messages = branches + is_whole, messages + count
    if messages:
        _clear_echoes(core)
    contents = _delete_unused_contents(core)
    core.database.write(lambda connection: leases.sweep(connection, now - DAY))
    purge_search(core)
    return CollectedGarbage(branches, messages, contents)


def _needed_depths(core: StoreCore, connection: Connection, before: float, released: Collection[int]) -> dict[int, int]:
    """Return the depth to which sessions, their turns, young branches and the forks of those need each branch."""
    held = select(branch.c.id, branch.c.head_depth).where(branch.c.tenant == core.tenant)
    with_session = held.where(branch.c.id.in_(select(session.c.branch).where(session.c.tenant == core.tenant)))
    # What was asked and answered in a session stays with it: also what was taken back, and replies that broke off.
    of_session = turn.c.tenant == core.tenant, turn.c.session.is_not(None)
    asked = select(turn.c.branch, func.max(turn.c.depth)).where(*of_session).group_by(turn.c.branch)
    said = select(node.c.branch, func.max(node.c.depth)).join(turn, turn.c.echo_node == node.c.id).where(*of_session)
    young = connection.execute(held.where(branch.c.ts >= before)).all()
    tops: dict[int, int] = {number: depth for number, depth in young if number not in released}
    for number, depth in connection.execute(union_all(with_session, asked, said.group_by(node.c.branch))):
        tops[number] = max(depth, tops.get(number, 0))
    forks = dict(
        connection.execute(
            select(branch.c.id, branch.c.parent).where(branch.c.tenant == core.tenant, branch.c.parent.is_not(None))
        ).all()
    )
    needed: dict[int, int] = {}
    for number, depth in tops.items():
        if number not in forks:  # most branches were forked from none
            needed[number] = max(depth, needed.get(number, 0))
            continue
        for part in segments_to(connection, number, depth):
            needed[part.branch] = max(part.high, needed.get(part.branch, 0))
    _need_origins(core, connection, needed)
    return needed


def _need_origins(core: StoreCore, connection: Connection, needed: dict[int, int]) -> None:
    """Add the depths that a view saw, as long as a needed branch repeats the view: they may have to be forgotten."""
    source = view.alias()
    repeated = select(view.c.branch, source.c.branch.label("source"), source.c.saw_depth).join(
        source, source.c.id == view.c.origin
    )
    waiting = connection.execute(repeated.where(view.c.tenant == core.tenant)).all()
    while due := [row for row in waiting if row.branch in needed]:
        waiting = [row for row in waiting if row.branch not in needed]
        for row in due:
            for part in segments_to(connection, row.source, row.saw_depth):
                needed[part.branch] = max(part.high, needed.get(part.branch, 0))


def _cut_in_steps(core: StoreCore, one: _DoomedBranch, steps: ShortWrites) -> tuple[bool, int]:
    """Cut off the end of a branch, some messages in each transaction; return whether all of it went, and how many."""
    removed, head = 0, one.head
    while True:
        count, left, is_whole = steps.write(partial(_cut_some, core, one, head, steps.count))
        removed += count
        if left is None:
            return is_whole, removed
        head = left


def _cut_some(
    core: StoreCore, one: _DoomedBranch, head: bytes, most: int, connection: Connection
) -> tuple[int, bytes | None, bool]:
    """Remove the last messages of a branch; return how many, its new head if more are to go, and if all of it went."""
    query = core.database.backend.locked(select(branch).where(branch.c.id == one.id))
    row = connection.execute(query).first()
    if row is None or bytes(row.head) != head or _is_used_again(connection, one):
        return 0, None, False
    low = row.fork_depth if one.keep is None else one.keep
    query = select(node.c.depth).where(node.c.branch == one.id, node.c.depth > low)
    depths = connection.execute(query.order_by(node.c.depth.desc()).limit(most + 1)).scalars().all()
    if len(depths) <= most:
        return _cut_branch(core, connection, row, one.keep), None, one.keep is None
    count = _cut_branch(core, connection, row, depths[-1])
    query = select(branch.c.head).where(branch.c.id == one.id)
    return count, bytes(connection.execute(query).scalar_one()), False


def _is_used_again(connection: Connection, one: _DoomedBranch) -> bool:
    """Return whether somebody has begun to need a doomed part of a branch: a session, a turn or a fork."""
    keep = -1 if one.keep is None else one.keep
    users = (
        select(session.c.id).where(session.c.branch == one.id),
        select(turn.c.id).where(turn.c.branch == one.id, turn.c.depth > keep, turn.c.session.is_not(None)),
        select(branch.c.id).where(branch.c.parent == one.id, branch.c.fork_depth > keep),
    )
    return any(connection.execute(query.limit(1)).first() is not None for query in users)


def _cut_branch(core: StoreCore, connection: Connection, row: Any, keep: int | None) -> int:
    """Remove a branch's nodes below a depth, or all of it, with everything that belongs to them."""
    end = row.fork_depth if keep is None else keep
    seqs = list(connection.execute(select(node.c.seq).where(node.c.branch == row.id, node.c.depth > end)).scalars())
    # Forks of an earlier place may still show a view that knows nothing beyond it.
    views = list(connection.execute(select(view.c.id).where(view.c.branch == row.id, view.c.saw_depth > end)).scalars())
    items = select(view_item.c.seq).where(view_item.c.view.in_(views), view_item.c.digest.is_not(None))
    remove_from_search(core, connection, [*seqs, *(-seq for seq in connection.execute(items).scalars())])
    shown = update(branch).where(branch.c.view_id.in_(views))
    connection.execute(shown.values(view_id=None, epoch=branch.c.epoch + 1))
    remove(connection, view, view.c.id.in_(views))
    low = -1 if keep is None else keep
    for column in (node.c.depth, turn.c.depth, summary.c.to_depth):
        remove(connection, column.table, column.table.c.branch == row.id, column > low)
    connection.execute(delete(annex).where(annex.c.branch == row.id, annex.c.depth >= low))
    if keep is None:
        remove(connection, compaction, compaction.c.branch == row.id, compaction.c.session.is_(None))
        connection.execute(delete(branch).where(branch.c.id == row.id))
    else:
        head = connection.execute(select(node.c.id).where(node.c.branch == row.id, node.c.depth == keep)).scalar_one()
        connection.execute(update(branch).where(branch.c.id == row.id).values(head=head, head_depth=keep))
    return len(seqs)


def _clear_echoes(core: StoreCore) -> None:
    """Let turns no longer name replies that were removed; no index finds them one by one."""
    lost = turn.c.echo_node.is_not(None), ~exists().where(node.c.id == turn.c.echo_node)
    with core.database.read() as connection:  # a message that is gone does not come back under the same turn
        turns = connection.execute(select(turn.c.id).where(turn.c.tenant == core.tenant, *lost)).scalars().all()
    for some in in_batches(turns):
        statement = update(turn).where(turn.c.id.in_(some), *lost).values(echo_node=None)
        core.database.write(partial(Connection.execute, statement=statement))


# -- contents ----------------------------------------------------------------------------------------------------------

_ADDED = (node.c.digest, summary.c.digest, view_item.c.digest)
"""Users of a content that do not change, except that it is taken away: new ones have the highest numbers."""


def _delete_unused_contents(core: StoreCore) -> int:
    """Delete contents that nothing uses; found by reading, and looked up again before they go."""
    with core.database.read() as connection:
        # For NOT IN, PostgreSQL goes through all users for each content where they do not fit its memory.
        used = (select(column).where(column.is_not(None)) for column in USERS_OF_CONTENT)
        query = select(content.c.digest).where(content.c.tenant == core.tenant).except_(*used)
        unused = [bytes(digest) for digest in connection.execute(query).scalars()]
        newest: dict[Column[Any], int] = {}
        if core.database.backend.name == "sqlite":  # on a server, older numbers may not be committed yet
            for column in _ADDED:
                newest[column] = connection.execute(select(func.max(column.table.c.seq))).scalar() or 0
    deleted, steps = 0, ShortWrites(core.database, CONTENTS_AT_ONCE)
    while unused:
        some, unused = unused[: steps.count], unused[steps.count :]
        deleted += steps.write(partial(drop_unused, digests=some, after=newest))
    return deleted


# -- the search index --------------------------------------------------------------------------------------------------


def remove_from_search(core: StoreCore, connection: Connection, seqs: list[int]) -> None:
    """Take documents out of the index, and off the list of those that wait for it, while their contents still exist.

    Their terms stand in the index's own pages until `purge_search`, which follows the transaction.
    """
    from everlong.store.search.searcher import index_for  # noqa: PLC0415 - most who open a store search nothing

    index_for(core.database).forget(connection, seqs)
    for some in in_batches(seqs):
        connection.execute(delete(pending).where(pending.c.seq.in_(some)))


def purge_search(core: StoreCore) -> None:
    """Leave no trace of removed documents in the pages of the index; others can write meanwhile.

    Goes on with a purge that was interrupted.
    """
    from everlong.store.search.searcher import index_for  # noqa: PLC0415 - as above

    index_for(core.database).purge()
