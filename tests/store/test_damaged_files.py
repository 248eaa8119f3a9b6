"""A file that is damaged, or has lost its end, is never called well."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from everlong.errors import StoreDamaged
from everlong.model import Message
from everlong.store import Store
from everlong.store.database import ask
from tests.examples import length

pytestmark = pytest.mark.spec("12.7")

PAGE = 4096


def talk(number: int) -> list[Message]:
    return [
        {"role": "user", "content": f"Question {number}: " + "and so on " * 30},
        {"role": "assistant", "content": f"Answer {number}: " + "so it is " * 30},
    ]


def filled(path: Path, count: int = 60) -> Path:
    with Store.open(path) as store:
        with store.batch():
            for number in range(count):
                at = store.record(talk(number), conversation=f"made-up {number}")
                store.turns.begin(at)
        while store.searcher.index_pending(100):
            pass
    return path


def is_well(path: Path) -> bool:
    """What `verify` says, or that the file cannot even be opened."""
    try:
        with Store.open(path) as store:
            return not store.verify().problems
    except StoreDamaged:
        return False


def sqlite_says(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as raw:
            return str(raw.execute("PRAGMA integrity_check").fetchone()[0])
    except sqlite3.DatabaseError as error:
        return str(error)


def test_what_the_database_itself_finds_damaged_is_told(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.db")
    assert is_well(whole)
    pages = whole.stat().st_size // PAGE
    chance, missed, damaged = random.Random(4711), [], 0
    for page in sorted(chance.sample(range(1, pages), min(length(40, 16), pages - 1))):
        copy = tmp_path / f"page{page}.db"
        shutil.copy(whole, copy)
        with copy.open("r+b") as file:
            file.seek(page * PAGE)
            file.write(chance.randbytes(PAGE))
        if sqlite_says(copy) != "ok":
            damaged += 1
            missed += [page] if is_well(copy) else []
    assert damaged > length(20, 8)
    assert missed == []


KILLED = """
import os, signal, sys
from everlong.store import Store
store = Store.open(sys.argv[1])
for number in range(int(sys.argv[2])):
    at = store.record([{"role": "user", "content": f"Question {number}"}], conversation=f"{os.getpid()} {number}")
    store.turns.begin(at)
os.kill(os.getpid(), signal.SIGKILL)
"""


def write_and_die(path: Path, count: int) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path), str(count)], check=False, env=env)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_log_that_was_deleted_is_noticed_and_not_forgotten_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "store.db", 9)
    write_and_die(path, 30)
    with Store.open(path) as store:
        assert store.verify().problems == []  # all that was acknowledged is there
    write_and_die(path, 44)
    Path(f"{path}-wal").unlink()
    with Store.open(path) as store:
        (problem,) = store.verify().problems
        assert "lacks the newest 44 messages and 44 turns" in problem
        for number in range(100):
            store.record(talk(number), conversation=f"later {number}")
    with Store.open(path) as store:
        assert store.verify().problems == [problem]
    path.with_name(".store.db.tally").unlink()
    assert is_well(path)


@pytest.mark.spec("12.7")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_log_that_was_deleted_with_everything_that_is_called_like_the_store_is_noticed(tmp_path: Path) -> None:
    path = filled(tmp_path / "store.db", 9)
    write_and_die(path, 43)
    for file in tmp_path.glob("store.db-*"):
        file.unlink()
    with Store.open(path) as store:
        (problem,) = store.verify().problems
        assert "lacks the newest 43 messages and 43 turns" in problem


@pytest.mark.spec("12.7")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_where_nobody_can_tell_whether_the_end_is_missing_verify_says_so(tmp_path: Path) -> None:
    path = filled(tmp_path / "store.db", 9)
    with Store.open(path) as store:
        assert store.verify().remarks == []
    write_and_die(path, 43)
    for file in (*tmp_path.glob("store.db-*"), *tmp_path.glob(".*")):
        file.unlink()
    for _ in range(2):
        with Store.open(path) as store:
            checked = store.verify()
            assert checked.problems == []
            assert "is not known" in checked.remarks[0]


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are made with POSIX calls")
@pytest.mark.parametrize("kind", ["link", "second name", "pipe"])
def test_a_link_or_pipe_that_came_with_a_store_is_neither_written_nor_waited_for(tmp_path: Path, kind: str) -> None:
    path, tally = filled(tmp_path / "store.db", 3), tmp_path / ".store.db.tally"
    tally.unlink()
    other = tmp_path / "of_the_user.txt"
    other.write_text("precious")
    if kind == "pipe":
        os.mkfifo(tally)
    elif kind == "link":
        tally.symlink_to(other)
    else:
        os.link(other, tally)
    with Store.open(path) as store:
        store.record([{"role": "user", "content": "Is the lock open?"}])
        assert store.verify().problems == []
    assert other.read_text() == "precious"


def test_a_page_that_is_damaged_behind_the_first_row_is_told_as_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "s.db", 300)
    with closing(sqlite3.connect(path)) as raw:
        pages = [row[0] for row in raw.execute("SELECT pageno FROM dbstat WHERE name = 'turn' AND pagetype = 'leaf'")]
    with path.open("r+b") as file:
        file.seek((pages[-1] - 1) * PAGE)
        file.write(b"\xff" * PAGE)
    with Store.open(path) as store:
        everything = "SELECT id, node FROM turn ORDER BY id"
        with pytest.raises(StoreDamaged), store.database.read() as connection:
            ask(connection, everything).fetchall()
        with pytest.raises(StoreDamaged):
            store.database.write(lambda connection: ask(connection, everything).fetchall())
        with pytest.raises(StoreDamaged), store.batch():
            store.database.write(lambda connection: ask(connection, everything).fetchall())
