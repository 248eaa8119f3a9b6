"""Leases: one process at a time does a costly piece of work, so that two do not pay for it.

A lease runs out by itself, so a dead process holds up nobody for long; one that died on this machine holds up nobody at
all. Each taking of a lease has a higher *fence*, so a process that lost it can neither prolong nor release it. A lease
decides nothing about what is stored; compare-and-swap does that.
"""

from __future__ import annotations

import os
import socket
import uuid
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from everlong.store.database import Database
from everlong.store.schema import lease


class Lease(NamedTuple):
    """A lease that was taken; ``fence`` grows with each taking of the same key."""

    key: str
    owner: str
    fence: int


def take(database: Database, key: str, seconds: float) -> Lease | None:
    """Take a lease that is free, has run out or was a dead process's; return None if another has it."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    statement = database.sql(
        "INSERT INTO lease (key, owner, fence, expires) VALUES (?,?,1,?) ON CONFLICT (key) DO UPDATE SET"
        " owner = excluded.owner, fence = lease.fence + 1, expires = excluded.expires WHERE lease.expires <= ?"
        " RETURNING fence"
    )

    def work(connection: Connection) -> Lease | None:
        now = database.backend.now(connection)
        row = connection.exec_driver_sql(statement, (key, owner, now + seconds, now)).first()
        if row is None:
            held = connection.execute(select(lease.c.owner).where(lease.c.key == key)).scalar()
            if held is not None and _is_dead(held):
                gone = and_(lease.c.key == key, lease.c.owner == held)
                connection.execute(update(lease).where(gone).values(expires=0.0))
                row = connection.exec_driver_sql(statement, (key, owner, now + seconds, now)).first()
        return None if row is None else Lease(key, owner, row[0])

    return database.write(work)


def _is_dead(owner: str) -> bool:
    """Return whether the process that took a lease ran on this machine and runs no more."""
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    # Elsewhere than on POSIX, asking whether a process is there may end it.
    if os.name != "posix" or host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def prolong(database: Database, held: Lease, seconds: float) -> bool:
    """Keep a lease for longer; return False if another has taken it."""

    def work(connection: Connection) -> bool:
        until = database.backend.now(connection) + seconds
        return connection.execute(update(lease).where(_is(held)).values(expires=until)).rowcount == 1

    return database.write(work)


def release(database: Database, held: Lease) -> bool:
    """Give a lease back; return False if another has taken it, who keeps it."""

    def work(connection: Connection) -> bool:
        # The row stays, so that the next fence is higher.
        return connection.execute(update(lease).where(_is(held)).values(expires=0.0)).rowcount == 1

    return database.write(work)


def sweep(connection: Connection, before: float) -> int:
    """Remove leases that ran out long ago."""
    return connection.execute(delete(lease).where(lease.c.expires < before)).rowcount


def _is(held: Lease) -> ColumnElement[bool]:
    return and_(lease.c.key == held.key, lease.c.owner == held.owner, lease.c.fence == held.fence)
