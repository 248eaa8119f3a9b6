"""The opening of a database: choice of the backend, and creation of the schema in a new one."""

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

VERSION = "0202"
"""The version of the schema that this code creates and opens."""

_OPENING_ATTEMPTS = 12
"""Attempts to get the lock while opening."""


def open_database(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Database:
    """Open a SQLite file by its path, or a database by its url (``sqlite:///…``, ``postgresql://…``).

    ``waits_for_disk=False`` is for callers that can write everything again after a crash.
    """
    backend = backend_for(url_or_path, wait, waits_for_disk=waits_for_disk)
    database = Database(backend)
    try:
        _ensure_schema(database)
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

        return PostgreSQL(f"postgresql://{rest}", wait)
    raise StoreError(
        f"store.url: a database of the kind {kind!r} is not known; "
        "allowed are sqlite:///path/to/file and postgresql://user@host/database"
    )


def version_of(connection: Connection) -> str | None:
    """Return the version of the schema, or None if the database has no tables of Everlong."""
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant


def _ensure_schema(database: Database) -> None:
    """Create the schema in a new database; wait for another process that does so longer than for any other write."""
    for attempt in range(1, _OPENING_ATTEMPTS + 1):
        with database.read() as connection:
            if version_of(connection) == VERSION:
                return
        try:
            database.write(partial(_create, database))
        except StoreBusy:
            if attempt == _OPENING_ATTEMPTS:
                raise
        else:
            return


def _create(database: Database, connection: Connection) -> None:
    database.backend.prepare(connection)
    version = version_of(connection)  # again: another process may have been quicker
    if version == VERSION:
        return
    if version is not None:
        is_older = version < VERSION
        raise SchemaMismatch(
            f"{database.backend.where} was written by {'an older' if is_older else 'a newer'} version of Everlong (its "
            f"schema is {version!r}, this version knows {VERSION}); "
            + ("nothing converts it, so move it away or" if is_older else "update Everlong, or")
            + " name another file or database in store.url"
        )
    if not database.backend.is_empty(connection):
        raise SchemaMismatch(
            f"{database.backend.where} holds tables that are not Everlong's; name another file or database in store.url"
        )
    create_tables(connection)
    _stamp(connection)


def _stamp(connection: Connection) -> None:
    """Write the version of the schema."""
    connection.execute(
        text(
            f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))  # noqa: S608 - a constant
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:version)"), {"version": VERSION})  # noqa: S608
