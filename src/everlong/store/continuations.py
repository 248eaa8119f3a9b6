"""Find the conversation that a client has compacted itself, and goes on with in a new list of messages.

Such a client asks its model for a summary and begins anew with it. So a new list continues a conversation if the client
calls both by one name and the list holds what was answered there. A name alone says too little: clients send titles and
look-ups under it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from everlong.model import Message, text_of
from everlong.store.schema import session, turn

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

__all__ = ["find_continued"]

_NEWEST = 8
"""Replies under a name that may have been the summary."""
_SHARE = 0.6
"""Of a reply's lines that a list has to hold: clients take off what the model wrote for itself."""
_LONG_LINE = 30
_LEAST_CHARACTERS = 100


def find_continued(core: StoreCore, connection: Connection, name: str, messages: Sequence[Message]) -> str | None:
    """Return the conversation that a list of messages continues, of those that its client calls by a name."""
    told = _plain("\n".join(text_of(message) for message in messages if message.get("role") != "assistant"))
    if len(told) < _LEAST_CHARACTERS:
        return None
    replies = (
        select(turn.c.reply, session.c.conversation)
        .join(session, session.c.id == turn.c.session)
        .where(session.c.tenant == core.tenant, session.c.client_session == name, turn.c.reply.is_not(None))
        .order_by(turn.c.id.desc())
        .limit(_NEWEST)
    )
    rows = connection.execute(replies).all()
    values = core.reader.values(connection, [bytes(row.reply) for row in rows])
    for row in rows:
        reply = values.get(bytes(row.reply))
        if reply is not None and _holds(told, text_of(reply)):
            return str(row.conversation)
    return None


def _holds(told: str, reply: str) -> bool:
    """Return whether a text holds most of what a long reply says."""
    lines = [line for line in map(_plain, reply.splitlines()) if len(line) >= _LONG_LINE]
    if sum(map(len, lines)) < _LEAST_CHARACTERS:
        return False
    return sum(line in told for line in lines) >= _SHARE * len(lines)


def _plain(text: str) -> str:
    return " ".join(text.split())
