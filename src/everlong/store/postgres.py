"""The PostgreSQL backend: a server that several machines write to at once (psycopg 3).

Needs ``everlong[postgres]``. Writers lock the branch that they extend; what loses by a deadlock or a broken connection
is run again, which is safe because everything that the store writes is idempotent or decided by compare-and-swap.

No connection keeps a state between transactions, so that a pooler may give each transaction another one.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, Select, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from everlong.errors import SchemaMismatch, StoreBusy, StoreError, StoreFull, StoreUnavailable
from everlong.extras import install_command
from everlong.redaction import hide_passwords
from everlong.store.database import Backend

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
        return made

    def _on_begin(self, connection: Connection) -> None:
        """Limit the wait for locks, and have the commit on the disk even where the server's default is otherwise."""
        if not connection.get_execution_options().get("everlong_read"):
            connection.exec_driver_sql(
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
        """Run a statement; SQLAlchemy notices where the connection is lost."""
        return connection.exec_driver_sql(statement, parameters)

    def lock_name(self, connection: Connection, name: bytes) -> None:
        """Take an advisory lock, by the first bytes of the name."""
        key = int.from_bytes(name[:8].ljust(8, b"\0"), "big", signed=True)
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (key,))

    def give_way(self, connection: Connection) -> None:
        """Give up on a lock long before the server looks for a deadlock."""
        connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")

    def now(self, connection: Connection) -> float:
        """Return the server's time, which all replicas share."""
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
