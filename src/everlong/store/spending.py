"""Spending: how many US dollars each tenant has spent or reserved in a day, for all processes that share a store.

What a request may cost is reserved before it is sent, in one statement that checks the limit as well, so that many at
once cannot pass it together. What it did cost takes the place of the reservation afterwards. A process that dies leaves
its reservations counted as spent. The day of a record only moves forward, and inside of a process it follows a clock
that nobody sets. Knows no price and no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, select

from everlong.store.database import Database
from everlong.store.schema import spending

__all__ = ["DAY_SECONDS", "Days", "Reservation", "Spending"]

DAY_SECONDS = 86_400


class Days:
    """Days since 1970 (UTC), by a clock that is read once and from then on only goes forward with the time."""

    def __init__(self, now: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._start = now() - elapsed()

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return self._start + self._elapsed()

    @property
    def today(self) -> int:
        """The day."""
        return int(self.now // DAY_SECONDS)

    @property
    def rest(self) -> float:
        """Seconds until the next day."""
        return DAY_SECONDS - self.now % DAY_SECONDS


class Reservation(NamedTuple):
    """Dollars of a tenant's day that nobody else may spend."""

    tenant: str
    day: int
    dollars: float


@dataclass(frozen=True, slots=True)
class Spending:
    """What tenants spend. Blocks."""

    database: Database
    days: Days

    def reserve(self, tenant: str, dollars: float, most: float) -> Reservation | None:
        """Reserve dollars of this day; None where that would make more than so many."""
        sql = self.database.sql
        turned = sql(
            "INSERT INTO spending (tenant, day, dollars) VALUES (?,?,0) ON CONFLICT (tenant) DO UPDATE SET"
            " day = excluded.day, dollars = 0 WHERE spending.day < excluded.day"
        )
        taken = sql("UPDATE spending SET dollars = dollars + ? WHERE tenant = ? AND dollars + ? <= ? RETURNING day")

        def work(connection: Connection) -> Reservation | None:
            connection.exec_driver_sql(turned, (tenant, self.days.today))
            row = connection.exec_driver_sql(taken, (dollars, tenant, dollars, most)).first()
            return None if row is None else Reservation(tenant, row[0], dollars)

        return self.database.write(work)

    def settle(self, held: Reservation, dollars: float) -> None:
        """Put what was spent in the place of a reservation; of a day that is over, nothing is kept."""
        change = dollars - held.dollars
        statement = self.database.sql(
            "UPDATE spending SET dollars = CASE WHEN dollars + ? < 0 THEN 0 ELSE dollars + ? END"
            " WHERE tenant = ? AND day = ?"
        )
        values = (change, change, held.tenant, held.day)
        self.database.write(lambda connection: connection.exec_driver_sql(statement, values))

    def spent(self, tenant: str) -> float:
        """Return what a tenant has spent and reserved on the newest day that is known of it, if that is not over."""
        query = select(spending.c.dollars).where(spending.c.tenant == tenant, spending.c.day >= self.days.today)
        with self.database.read() as connection:
            return float(connection.execute(query).scalar() or 0.0)
