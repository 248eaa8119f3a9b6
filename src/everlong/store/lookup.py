"""Finding a stored message by the beginning of its id, with where and when it was said, and what came next."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select

from everlong.errors import NotStored
from everlong.store.schema import node

if TYPE_CHECKING:
    from everlong.store.store import Store

SHORTEST = 8
"""The fewest digits by which a message can be named."""


class Found(NamedTuple):
    """A stored message: its id, who said it, when, in which session and at which turn of it."""

    node: bytes
    role: str
    at: float
    session: str | None
    turn: int


def find_message(store: Store, ident: str) -> Found:
    """The message whose id begins with some hexadecimal digits; `NotStored` where there is none, or several."""
    digits = ident.strip().lower()
    if not SHORTEST <= len(digits) <= 32 or not set(digits) <= set(string.hexdigits):
        raise NotStored(f"{ident!r} is no id of a message; one has {SHORTEST} to 32 hexadecimal digits")
    low, high = bytes.fromhex(digits.ljust(32, "0")), bytes.fromhex(digits.ljust(32, "f"))
    query = select(node.c.id, node.c.role, node.c.ts, node.c.branch, node.c.depth).where(
        node.c.tenant == store.tenant, node.c.id.between(low, high)
    )
    with store.database.read() as connection:
        rows = connection.execute(query.limit(2)).all()
        if not rows:
            raise NotStored(f"there is no message with the id {ident!r} in {store.database.backend.where}")
        if len(rows) > 1:
            raise NotStored(f"several messages have an id that begins with {ident!r}; give more of it")
        row = rows[0]
        sessions = store.searcher.corpus.sessions(connection, store.tenant, [row.branch])
    session = None
    for one in sessions:
        if one.from_depth < row.depth and (one.to_depth is None or row.depth <= one.to_depth):
            session = one
    turn = row.depth - (session.from_depth if session else 0)
    return Found(bytes(row.id), row.role, row.ts, session.id if session else None, turn)


def latest_request(store: Store, session: str) -> bytes | None:
    """The newest message of the user on a session's branch; None where there is none."""
    number = store.sessions.get(session).branch
    if number is None:
        return None
    query = select(node.c.id).where(node.c.branch == number, node.c.role == "user").order_by(node.c.depth.desc())
    with store.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar()
    return None if found is None else bytes(found)


def message_after(store: Store, ident: bytes) -> bytes | None:
    """The message that follows another one, on the same branch if it goes on there."""
    above = node.alias()
    query = (
        select(node.c.id)
        .join(above, above.c.id == node.c.parent)
        .where(above.c.id == ident, node.c.tenant == store.tenant)
        .order_by((node.c.branch == above.c.branch).desc(), node.c.seq)
    )
    with store.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar()
    return None if found is None else bytes(found)
