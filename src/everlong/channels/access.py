"""Access: who may talk to the agent. Strangers get nothing, not even an answer that says so.

People and chats are named in the settings, or let in with a code that the terminal shows (`everlong channels pair`).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from everlong.agent.text import sendable
from everlong.channels.places import insert_new
from everlong.channels.platform import Inbound
from everlong.config.settings import ChannelSettings, DiscordSettings
from everlong.store.schema import channel_code, channel_guest

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["CODE_SECONDS", "Access", "Guest"]

CODE_SECONDS = 600.0
"""Seconds for which a code can be used."""

_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_LENGTH = 8
_MOST_TRIES = 10
"""Wrong codes after which the right one is void too."""


class Guest(NamedTuple):
    """A person who was let in besides those of the settings."""

    id: str
    name: str
    since: float


class Access:
    """The list of those who may talk on one platform."""

    def __init__(
        self, store: Store, platform: str, settings: ChannelSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._tenant, self._platform = store.database, store.tenant, platform
        self._users, self._chats = frozenset(settings.users), frozenset(settings.chats)
        self._guilds = frozenset(settings.guilds if isinstance(settings, DiscordSettings) else ())
        self._clock = clock

    def allows(self, event: Inbound) -> bool:
        """Return whether the author of an event may talk there."""
        if event.person.is_bot:
            return False
        return event.place.chat in self._chats or event.guild in self._guilds or self._is_named(event.person.id)

    def is_owner(self, event: Inbound) -> bool:
        """Return whether the author of an event decides for the bot's owner: let in by name, not as one of many."""
        return event.is_private or self._is_named(event.person.id)

    def _is_named(self, person: str) -> bool:
        return person in self._users or self._is_guest(person)

    def make_code(self) -> str:
        """Return a new code that lets one person in; an earlier one counts no more."""
        code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))

        def work(connection: Connection) -> None:
            connection.execute(delete(channel_code).where(self._is_mine))
            values = {"tenant": self._tenant, "platform": self._platform, "digest": _digest(code), "tries": 0}
            connection.execute(channel_code.insert().values(**values, expires=self._clock() + CODE_SECONDS))

        self._database.write(work)
        return code

    def admit(self, event: Inbound) -> bool:
        """Let the author of a private message in if it is the code; return whether it was."""
        said = event.text.strip().removeprefix("/pair").removeprefix("/start").strip().upper()
        is_code = len(said) == _LENGTH and set(said) <= set(_ALPHABET)
        if not event.is_private or event.kind != "message" or event.person.is_bot or event.is_forwarded or not is_code:
            return False

        def work(connection: Connection) -> bool:
            row = connection.execute(select(channel_code).where(self._is_mine)).first()
            if row is None or row.expires < self._clock() or row.tries >= _MOST_TRIES:
                return False
            if not secrets.compare_digest(bytes(row.digest), _digest(said)):
                connection.execute(update(channel_code).where(self._is_mine).values(tries=row.tries + 1))
                return False
            connection.execute(delete(channel_code).where(self._is_mine))
            self._let_in(connection, event.person.id, event.person.name)
            return True

        is_open = and_(self._is_mine, channel_code.c.expires >= self._clock(), channel_code.c.tries < _MOST_TRIES)
        with self._database.read() as connection:  # strangers must not make the database write
            if connection.execute(select(channel_code.c.tries).where(is_open)).first() is None:
                return False
        return self._database.write(work)

    def remove(self, ident: str) -> bool:
        """Remove a person who was let in; return whether there was one."""
        table = channel_guest
        mine = and_(table.c.tenant == self._tenant, table.c.platform == self._platform, table.c.id == ident)
        return self._database.write(lambda connection: connection.execute(delete(table).where(mine)).rowcount > 0)

    def guests(self) -> list[Guest]:
        """Return those who were let in, the newest last."""
        table = channel_guest
        query = select(table).where(table.c.tenant == self._tenant, table.c.platform == self._platform)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(table.c.ts)).all()
        return [Guest(row.id, row.name, row.ts) for row in rows]

    @property
    def _is_mine(self) -> ColumnElement[bool]:
        return and_(channel_code.c.tenant == self._tenant, channel_code.c.platform == self._platform)

    def _is_guest(self, ident: str) -> bool:
        table = channel_guest
        same = and_(table.c.tenant == self._tenant, table.c.platform == self._platform, table.c.id == ident)
        with self._database.read() as connection:
            return connection.execute(select(table.c.id).where(same)).first() is not None

    def _let_in(self, connection: Connection, ident: str, name: str) -> None:
        values = {"kind": "user", "id": ident, "name": sendable(name)[:100], "ts": self._clock()}
        insert_new(connection, channel_guest, values, self._tenant, self._platform)


def _digest(code: str) -> bytes:
    return hashlib.blake2b(code.encode(), digest_size=16).digest()
