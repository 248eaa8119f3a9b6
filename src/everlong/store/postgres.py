"""The PostgreSQL backend: a server that several machines write to at once (psycopg 3).

Needs ``everlong[postgres]``. Writers lock the branch that they extend; what loses by a deadlock or a broken connection
is run again, which is safe because everything that the store writes is idempotent or decided by compare-and-swap.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, Select, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from everlong.errors import SchemaMismatch, StoreBusy, StoreError, StoreFull, StoreUnavailable
from everlong.extras import install_command
from everlong.store.database import Backend

SCHEMA_LOCK = 0x45_56_45_52  # "EVER": the advisory lock under which the schema changes

_PASSING = frozenset({"40001", "40P01", "57P01", "57P02", "57P03", "08000", "08003", "08006", "25P02"})
_UNREACHABLE = ("08", "57P")


class PostgreSQL(Backend):
    """A store in a PostgreSQL database; ``wait`` is how many seconds to wait for a lock."""

    name = "postgresql"
    mark = "%s"
    lock = " FOR UPDATE"

    def __init__(self, url: str, wait: float = 10.0) -> None:
        try:
            self.url = make_url(url)
        except ValueError as error:
            raise StoreError(f"store.url is no address of a database: {error}") from error
        self.wait = wait
        self.where = self.url.set(drivername="postgresql").render_as_string(hide_password=True)
        self.address = self.url.render_as_string(hide_password=False)

    def engine(self) -> Engine:
        """Return an engine whose connections notice a restarted server and wait for locks as long as ``wait``."""
        try:
            import psycopg  # noqa: F401, PLC0415 - an extra that may be absent
        except ImportError as error:
            raise StoreUnavailable(
                f"store.url names a PostgreSQL server, which needs psycopg: {install_command('postgres')}"
            ) from error
        made = create_engine(self.url, pool_pre_ping=True, pool_size=8, max_overflow=-1)
        event.listen(made, "connect", self._on_connect)
        return made

    def _on_connect(self, connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {int(self.wait * 1000)}")
        # A server may be set to acknowledge commits that are not on the disk yet; ours must be.
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()
        cursor.close()

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

    def now(self, connection: Connection) -> float:
        """Return the server's time, which all replicas share."""
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
