"""The opening of a database: choice of the backend, and creation or upgrade of the schema.

A new database gets the schema of `everlong.store.schema`. Alembic, which is loaded only when needed, runs the revisions
since the baseline on an older one.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, text

from everlong.errors import SchemaMismatch, StoreBusy, StoreError
from everlong.store.database import Backend, Database
from everlong.store.schema import create_tables

_log = logging.getLogger("everlong.store")

VERSION_TABLE = "everlong_version"

REVISIONS = ("0200",)
"""All versions that this code can open, oldest first: the baseline, and Alembic's since then. They sort as strings."""

HEAD = REVISIONS[-1]

_OPENING_ATTEMPTS = 12
"""Attempts to get the lock while opening: a process that upgrades a large store holds it for minutes."""

MIGRATIONS = Path(__file__).parent / "migrations"


def open_database(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Database:
    """Open a SQLite file by its path, or a database by its url (``sqlite:///…``, ``postgresql://…``).

    ``waits_for_disk=False`` is for callers that can write everything again after a crash.
    """
    backend = backend_for(url_or_path, wait, waits_for_disk=waits_for_disk)
    database = Database(backend)
    try:
        _bring_up_to_date(database)
        with database.translating():
            missing = backend.check_end(database.engine)
        if missing:
            _log.warning("%s", missing)
    except BaseException:  # also Ctrl-C must not leave an open file behind
        database.close()
        raise
    return database


def backend_for(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Backend:
    """Return the backend that a path or a url means, without opening it."""
    text_form = str(url_or_path)
    scheme, found, rest = text_form.partition("://")
    if not found:
        from everlong.store.sqlite import SQLite  # noqa: PLC0415 - only the one that is used

        return SQLite(Path(url_or_path), wait, waits_for_disk=waits_for_disk)
    kind = scheme.partition("+")[0]
    if kind == "sqlite":
        from everlong.store.sqlite import SQLite  # noqa: PLC0415 - as above

        return SQLite(Path(rest.removeprefix("/")), wait, waits_for_disk=waits_for_disk)
    if kind in {"postgresql", "postgres"}:
        from everlong.store.postgres import PostgreSQL  # noqa: PLC0415 - as above

        return PostgreSQL(f"postgresql+psycopg://{rest}", wait)
    raise StoreError(
        f"store.url: a database of the kind {kind!r} is not known; "
        "allowed are sqlite:///path/to/file and postgresql://user@host/database"
    )


def version_of(connection: Connection) -> str | None:
    """Return the version of the schema, or None if the database has no tables of Everlong."""
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant


def _bring_up_to_date(database: Database) -> None:
    """Create or upgrade the schema; wait for another process that does so longer than for any other write."""
    for attempt in range(1, _OPENING_ATTEMPTS + 1):
        with database.read() as connection:
            if version_of(connection) == HEAD:
                return
        try:
            database.write(partial(_create_or_upgrade, database))
        except StoreBusy:
            if attempt == _OPENING_ATTEMPTS:
                raise
        else:
            return


def _create_or_upgrade(database: Database, connection: Connection) -> None:
    database.backend.prepare(connection)
    version = version_of(connection)  # again: another process may have been quicker
    if version == HEAD:
        return
    if version is None:
        if not database.backend.is_empty(connection):
            raise SchemaMismatch(
                f"{database.backend.where} holds tables that are not Everlong's; "
                "name another file or database in store.url"
            )
        create_tables(connection)
        _stamp(connection, HEAD)
    elif version in REVISIONS:
        _run_revisions(connection)
    else:
        raise SchemaMismatch(
            f"{database.backend.where} was written by another version of Everlong (its schema is {version!r}, this "
            f"version knows {', '.join(REVISIONS)}); update Everlong, or name another file or database in store.url"
        )


def _run_revisions(connection: Connection) -> None:
    """Run Alembic's revisions after the one that the database is stamped with, in the connection's transaction."""
    from alembic import command  # noqa: PLC0415 - takes longer to load than opening a store
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _stamp(connection: Connection, version: str) -> None:
    """Write the version of the schema."""
    connection.execute(
        text(
            f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))  # noqa: S608 - a constant
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:version)"), {"version": version})  # noqa: S608
