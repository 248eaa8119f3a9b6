"""Finding a stored message by the beginning of its id, with where and when it was said, and what came next."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Row, select

from everlong.errors import NotStored
from everlong.store.schema import alias, node
from everlong.store.sessions import Sessions
from everlong.store.shown_path import Place, locate

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

SHORTEST = 8
"""The fewest digits by which a message can be named."""


class Found(NamedTuple):
    """A stored message: its id, who said it, when, in which conversation and at which turn of it."""

    node: bytes
    role: str
    at: float
    session: str | None
    turn: int


def find_message(core: StoreCore, ident: str) -> Found:
    """The message whose id begins with some hexadecimal digits; `NotStored` where there is none, or several."""
    digits = ident.strip().lower()
    if not SHORTEST <= len(digits) <= 32 or not set(digits) <= set(string.hexdigits):
        raise NotStored(f"{ident!r} is no id of a message; one has {SHORTEST} to 32 hexadecimal digits")
    low, high = bytes.fromhex(digits.ljust(32, "0")), bytes.fromhex(digits.ljust(32, "f"))
    with core.database.read() as connection:
        rows = _matching(connection, core.tenant, low, high)
        if not rows:
            raise NotStored(f"there is no message with the id {ident!r} in {core.database.backend.where}")
        if len(rows) > 1:
            raise NotStored(f"several messages have an id that begins with {ident!r}; give more of it")
        row = rows[0]
        place = Place(row.branch, row.depth, bytes(row.id))
        where = locate(connection, core.tenant, [place]).get(place)
    session, turn = (None, row.depth) if where is None else (where.conversation, where.turn)
    return Found(bytes(row.id), row.role, row.ts, session, turn)


def _matching(connection: Connection, tenant: str, low: bytes, high: bytes) -> Sequence[Row[Any]]:
    """Return the messages with an id between two; where there is none, those that are known by such a one as well."""
    mine = select(node).where(node.c.tenant == tenant).order_by(node.c.seq)
    rows = connection.execute(mine.where(node.c.id.between(low, high)).limit(2)).all()
    if rows:
        return rows
    # Ids under which messages were known before their conversation got a root of its own.
    marked = connection.execute(mine.where(node.c.mark.between(low, high))).all()
    others = [(bytes(row.mark), row) for row in marked]
    aliases = connection.execute(select(alias).where(alias.c.tenant == tenant, alias.c.id.between(low, high))).all()
    for one in aliases:
        others += [(bytes(one.id), row) for row in connection.execute(mine.where(node.c.id == one.node))]
    others.sort(key=lambda other: other[1].seq)
    first = dict(reversed(others))
    return list(first.values())


def latest_request(core: StoreCore, session: str) -> bytes | None:
    """The newest message of the user on a session's branch; None where there is none."""
    number = Sessions(core).get(session).branch
    if number is None:
        return None
    query = select(node.c.id).where(node.c.branch == number, node.c.role == "user").order_by(node.c.depth.desc())
    with core.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar()
    return None if found is None else bytes(found)


def message_after(core: StoreCore, ident: bytes) -> bytes | None:
    """The message that follows another one, on the same branch if it goes on there."""
    above = node.alias()
    query = (
        select(node.c.id)
        .join(above, above.c.id == node.c.parent)
        .where(above.c.id == ident, node.c.tenant == core.tenant)
        .order_by((node.c.branch == above.c.branch).desc(), node.c.seq)
    )
    with core.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar()
    return None if found is None else bytes(found)
