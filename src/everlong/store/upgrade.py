"""Opening a database: its backend is chosen, and its schema made or brought up to date.

Alembic runs the revisions in ``migrations/versions``. It is loaded only then, because loading it takes longer than
opening a store. `everlong.store.conversion` rewrites what older versions have stored.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, text

from everlong.errors import SchemaMismatch, StoreBusy, StoreError
from everlong.store.database import Backend, Database
from everlong.store.schema import metadata

__all__ = [
    "HEAD",
    "MIGRATIONS",
    "REVISIONS",
    "VERSION_TABLE",
    "backend_for",
    "is_known",
    "open_database",
    "upgrade",
    "version_of",
]

_log = logging.getLogger("everlong.store")

VERSION_TABLE = "everlong_version"

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""All revisions, oldest first; a test compares them with the files."""

HEAD = REVISIONS[-1]

_OPENINGS = 12
"""How often an opening waits for the lock, which a process that upgrades a large store holds for minutes."""

CONVERSATIONS = "0007"
"""Before this revision, conversations that began alike were joined."""

MIGRATIONS = Path(__file__).parent / "migrations"


def is_known(version: str) -> bool:
    """Whether a version is one that this code can bring up to date."""
    return version in REVISIONS


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run all revisions that the database has not seen, in the connection's own transaction."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _bring_up_to_date(database: Database) -> None:
    """Create or upgrade the schema; while another process does that, wait longer than for any other write."""
    for attempt in range(1, _OPENINGS + 1):
        with database.read() as connection:
            if version_of(connection) == HEAD:
                return
        try:
            database.write(partial(_make_or_upgrade, database))
        except StoreBusy:
            if attempt == _OPENINGS:
                raise
        else:
            return


def _make_or_upgrade(database: Database, connection: Connection) -> None:
    database.backend.prepare(connection)
    version = version_of(connection)  # again: another process may have been quicker
    if version == HEAD:
        return
    if version is None:
        if not database.backend.is_empty(connection):
            raise SchemaMismatch(
                f"{database.backend.where} holds tables that are not Everlong's; "
                "name another file or database in store.path or store.url"
            )
        create_all(connection)
    elif is_known(version):
        _upgrade(database, connection, version)
    else:
        raise SchemaMismatch(
            f"{database.backend.where} was written by a newer version of Everlong (its schema is {version!r}, "
            f"this version knows up to {HEAD!r}); update Everlong to open it"
        )


def _upgrade(database: Database, connection: Connection, version: str) -> None:
    """Bring an older database up to date, all in the transaction that is under way: as a whole or not at all."""
    from everlong.store.conversion import has_words, separate  # noqa: PLC0415 - seldom needed

    is_joined = version < CONVERSATIONS and has_words(connection)
    if is_joined:
        copy = database.backend.keep_copy(database.engine, f"before-{CONVERSATIONS}")
        kept = f"a copy from before is {copy}" if copy else "its own tools make a copy, such as pg_dump"
        _log.warning("%s is brought up to date; %s", database.backend.where, kept)
    upgrade(connection)
    if is_joined:
        separate(database, connection)


def create_all(connection: Connection) -> None:
    """Make the newest schema in an empty database; the same as all migrations in order, but quicker."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(
        text(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:head)"), {"head": HEAD})  # noqa: S608


def version_of(connection: Connection) -> str | None:
    """The schema's version; None where the tables are not there or not ours."""
    if not connection.dialect.has_table(connection, VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant


def open_database(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Database:
    """Open a SQLite file by its path, or a database by its url (``sqlite:///…``, ``postgresql://…``).

    A file is written to without waiting for the disk where whoever writes can say everything again.
    """
    backend = backend_for(url_or_path, wait, waits_for_disk=waits_for_disk)
    database = Database(backend)
    try:
        _bring_up_to_date(database)
        with database.translating():
            missing = backend.check_end(database.engine)
        if missing:
            _log.warning("%s", missing)
    except BaseException:  # whatever it was goes on its way, without an open file left behind
        database.close()
        raise
    return database


def backend_for(url_or_path: str | Path, wait: float = 10.0, *, waits_for_disk: bool = True) -> Backend:
    """The backend that a path or a url means; nothing is opened yet."""
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
