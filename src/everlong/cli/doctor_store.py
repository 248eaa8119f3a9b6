"""Checks of ``everlong doctor``: the database, its schema, the disk, logs, notes and the memory provider.

Looks only: nothing is made, migrated or mended here. A database on a server is talked to only where calls are allowed.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from everlong.cli.doctor_common import Finding, Situation, fail, folder_problem, nearest_folder, ok, warn

if TYPE_CHECKING:
    from everlong.store.postgres import PostgreSQL

__all__ = ["check_disk", "check_logs", "check_memory", "check_store"]

_QUICK_BYTES = 500_000_000
"""A larger file is not read through, because that takes long."""
_QUICK_MESSAGES = 5_000
"""A store with more messages is not verified hash by hash."""
_LOW_BYTES, _LEAST_BYTES = 500_000_000, 20_000_000
_RESTORE = "restore a backup, or name another file: everlong config set store.path PATH"
_ELSEWHERE = "everlong config set store.path PATH names another place"


def check_store(situation: Situation) -> Iterator[Finding]:
    """Whether the store can be opened, whose it is, and of which version."""
    from everlong.errors import StoreError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.database import backend_for  # noqa: PLC0415 - as above
    from everlong.store.opening import default_path  # noqa: PLC0415 - as above
    from everlong.store.postgres import PostgreSQL  # noqa: PLC0415 - as above
    from everlong.store.sqlite import SQLite  # noqa: PLC0415 - as above

    chosen = situation.settings.store
    try:
        backend = backend_for(chosen.url or chosen.path or default_path(), 5.0)
    except StoreError as error:
        yield fail("store", str(error), "correct store.url or store.path")
        return
    if isinstance(backend, SQLite):
        yield from _file(backend.path, situation)
    elif isinstance(backend, PostgreSQL) and situation.call:
        yield from _server(backend)
    else:
        yield ok("store", f"{backend.where} was not talked to; --call does it")


def _file(path: Path, situation: Situation) -> Iterator[Finding]:
    problem = folder_problem(path.parent)
    if path.is_dir():
        yield fail("store", f"{path} is a folder, and a store is a file", _ELSEWHERE)
    elif problem is not None:
        yield fail("store", f"the store {path} cannot be written: {problem}", _ELSEWHERE)
    elif not path.exists() or not path.stat().st_size:
        yield ok("store", f"there is none yet; the first conversation makes {path}")
    else:
        try:
            with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5.0)) as raw:
                yield from _looked_at(path, raw, situation)
        except sqlite3.Error as error:
            yield fail("store", f"{path} is damaged, no database, or not to be read ({error})", _RESTORE)


def _looked_at(path: Path, raw: sqlite3.Connection, situation: Situation) -> Iterator[Finding]:
    from everlong.store.versions import VERSION_TABLE  # noqa: PLC0415 - keeps `everlong --help` quick

    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if VERSION_TABLE not in tables:
        yield fail("store", f"{path} holds tables that are not Everlong's", _ELSEWHERE)
        return
    (version,) = raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608 - a constant
    schema = _schema(str(version))
    if path.stat().st_size <= _QUICK_BYTES:
        (found,) = raw.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            yield fail("store", f"{path} is damaged: {found}", _RESTORE)
            return
    if schema.state != "ok":
        yield ok("store", f"{path} can be read")
    else:
        (messages,) = raw.execute("SELECT count(*) FROM node").fetchone()
        yield _verified(path, messages, situation)
    yield schema


def _verified(path: Path, messages: int, situation: Situation) -> Finding:
    from everlong.store import open_store  # noqa: PLC0415 - keeps `everlong --help` quick

    if messages > _QUICK_MESSAGES:
        return ok("store", f"{path}, {messages:,} messages; `everlong sessions verify` checks every hash")
    with open_store(situation.settings.store) as store:
        problems = store.verify().problems
    if problems:
        return fail("store", f"{path} contradicts itself: {problems[0]}", _RESTORE)
    return ok("store", f"{path}, {messages:,} messages, every hash is right")


def _schema(version: str) -> Finding:
    from everlong.store.versions import HEAD, is_known  # noqa: PLC0415 - keeps `everlong --help` quick

    if version == HEAD:
        return ok("migrations", f"the schema is {HEAD}, the newest")
    if is_known(version):
        text = f"the schema is {version}, this version's is {HEAD}; it is brought up to date when the store is opened"
        return warn("migrations", text, "copy the file first if an older Everlong has to open it again")
    text = f"the schema is {version!r}, and this version knows up to {HEAD!r}"
    return fail("migrations", text, "update Everlong: the store was written by a newer version")


def _server(backend: PostgreSQL) -> Iterator[Finding]:
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.errors import StoreError  # noqa: PLC0415 - as above
    from everlong.store.database import version_of  # noqa: PLC0415 - as above

    advice = "check store.url, the server and the network"
    backend.url = backend.url.update_query_dict({"connect_timeout": "5"})
    try:
        engine = backend.engine()
        try:
            with engine.connect() as connection:
                version = version_of(connection)
                is_empty = version is None and backend.is_empty(connection)
        finally:
            engine.dispose()
    except StoreError as error:
        yield fail("store", str(error), advice)
        return
    except DBAPIError as error:
        yield fail("store", str(backend.translated(error)), advice)
        return
    if version is not None:
        yield ok("store", f"{backend.where} answers")
        yield _schema(version)
    elif is_empty:
        yield ok("store", f"{backend.where} answers and is empty; the first conversation makes its tables")
    else:
        yield fail("store", f"{backend.where} holds tables that are not Everlong's", "name another database")


def check_disk(situation: Situation) -> Iterator[Finding]:
    """How much room is left where data is kept."""
    from everlong.cli.sessions_common import size  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.config.paths import data_home  # noqa: PLC0415 - as above

    folder = nearest_folder(Path(situation.settings.store.path or data_home()).expanduser())
    free = shutil.disk_usage(folder).free
    text = f"{size(free)} are free at {folder}"
    if free < _LEAST_BYTES:
        yield fail("disk", text, "make room: a store that cannot be written keeps nothing")
    elif free < _LOW_BYTES:
        yield warn("disk", text, "make room; `everlong sessions vacuum` gives back what is not needed")
    else:
        yield ok("disk", text)


def check_logs(_: Situation) -> Iterator[Finding]:
    """Whether the logs of sessions can be written."""
    from everlong.config.paths import data_home  # noqa: PLC0415 - keeps `everlong --help` quick

    folder = data_home() / "logs"
    problem = folder_problem(folder)
    if problem is None:
        yield ok("logs", f"{folder} can be written to")
    else:
        yield fail("logs", f"logs cannot be written: {problem}", "mend it, or set EVERLONG_HOME to another folder")


def check_memory(situation: Situation) -> Iterator[Finding]:
    """Whether notes can be read, and the external provider is there."""
    from everlong.errors import ConfigError, NotesError  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.memory.external import offered_provider  # noqa: PLC0415 - as above
    from everlong.memory.notes import NotesMemory  # noqa: PLC0415 - as above

    chosen = situation.settings.memory
    if not chosen.enabled:
        yield ok("memory", "switched off (memory.enabled)")
        return
    notes = NotesMemory()
    try:
        count = sum(len(notes.notes(target)) for target in ("memory", "user"))
        problem = folder_problem(notes.folder)
    except NotesError as error:
        count, problem = 0, str(error)
    if problem is None:
        yield ok("memory", f"{count} {'note' if count == 1 else 'notes'} in {notes.folder}")
    else:
        yield fail("memory", problem, "mend the file or its permissions")
    if chosen.provider is None:
        return
    try:
        offered: Any = offered_provider(chosen.provider)
    except ConfigError as error:
        yield fail("memory provider", str(error), "everlong config set memory.provider null goes on without it")
    else:
        name = getattr(offered, "__name__", type(offered).__name__)
        yield ok("memory provider", f"{chosen.provider} can be loaded ({name}); it is made when a session starts")
