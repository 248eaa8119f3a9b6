"""Costs: receipts of calls on the side of a conversation, and the daily spending of tenants.

A conversation's own requests are turns; a summary and a memory flush are not: each
leaves a receipt. A receipt has figures and no words, so forgetting leaves it alone; it is deleted with its session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from sqlalchemy import Connection, Row, select

from everlong.errors import NotStored, StoreError
from everlong.store.database import Database
from everlong.store.schema import receipt, session as sessions, spending
from everlong.store.turns import storable

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


Kind = Literal["summary", "memory", "plugin"]
"""The purpose of a call on the side: a summary, a memory flush or a plugin's."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One call on the side."""

    id: int
    session: str
    kind: Kind
    model: str | None
    usage: dict[str, Any]
    cost: float | None
    """US dollars, at the price of the time of the call; None if the price was not known."""
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
        """Store the usage of a call on the side of a session; durable when this returns.

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

        def work(connection: Connection) -> Receipt:
            # Locked, so that nobody deletes the session before its receipt is there.
            mine = select(sessions.c.id).where(sessions.c.id == session, sessions.c.tenant == self._core.tenant)
            if connection.execute(self._database.backend.locked(mine)).first() is None:
                raise NotStored(f"there is no session {session!r}; `everlong sessions list` shows all")
            key = connection.execute(receipt.insert().values(values)).inserted_primary_key
            return _receipt(connection.execute(select(receipt).where(receipt.c.id == (key or [0])[0])).one())

        return self._database.write(work)

    def of_session(self, ident: str) -> list[Receipt]:
        """Return the receipts of a session, oldest first."""
        return list(self._select(receipt.c.session == ident))

    def since(self, at: float = 0.0) -> Iterator[Receipt]:
        """Yield all receipts from a moment on (seconds since 1970), oldest first."""
        yield from self._select(receipt.c.ts >= at)

    def _select(self, condition: Any) -> Iterator[Receipt]:
        query = select(receipt).where(receipt.c.tenant == self._core.tenant, condition).order_by(receipt.c.id)
        with self._database.read() as connection:
            for row in connection.execute(query.execution_options(yield_per=500)):
                yield _receipt(row)


def _receipt(row: Row[Any]) -> Receipt:
    return Receipt(row.id, row.session, row.kind, row.model, json.loads(row.usage), row.cost, row.ts)


DAY_SECONDS = 86_400


class Days:
    """Days since 1970 (UTC), by a clock that is read once and from then on only goes forward with the time."""

    def __init__(self, now: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._start = now() - elapsed()

    @property
    def now(self) -> float:
        """The seconds since 1970."""
        return self._start + self._elapsed()

    @property
    def today(self) -> int:
        """The number of the day."""
        return int(self.now // DAY_SECONDS)

    @property
    def rest(self) -> float:
        """The seconds until the next day."""
        return DAY_SECONDS - self.now % DAY_SECONDS


class Reservation(NamedTuple):
    """Dollars of a tenant's day that are reserved for one request."""

    tenant: str
    day: int
    dollars: float


@dataclass(frozen=True, slots=True)
class Spending:
    """The spending of tenants per day, in the database; its methods block."""

    database: Database
    days: Days

    def reserve(self, tenant: str, dollars: float, most: float) -> Reservation | None:
        """Reserve dollars of this day; return None if the day's total would exceed ``most``."""
        if not dollars >= 0:
            raise ValueError(f"a reservation is {dollars} dollars, but cannot be negative")
        sql = self.database.sql
        begin_day = sql(
            "INSERT INTO spending (tenant, day, dollars) VALUES (?,?,0) ON CONFLICT (tenant) DO UPDATE SET"
            " day = excluded.day, dollars = 0 WHERE spending.day < excluded.day"
        )
        take = sql("UPDATE spending SET dollars = dollars + ? WHERE tenant = ? AND dollars + ? <= ? RETURNING day")

        def work(connection: Connection) -> Reservation | None:
            connection.exec_driver_sql(begin_day, (tenant, self.days.today))
            row = connection.exec_driver_sql(take, (dollars, tenant, dollars, most)).first()
            return None if row is None else Reservation(tenant, row[0], dollars)

        return self.database.write(work)

    def settle(self, held: Reservation, dollars: float) -> None:
        """Replace a reservation by what was spent; nothing is kept of a day that is over."""
        change = dollars - held.dollars
        statement = self.database.sql(
            "UPDATE spending SET dollars = CASE WHEN dollars + ? < 0 THEN 0 ELSE dollars + ? END"
            " WHERE tenant = ? AND day = ?"
        )
        values = (change, change, held.tenant, held.day)
        self.database.write(lambda connection: connection.exec_driver_sql(statement, values))

    def spent(self, tenant: str) -> float:
        """Return what a tenant has spent and reserved today."""
        query = select(spending.c.dollars).where(spending.c.tenant == tenant, spending.c.day >= self.days.today)
        with self.database.read() as connection:
            return float(connection.execute(query).scalar() or 0.0)
