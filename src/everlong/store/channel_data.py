"""Channel data of conversations: what goes with a conversation that is forgotten.

Messages wait and are delivered outside of the conversation that they belong to. Their words stay only that long; what
is left of them here, and files that came along, go when the conversation is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from sqlalchemy import Connection, and_, delete, select, update

from everlong.store.schema import (
    channel_answer,
    channel_conversation,
    channel_file,
    channel_place,
    channel_update,
)

_log = logging.getLogger("everlong.store")


def drop_channel_data(connection: Connection, tenant: str, conversation: str) -> list[str]:
    """Drop what channels keep of a conversation; return the paths of its files, to be removed after the commit."""
    answers = select(channel_answer.c.id).where(
        channel_answer.c.tenant == tenant, channel_answer.c.conversation == conversation
    )
    # The rows stay: a message that comes a second time must not count again.
    mine = channel_update.c.answer.in_(answers)
    connection.execute(update(channel_update).where(mine).values(data=None, state="answered"))
    files = channel_file
    stored = and_(files.c.tenant == tenant, files.c.conversation == conversation)
    paths = list(connection.execute(select(files.c.path).where(stored)).scalars())
    places = channel_place
    bound = and_(places.c.tenant == tenant, places.c.conversation == conversation)
    connection.execute(update(places).where(bound).values(conversation=None, active=0.0))
    for table in (channel_answer, channel_conversation, channel_file):
        gone = and_(table.c.tenant == tenant, table.c.conversation == conversation)
        connection.execute(delete(table).where(gone))
    return paths


def remove_files(paths: Iterable[str]) -> None:
    """Remove files that came along with forgotten messages."""
    for path in paths:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s could not be removed: %s", path, error.strerror or error)


def check_channel_data(connection: Connection, tenant: str) -> Iterator[str]:
    """Yield what is wrong with the channel data of a tenant: words that stand there longer than they are needed."""
    done = channel_update.c.state.in_(["answered", "dropped"])
    left = select(channel_update.c.id).where(
        channel_update.c.tenant == tenant, done, channel_update.c.data.is_not(None)
    )
    for number in connection.execute(left).scalars():
        yield f"the message {number} of a channel is dealt with, and its words are kept a second time"
    gone = channel_answer.c.state.in_(["delivered", "failed"])
    left = select(channel_answer.c.id).where(
        channel_answer.c.tenant == tenant, gone, channel_answer.c.text.is_not(None)
    )
    for number in connection.execute(left).scalars():
        yield f"the answer {number} of a channel is delivered, and its words are kept a second time"
