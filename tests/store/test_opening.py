"""A store of another version or of somebody else is refused and left alone; several may create one at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from everlong.errors import SchemaMismatch
from everlong.store import Store
from everlong.store.opening import VERSION_TABLE, open_database
from tests.examples import length
from tests.waiting import PATIENCE


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            "9999",
            r"other\.db was written by a newer version of Everlong .*'9999'.*update Everlong, or name another file",
        ),
        ("0001", r"other\.db was written by an older version of Everlong .*'0001'.*; nothing converts it, so move it"),
    ],
)
def test_a_schema_of_another_version_is_refused_and_left_alone(tmp_path: Path, version: str, said: str) -> None:
    path = tmp_path / "other.db"
    Store.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (version,))  # noqa: S608 - a constant
    with pytest.raises(SchemaMismatch, match=said):
        Store.open(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone() == (version,)  # noqa: S608


def test_somebody_elses_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE session (id INTEGER)")
        raw.execute("INSERT INTO session VALUES (7)")
    with pytest.raises(SchemaMismatch, match=r"other\.db holds tables that are not Everlong's.*store\.url"):
        Store.open(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT * FROM session").fetchall() == [(7,)]
        assert raw.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)


def test_the_creation_of_the_tables_by_another_process_is_waited_for_longer_than_a_write(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("BEGIN IMMEDIATE")
        letting_go = threading.Timer(1.0, lambda: other.execute("ROLLBACK"))
        letting_go.start()
        open_database(path, wait=0.1).close()
        letting_go.join()


OPENING = """
import sys
from everlong.store import Store
with Store.open(sys.argv[1]) as store:
    store.record([{"role": "user", "content": "hello"}])
"""


AT_ONCE = length(4, 2)


def test_several_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    command = [sys.executable, "-c", OPENING, str(path)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(AT_ONCE)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in running]
    assert [process.returncode for process in running] == [0] * AT_ONCE, said
    with Store.open(path) as store:
        assert store.verify().problems == []
        assert store.verify().messages == 1
