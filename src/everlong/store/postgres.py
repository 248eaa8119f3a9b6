"""The PostgreSQL backend: a server that several machines write to at once (psycopg 3).

Needs ``everlong[postgres]``. Writers lock the branch that they extend; what loses by a deadlock or a broken connection
is run again, which is safe because everything that the store writes is idempotent or decided by compare-and-swap.

No connection keeps a state between transactions, so that a pooler may give each transaction another one.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Select, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from everlong.errors import SchemaMismatch, StoreBusy, StoreError, StoreFull, StoreUnavailable
from everlong.extras import install_command
from everlong.redaction import hide_passwords
from everlong.store.database import OTHERS_FIRST, Backend, TryAgain, in_batches

SCHEMA_LOCK = 0x45_56_45_52  # "EVER": the advisory lock under which the schema changes

_PASSING = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "08000", "08003", "08006", "25P02"})
_UNREACHABLE = ("08", "57P")
_NETWORK = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""How soon a machine that has vanished from the network counts as gone, unless the address says otherwise."""


_WAITING = "everlong_waiting"
"""The name under which a connection has the statements that wait for the next one."""
_VALUES = re.compile(r"(?<=VALUES )(\([^)]*\))")


class _Waiting(NamedTuple):
    """A statement that waits for the next one."""

    cursor: Any
    statement: str
    parameters: Any
    changes: int | None
    """The rows that it must change; None for any number."""


class PostgreSQL(Backend):
    """A store in a PostgreSQL database; ``wait`` is how many seconds to wait for a lock."""

    name = "postgresql"
    mark = "%s"
    lock = " FOR UPDATE"

    def __init__(self, url: str, wait: float = 10.0) -> None:
        self.address = url
        self.wait = wait
        self.where = hide_passwords(url)

    def engine(self) -> Engine:
        """Return an engine whose connections notice a server that is gone; libpq reads the address, with all hosts."""
        try:
            from psycopg import ProgrammingError  # noqa: PLC0415 - an extra that may be absent
            from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above
        except ImportError as error:
            raise StoreUnavailable(
                f"store.url names a PostgreSQL server, which needs psycopg: {install_command('postgres')}"
            ) from error
        try:
            given = conninfo_to_dict(self.address)
        except ProgrammingError as error:
            raise StoreError(f"store.url is no address of a database: {str(error).strip()}") from error
        options = {**_NETWORK, **given, "prepare_threshold": None}
        made = create_engine(
            "postgresql+psycopg://", connect_args=options, pool_pre_ping=True, pool_size=8, max_overflow=-1
        )
        event.listen(made, "begin", self._on_begin)
        event.listen(made, "before_cursor_execute", lambda connection, *_: self.run_rest(connection))
        return made

    def _on_begin(self, connection: Connection) -> None:
        """Limit the wait for locks, and have the commit on the disk even where the server's default is otherwise."""
        connection.info.pop(_WAITING, None)  # of a transaction that was rolled back
        if not connection.get_execution_options().get("everlong_read"):
            self.run_later(
                connection,
                "SELECT set_config('lock_timeout', %s, true), set_config('synchronous_commit', "
                "replace(current_setting('synchronous_commit'), 'off', 'on'), true)",
                (str(int(self.wait * 1000)),),
            )

    def prepare(self, connection: Connection) -> None:
        """Lock the schema, which one process at a time may create or change."""
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})

    def is_empty(self, connection: Connection) -> bool:
        """Return whether none of our tables is there; others' tables beside ours do no harm."""
        from everlong.store.schema import metadata  # noqa: PLC0415 - only when a schema is made

        return not any(connection.dialect.has_table(connection, name) for name in metadata.tables)

    def translated(self, error: DBAPIError) -> StoreError:
        """Return an SQLSTATE code as one of our errors."""
        state = getattr(error.orig, "sqlstate", None) or ""
        said = str(error.orig).strip().partition("\n")[0]
        if state in {"55P03", "40P01", "40001"}:
            return StoreBusy(
                f"{self.where}: other processes kept what was needed locked for more than {self.wait:g} seconds; "
                "try again"
            )
        if state == "53100":
            return StoreFull(f"{self.where}: the server's disk is full; nothing was changed. Free some and try again")
        if state in {"25006", "42501"}:
            return StoreUnavailable(f"{self.where} may not be written ({said}); check the rights of the user")
        if not state or state.startswith(_UNREACHABLE) or state.startswith(("28", "3D", "53")):
            return StoreUnavailable(f"{self.where} cannot be reached ({said}); check store.url and the server")
        if state in {"42P01", "42703"}:
            return SchemaMismatch(f"{self.where} lacks what this version needs ({said}); was it changed by hand?")
        return StoreError(f"{self.where}: {said}")

    def is_passing(self, error: DBAPIError) -> bool:
        """Return whether it is a deadlock, a serialization failure, or a connection that broke while it was in use."""
        state = getattr(error.orig, "sqlstate", None)
        return state in _PASSING or (error.connection_invalidated and state is None)

    def locked(self, statement: Select[Any]) -> Select[Any]:
        """Return the select with ``FOR UPDATE``."""
        return statement.with_for_update()

    def run(self, connection: Connection, statement: str, parameters: Any = ()) -> Any:
        """Run a statement, and before it those that wait for it: all of them go to the server together."""
        done = self.run_later(connection, statement, parameters)
        self.run_rest(connection)
        return done

    def run_later(
        self, connection: Connection, statement: str, parameters: Any = (), *, changes_all: bool = False
    ) -> Any:
        """Have a statement wait for the next one whose result somebody needs; a list inserts so many rows at once."""
        raw: Any = connection.connection.driver_connection
        waiting = connection.info.setdefault(_WAITING, [])
        if not isinstance(parameters, list):
            waiting.append(_Waiting(raw.cursor(), statement, parameters, 1 if changes_all else None))
        else:
            head, values, tail = _VALUES.split(statement)
            for rows in in_batches(parameters):
                several = head + ",".join([values] * len(rows)) + tail
                flat, count = [*chain.from_iterable(rows)], len(rows) if changes_all else None
                waiting.append(_Waiting(raw.cursor(), several, flat, count))
        return waiting[-1].cursor

    def run_rest(self, connection: Connection) -> None:
        """Run the statements that wait for the next one, in one round trip."""
        waiting: list[_Waiting] | None = connection.info.pop(_WAITING, None)
        if not waiting:
            return
        raw: Any = connection.connection.driver_connection
        driver: Any = connection.dialect.loaded_dbapi
        try:
            with raw.pipeline() if len(waiting) > 1 else nullcontext():
                for one in waiting:
                    one.cursor.execute(one.statement, one.parameters)
        except driver.Error as error:
            is_gone = raw.closed or raw.broken
            if is_gone:
                connection.invalidate(error)
            raise DBAPIError.instance(
                None, None, error, driver.Error, connection_invalidated=is_gone, dialect=connection.dialect
            ) from error
        if any(one.changes not in {None, one.cursor.rowcount} for one in waiting):
            raise TryAgain(OTHERS_FIRST)

    def drop_rest(self, connection: Connection) -> None:
        """Forget the statements that wait for the next one, back to the last savepoint among them."""
        waiting: list[_Waiting] = connection.info.get(_WAITING, [])
        while waiting and not waiting[-1].statement.startswith("SAVEPOINT"):
            waiting.pop()

    def lock_name(self, connection: Connection, name: bytes) -> None:
        """Take an advisory lock, by the first bytes of the name."""
        key = int.from_bytes(name[:8].ljust(8, b"\0"), "big", signed=True)
        self.run_later(connection, "SELECT pg_advisory_xact_lock(%s)", (key,))

    def give_way(self, connection: Connection) -> None:
        """Give up on a lock long before the server looks for a deadlock."""
        self.run_later(connection, "SET LOCAL lock_timeout = '100ms'")

    def now(self, connection: Connection) -> float:
        """Return the server's time, which all replicas share."""
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
