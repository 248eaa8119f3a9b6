"""A store of any older version opens, whole; one of a newer version or of somebody else is refused and left alone."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text

from everlong.errors import SchemaMismatch
from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.migrations.earlier import STEPS
from everlong.store.schema import (
    evidence,
    log_file,
    metadata,
    summary,
    summary_child,
    vector_block,
    vector_pending,
    vector_state,
)
from everlong.store.sqlite import SQLite
from everlong.store.tree import Branch
from everlong.store.upgrade import (
    EARLIER_VERSIONS,
    HEAD,
    MIGRATIONS,
    REVISIONS,
    VERSION_TABLE,
    open_database,
)
from tests.examples import length
from tests.store.old_stores import OldStore, create_earlier
from tests.waiting import PATIENCE

TALK: list[Message] = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]


def shape(database: Database) -> dict[str, object]:
    """Tables, columns, keys and indexes as the database tells them."""
    with database.engine.connect() as connection:
        seen = inspect(connection)
        return {
            table: (
                [(c["name"], str(c["type"]), c["nullable"], c.get("primary_key")) for c in seen.get_columns(table)],
                sorted((i["name"] or "", tuple(i["column_names"]), i["unique"]) for i in seen.get_indexes(table)),
                sorted(tuple(u["column_names"]) for u in seen.get_unique_constraints(table)),
            )
            for table in sorted(seen.get_table_names())
        }


def test_every_revision_is_listed_in_order() -> None:
    files = sorted((MIGRATIONS / "versions").glob("v*.py"))
    found = [re.search(r'^revision = "(\d+)"', file.read_text(encoding="utf-8"), re.MULTILINE) for file in files]
    assert (*STEPS, *(match[1] for match in found if match)) == REVISIONS
    assert sorted(REVISIONS) == list(REVISIONS)


def older(path: Path, revision: str) -> None:
    """A file as the version with that revision left it."""
    backend = SQLite(path)
    engine = backend.engine()
    with engine.begin() as connection:
        create_earlier(connection, revision)
    engine.dispose()


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_a_file_of_each_older_version_becomes_like_a_new_one(tmp_path: Path, revision: str) -> None:
    older(tmp_path / "old.db", revision)
    with Store.open(tmp_path / "old.db") as old, Store.open(tmp_path / "new.db") as new:
        assert shape(old.database) == shape(new.database)
        assert old.context(old.record(TALK)) == TALK


CHANNELS = tuple(table for name, table in metadata.tables.items() if name.startswith("channel_"))
LATER = (summary, summary_child, vector_state, vector_pending, vector_block, evidence, log_file, *CHANNELS)
"""The tables that came after the baseline."""


def test_the_last_version_before_the_baseline_only_gets_the_later_tables(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with Store.open(path) as store:
        store.record(TALK)
    new = (VERSION_TABLE, *(table.name for table in LATER))

    def dump() -> list[str]:
        with closing(sqlite3.connect(path)) as raw:
            return [line for line in raw.iterdump() if not any(name in line for name in new)]

    with closing(sqlite3.connect(path)) as raw, raw:
        for table in LATER:
            raw.execute(f"DROP TABLE {table.name}")
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (EARLIER_VERSIONS[-1],))  # noqa: S608 - a constant
    before = dump()
    Store.open(path).close()
    assert dump() == before
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [(HEAD,)]  # noqa: S608
    assert [file.name for file in tmp_path.glob("*.bak")] == []


def test_what_an_older_version_stored_is_still_there(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with OldStore(path, REVISIONS[0]) as old:
        at = old.record(TALK)
    with Store.open(path) as store:
        assert store.record(TALK) == Branch(1, at.node, at.depth)
        assert store.verify().problems == []
        assert store.sessions.newest() == []


USED: list[dict[str, Any]] = [
    {"response_id": "resp_1", "output_tokens": 3},
    {"response_id": "resp_2", "conversation_id": "conv_1"},
    {"output_tokens": 5},
    {"response_id": "", "conversation_id": "conv_1"},
    {"response_id": "no\0name", "conversation_id": "x" * 5_000},
]


def named_before_there_were_names(url: str | Path, more: int = 0) -> None:
    """Turns as the version before the table of names left them."""
    with OldStore(url, "0005") as old:
        at = old.record(TALK[:1])
        for number in range(more):
            old.turn(at, TALK[1], usage=json.dumps({"response_id": f"more_{number}"}))
        for used in USED:
            old.turn(at, TALK[1], usage=json.dumps(used))
        old.turn(at, None, status="failed", usage=json.dumps({"response_id": "resp_9"}))


def check_names(store: Store, more: int = 0) -> None:
    names = ("resp_1", "resp_2", "conv_1", "resp_9", "")
    found = {name: store.turns.named(name) for name in names}
    assert {name: turn and turn.id - 1 - more for name, turn in found.items()} == {
        "resp_1": 0,
        "resp_2": 1,
        "conv_1": 3,
        "resp_9": None,  # there is nothing to go on from
        "": None,
    }
    assert None not in [store.turns.named(f"more_{number}") for number in range(more)]
    assert Store(store.database, "ben").turns.named("resp_1") is None
    assert store.verify().problems == []


def test_names_that_an_older_version_kept_among_figures_are_found(tmp_path: Path) -> None:
    more = 1_001  # more than are read at once
    named_before_there_were_names(tmp_path / "old.db", more)
    with Store.open(tmp_path / "old.db") as store:
        check_names(store, more)


def test_the_server_is_brought_up_to_date_too(schema_url: str, postgres_url: str) -> None:
    engine = create_engine(schema_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        create_earlier(connection, REVISIONS[0])
    engine.dispose()
    old, new = open_database(schema_url), open_database(postgres_url)
    try:
        ours = set(shape(old))
        assert {table: form for table, form in shape(new).items() if table in ours} == shape(old)
        assert "session" in ours
    finally:
        old.close()
        new.close()


def test_names_that_an_older_version_kept_on_the_server_are_found(schema_url: str) -> None:
    named_before_there_were_names(schema_url)
    with Store.open(schema_url) as store:
        check_names(store)


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    Store.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608 - a constant
    with pytest.raises(SchemaMismatch, match=r"newer version of Everlong .*'9999'.*update Everlong"):
        Store.open(path)


def test_somebody_elses_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE session (id INTEGER)")
        raw.execute("INSERT INTO session VALUES (7)")
    with pytest.raises(SchemaMismatch, match=r"other\.db holds tables that are not Everlong's.*store\.path"):
        Store.open(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT * FROM session").fetchall() == [(7,)]
        assert raw.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)


def test_somebody_elses_tables_on_the_server_are_refused(schema_url: str) -> None:
    engine = create_engine(schema_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE session (id INTEGER)"))
    engine.dispose()
    with pytest.raises(SchemaMismatch, match="not Everlong's"):
        open_database(schema_url)


def test_an_upgrade_of_another_process_is_waited_for_longer_than_a_write(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    older(path, REVISIONS[0])
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        letting_go = threading.Timer(1.0, lambda: other.execute("ROLLBACK"))
        letting_go.start()
        open_database(path, wait=0.1).close()
        letting_go.join()


OPENING = """
import sys
import threading
from everlong.store import Store
with Store.open(sys.argv[1]) as store:
    store.record([{"role": "user", "content": "hello"}])
print("alembic" in sys.modules)
"""


AT_ONCE = length(4, 2)


@pytest.mark.parametrize("start", ["new", "old"])
def test_several_processes_may_open_a_new_or_old_file_at_once(tmp_path: Path, start: str) -> None:
    path = tmp_path / "shared.db"
    if start == "old":
        older(path, REVISIONS[0])
    command = [sys.executable, "-c", OPENING, str(path)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(AT_ONCE)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in running]
    assert [process.returncode for process in running] == [0] * AT_ONCE, said
    if start == "new":  # loading Alembic takes longer than opening a store
        assert {out.strip() for out, _ in said} == {"False"}
    with Store.open(path) as store:
        assert store.verify().problems == []
        assert store.verify().messages == 1


def test_several_processes_may_open_an_empty_server_at_once(schema_url: str) -> None:
    command = [sys.executable, "-c", OPENING, schema_url]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(AT_ONCE)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in running]
    assert [process.returncode for process in running] == [0] * AT_ONCE, said


def test_the_newest_revision_is_the_head() -> None:
    assert REVISIONS[-1] == HEAD
