"""Receipts: what calls to a model on the side of a conversation used and cost.

A conversation's own requests are turns; a summary, a memory flush and a ping that keeps a cache warm are none. A
receipt has figures and no words, so forgetting leaves it alone; it goes with its session. Knows no provider and no
price.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from sqlalchemy import Connection, Row, select

from everlong.errors import NotStored, StoreError
from everlong.store.past_turns import storable
from everlong.store.schema import receipt, session as sessions

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

Kind = Literal["summary", "memory", "ping", "plugin"]
"""What a call on the side was for: a summary, a memory flush, keeping a provider's cache warm, or a plugin's own."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One call on the side."""

    id: int
    session: str
    kind: Kind
    model: str | None
    usage: dict[str, Any]
    cost: float | None
    """US dollars, as they were reckoned when the call was made; None where the price was not known."""
    at: float


class Receipts:
    """The receipts of one tenant."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._database = core.database

    def add(
        self,
        session: str,
        kind: Kind,
        *,
        usage: Mapping[str, Any],
        model: str | None = None,
        cost: float | None = None,
        at: float | None = None,
    ) -> Receipt:
        """Keep what a call on the side of a session used; durable when this returns.

        Args:
            session: its id.
            kind: what the call was for.
            usage: the tokens, as `Usage.to_dict` gives them.
            model: who was called, as ``provider:model``.
            cost: US dollars; None where the price is not known.
            at: when, in seconds since 1970; now, if not given.

        Raises:
            NotStored: there is no such session.
        """
        if kind not in get_args(Kind):
            raise StoreError(f"a receipt cannot be for {kind!r}; allowed are {', '.join(get_args(Kind))}")
        values = {
            "tenant": self._core.tenant,
            "session": session,
            "kind": kind,
            "model": storable(model),
            "usage": json.dumps(dict(usage), default=str),
            "cost": cost,
            "ts": time.time() if at is None else at,
        }

        def work(connection: Connection) -> int:
            # Locked, so that nobody deletes the session before its receipt is there.
            mine = select(sessions.c.id).where(sessions.c.id == session, sessions.c.tenant == self._core.tenant)
            if connection.execute(self._database.backend.locked(mine)).first() is None:
                raise NotStored(f"there is no session {session!r}; `everlong sessions list` shows all")
            key = connection.execute(receipt.insert().values(values)).inserted_primary_key
            return int(key[0]) if key is not None else 0

        number = self._database.write(work)
        with self._database.read() as connection:
            return _receipt(connection.execute(select(receipt).where(receipt.c.id == number)).one())

    def of_session(self, ident: str) -> list[Receipt]:
        """The receipts of a session, oldest first."""
        return list(self._selected(receipt.c.session == ident))

    def since(self, at: float = 0.0) -> Iterator[Receipt]:
        """All receipts from a moment on (seconds since 1970), oldest first, read bit by bit."""
        yield from self._selected(receipt.c.ts >= at)

    def _selected(self, condition: Any) -> Iterator[Receipt]:
        query = select(receipt).where(receipt.c.tenant == self._core.tenant, condition).order_by(receipt.c.id)
        with self._database.read() as connection:
            for row in connection.execution_options(yield_per=500).execute(query):
                yield _receipt(row)


def _receipt(row: Row[Any]) -> Receipt:
    return Receipt(row.id, row.session, row.kind, row.model, json.loads(row.usage), row.cost, row.ts)
