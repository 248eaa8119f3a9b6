"""Who else is in the same tree: the branches that share a conversation's beginning, and the sessions on them.

Knows the tables of branches and sessions. Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, or_, select

from everlong.store.paths import Segment, segments_to
from everlong.store.schema import branch, session


def branches_of_tree(root: int | BindParameter[int], forked_from: int | BindParameter[int] = 0) -> Select[tuple[int]]:
    """The numbers of a branch and of all that were forked from it at a depth or beyond, directly or not."""
    tree = select(branch.c.id).where(branch.c.id == root).cte("tree", recursive=True)
    forks = select(branch.c.id).where(branch.c.parent == tree.c.id, branch.c.fork_depth >= forked_from)
    return select(tree.union_all(forks).c.id)


def sessions_along(connection: Connection, tenant: str, path: Sequence[Segment]) -> list[Row[Any]]:
    """The sessions on the branches of a path and on the forks of its last one, newest first."""
    on_it = session.c.branch.in_([part.branch for part in path])
    beyond = session.c.branch.in_(branches_of_tree(path[-1].branch))
    query = select(session).where(session.c.tenant == tenant, or_(on_it, beyond))
    return list(connection.execute(query.order_by(session.c.started.desc(), session.c.id.desc())).all())


def stretch_of(connection: Connection, row: Row[Any]) -> list[Segment]:
    """The stretches of branches that a session shows."""
    end = row.to_depth
    if end is None:
        end = connection.execute(select(branch.c.head_depth).where(branch.c.id == row.branch)).scalar() or 0
    parts = segments_to(connection, row.branch, end)
    return [part._replace(low=max(part.low, row.from_depth)) for part in parts if part.high > row.from_depth]
