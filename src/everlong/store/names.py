"""Names of replies: what those who gave them call them, so that a request which names one is known to follow it.

One name may be that of several turns (of all in a conversation that a provider keeps); the newest one is meant. Runs
inside of transactions that others open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import Connection

if TYPE_CHECKING:
    from everlong.store.database import Database

LONGEST = 200
"""Letters of a name; what is longer is no name."""

_NEWEST = (
    "SELECT turn.id FROM reply_name JOIN turn ON turn.id = reply_name.turn"
    " WHERE reply_name.tenant = ? AND reply_name.name = ?"
)


class Names:
    """The names of replies in one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.backend.run
        self._added = database.sql("INSERT INTO reply_name (tenant, name, turn) VALUES (?,?,?) ON CONFLICT DO NOTHING")
        order = " ORDER BY reply_name.turn DESC LIMIT 1"
        self._newest = database.sql(_NEWEST + order)
        self._newest_before = database.sql(f"{_NEWEST} AND turn.ts < ?{order}")

    def add(self, connection: Connection, tenant: str, turn: int, names: Iterable[str]) -> None:
        """Give the reply of a turn names."""
        rows = [(tenant, name, turn) for name in sorted(set(names)) if is_name(name)]
        if rows:
            self._run(connection, self._added, rows)

    def newest(self, connection: Connection, tenant: str, name: str, before: float | None) -> int | None:
        """The newest turn whose reply has a name, of all or of those that were begun before a moment."""
        if not is_name(name):
            return None
        if before is None:
            row = self._run(connection, self._newest, (tenant, name)).fetchone()
        else:
            row = self._run(connection, self._newest_before, (tenant, name, before)).fetchone()
        return None if row is None else int(row[0])


def is_name(text: str) -> bool:
    """Whether a text can be a name: neither empty nor long, and nothing in it that a database refuses."""
    return 0 < len(text) <= LONGEST and text.isprintable()
