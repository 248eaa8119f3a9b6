"""The family of a conversation: the one that it works for or was forked from, its sub-agents and its forks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from everlong.errors import NotStored
from everlong.inspector.pages.conversation_list import ConversationRow, row_of
from everlong.store.schema import session

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["FamilyMember", "TreePage", "agents_cost", "read_tree"]

_MOST = 200
"""Conversations that a tree shows."""
_DEEPEST = 5


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A conversation of the tree and those that were begun from it."""

    row: ConversationRow
    kind: str
    children: tuple[FamilyMember, ...]

    @property
    def cost(self) -> float:
        """US dollars for it and all below it."""
        return self.row.cost + sum(child.cost for child in self.children)


@dataclass(frozen=True, slots=True)
class TreePage:
    """The tree around a conversation, from its topmost ancestor on."""

    root: FamilyMember
    current: str
    agents_cost: float
    """US dollars that the sub-agents of the current conversation cost."""
    is_cut: bool


def read_tree(store: Store, ident: str) -> TreePage:
    """Return the tree that a conversation is part of."""
    current = store.conversations.get(ident)
    top, seen = current, {current.id}
    while top.works_for and top.works_for not in seen:
        try:
            top = store.conversations.get(top.works_for)
        except NotStored:  # it was deleted
            break
        seen.add(top.id)
    reader = _Reader(store)
    root = reader.member(top.id, 0)
    return TreePage(root, current.id, reader.agents_cost(root, current.id), reader.is_cut)


def agents_cost(store: Store, ident: str) -> float:
    """Return what the sub-agents that a conversation began have cost, without those that they began themselves."""
    query = select(func.coalesce(func.sum(session.c.cost), 0.0)).where(
        session.c.tenant == store.tenant, session.c.works_for == ident, session.c.kind == "agent"
    )
    with store.database.read() as connection:
        return float(connection.execute(query).scalar_one())


class _Reader:
    """Reads the members of one family, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: set[str] = set()
        self.is_cut = False

    def member(self, ident: str, depth: int) -> FamilyMember:
        self._seen.add(ident)
        found = self._store.conversations.get(ident)
        names = [name for name in self._children_of(found.id) if name not in self._seen]
        room = max(0, _MOST - len(self._seen)) if depth < _DEEPEST else 0
        self.is_cut |= len(names) > room
        children = tuple(self.member(name, depth + 1) for name in names[:room] if name not in self._seen)
        return FamilyMember(row_of(found), found.kind, children)

    def _children_of(self, ident: str) -> list[str]:
        query = (
            select(session.c.conversation)
            .where(session.c.tenant == self._store.tenant, session.c.works_for == ident)
            .group_by(session.c.conversation)
            .order_by(func.min(session.c.started))
            .limit(_MOST + 1)
        )
        with self._store.database.read() as connection:
            return [str(name) for name in connection.execute(query).scalars()]

    def agents_cost(self, member: FamilyMember, ident: str) -> float:
        """Return what the sub-agents below a conversation cost."""
        if member.row.id == ident:
            return sum(child.cost for child in member.children if child.kind == "agent")
        return sum(self.agents_cost(child, ident) for child in member.children)
