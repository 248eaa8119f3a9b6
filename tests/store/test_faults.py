"""When the disk, the file, the server or a process fails: a clear error, and nothing damaged."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from everlong.errors import StoreBusy, StoreFull
from everlong.model import Message
from everlong.store import Store
from tests.examples import length
from tests.store.engines import ScriptedEngine, summarizing
from tests.waiting import PATIENCE

TALK: list[Message] = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n}"} for n in range(10)]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_processes_killed_at_random_moments_lose_nothing_and_leave_the_store_sound() -> None:
    rounds = length(10, 2)
    command = [sys.executable, "-m", "bench.store.faults", "--rounds", str(rounds), "--quick"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{rounds} rounds" in ran.stdout


def test_a_full_disk_is_told_and_nothing_is_damaged(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        at = store.record(TALK)
        pages = 0

        def limit(connection: sqlite3.Connection, *_: object) -> None:
            nonlocal pages
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(store.database.engine, "checkout", limit)
        with pytest.raises(StoreFull, match=r"store\.db: no room left on the disk; nothing was changed"):
            store.append(at, [{"role": "user", "content": os.urandom(50_000).hex()}])
        event.remove(store.database.engine, "checkout", limit)
        store.database.engine.dispose()
        assert store.context(at) == TALK
        assert store.verify().problems == []
        assert store.append(at, TALK[:1]).depth == 11


READ_ONLY = """
import os, sys
import everlong.store.sqlite  # while all of Python's own modules can be read
from everlong.errors import StoreError
from everlong.store import Store
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    with Store.open(sys.argv[1]) as store:
        store.record([{"role": "user", "content": "hello"}])
except StoreError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX ones")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_file_is_told(what: str) -> None:
    with tempfile.TemporaryDirectory() as outer:  # not below a folder that only this user may enter
        Path(outer).chmod(0o755)
        folder = Path(outer) / "kept"
        folder.mkdir()
        path = folder / "store.db"
        with Store.open(path) as store:
            at = store.record(TALK)
        path.chmod(0o444)
        folder.chmod(0o777 if what == "file" else 0o555)
        ran = run(READ_ONLY, str(path))
        folder.chmod(0o700)
        path.chmod(0o600)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("StoreUnavailable"), ran.stdout
        assert "permissions" in ran.stdout
        with Store.open(path) as store:
            assert store.context(at) == TALK


def test_a_locked_database_is_waited_for_and_then_told(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path, wait=0.1) as store:
        at = store.record(TALK)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match=r"locked by another process for more than 0\.1 seconds"):
            store.append(at, TALK[:1])
        assert store.context(at) == TALK  # reading goes on
        holder.execute("ROLLBACK")
        holder.close()
        assert store.append(at, TALK[:1]).depth == 11


def test_the_file_and_its_logs_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        with Store.open(tmp_path / "deep" / "store.db") as store:
            store.record(TALK)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "deep").iterdir()}
    finally:
        os.umask(previous)
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", ".store.db.tally"), 0o600)
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700


def test_threads_share_one_store(store: Store) -> None:
    at = store.record(TALK)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(5):
                store.append(at, [{"role": "user", "content": f"thread {number} step {step}"}])
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.verify().messages == 40
    assert store.verify().problems == []


def test_of_two_compactions_at_once_one_holds_and_the_other_reads_again(store: Store) -> None:
    at = store.record(TALK)

    def while_another_compacts(messages: list[Message]) -> list[Message]:
        inner = store.compact(at, ScriptedEngine(summarizing(0, 3, "another's")))
        assert inner.outcome == "busy"  # the lease keeps it from paying twice
        return summarizing(0, 5, "mine")(messages)

    assert store.compact(at, ScriptedEngine(while_another_compacts)).outcome == "compacted"
    store.undo(at)

    def after_the_lease_ran_out(messages: list[Message]) -> list[Message]:
        inner = store.compact(at, ScriptedEngine(summarizing(0, 3, "another's")))
        assert inner.outcome == "compacted"
        return summarizing(0, 5, "mine")(messages)

    lost: Any = store.compact(at, ScriptedEngine(after_the_lease_ran_out), lease_seconds=-1.0)
    assert lost.outcome == "lost"
    assert (
        lost.messages == store.context(at) == [{"role": "user", "content": "[CONTEXT SUMMARY]: another's"}, *TALK[3:]]
    )
    assert store.verify().problems == []
