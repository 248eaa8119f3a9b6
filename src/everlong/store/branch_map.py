"""The tree of a tenant in memory: its branches, its turns and their places.

Reads only; `everlong.store.migrations.separation` decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from everlong.store.schema import branch, node, turn


class BranchPlace(NamedTuple):
    """A message, by the branch that it is stored on."""

    branch: int
    depth: int


@dataclass(slots=True)
class KnownBranch:
    """The part of a branch's row that a conversion needs."""

    id: int
    parent: int | None
    fork_depth: int
    head: bytes
    head_depth: int
    view_id: int | None
    preamble: bytes | None
    ext_id: str | None
    root: bytes | None


class Tree:
    """The branches of a tenant."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        names = [field.name for field in fields(KnownBranch)]
        query = select(*(branch.c[name] for name in names)).where(branch.c.tenant == tenant).order_by(branch.c.id)
        self.branches = {row.id: KnownBranch(*row) for row in connection.execute(query)}
        self.forks: dict[BranchPlace, list[int]] = {}
        for one in self.branches.values():
            if one.parent is not None:
                self.forks.setdefault(BranchPlace(one.parent, one.fork_depth), []).append(one.id)

    def place(self, number: int, depth: int) -> BranchPlace:
        """Return the place at a depth on the way to the end of a branch."""
        while (one := self.branches.get(number)) is not None and one.parent is not None and depth <= one.fork_depth:
            number = one.parent
        return BranchPlace(number, depth)

    def end_of(self, number: int) -> BranchPlace:
        """Return the end of a branch."""
        return self.place(number, self.branches[number].head_depth)

    def is_on(self, place: BranchPlace, end: BranchPlace) -> bool:
        """Return whether a place is on the way to another one."""
        number, depth = end
        while True:
            if number == place.branch:
                return place.depth <= depth
            one = self.branches[number]
            depth = min(depth, one.fork_depth)
            if one.parent is None or depth < place.depth:
                return False
            number = one.parent

    def common(self, one: BranchPlace, other: BranchPlace) -> BranchPlace:
        """Return the last place that is on the way to both of two."""
        depths = dict(self.way(one))
        for number, depth in self.way(other):
            if number in depths:
                return self.place(number, min(depth, depths[number]))
        return BranchPlace(one.branch, 0)

    def way(self, end: BranchPlace) -> Iterator[tuple[int, int]]:
        """Yield the branches that lead to a place, nearest first, each with the depth up to which it does."""
        number: int | None = end.branch
        depth = end.depth
        while number is not None:
            yield number, depth
            one = self.branches[number]
            number, depth = one.parent, min(depth, one.fork_depth)

    def after(self, place: BranchPlace, end: BranchPlace) -> int:
        """Return the branch that the message after a place is on, on the way to an end behind it."""
        found = end.branch
        for number, depth in self.way(end):
            if depth <= place.depth:
                break
            found = number
        return found

    def root_of(self, number: int) -> int:
        """Return the branch that a branch comes from in the end."""
        while (parent := self.branches[number].parent) is not None:
            number = parent
        return number


@dataclass(slots=True)
class KnownTurn:
    """A turn with the place of its request."""

    id: int
    session: str | None
    place: BranchPlace
    node: bytes
    status: str
    reply: bytes | None
    echo: bytes | None
    said: BranchPlace | None
    """The place of the reply, once it is a message."""
    model: str | None
    preamble: bytes | None
    ts: float
    ended: float | None

    @property
    def end(self) -> BranchPlace:
        """The last message that it accounts for."""
        return self.place if self.said is None else self.said


def turns_of(connection: Connection, tenant: str, tree: Tree) -> list[KnownTurn]:
    """Return the turns of a tenant, oldest first."""
    query = (
        select(turn, node.c.branch.label("echo_branch"), node.c.depth.label("echo_depth"))
        .outerjoin(node, node.c.id == turn.c.echo_node)
        .where(turn.c.tenant == tenant)
        .order_by(turn.c.id)
    )
    found: list[KnownTurn] = []
    for row in connection.execute(query):
        said = None if row.echo_branch is None else BranchPlace(row.echo_branch, row.echo_depth)
        place = tree.place(row.branch, row.depth)
        found.append(
            KnownTurn(
                id=row.id,
                session=row.session,
                place=place,
                node=bytes(row.node),
                status=row.status,
                reply=_bytes(row.reply),
                echo=None if said is None else bytes(row.echo_node),
                said=said,
                model=row.model,
                preamble=_bytes(row.preamble),
                ts=row.ts,
                ended=row.ended,
            )
        )
    return found


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
