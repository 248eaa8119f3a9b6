"""Logs that other processes read ahead: they end in the store as if the archiver had read them itself."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everlong.cli.archive import log_import
from everlong.cli.archive.log_import import FileImport
from everlong.cli.archive.log_reading import LogEnd, LogTask
from everlong.cli.archive.reading_processes import ReadingFailed, ReadingProcesses
from everlong.errors import EverlongError
from everlong.store import Store
from everlong.store.log_files import LogFiles
from everlong.store.opening import redacted_message
from everlong.store.upkeep.maintenance import stats
from tests.archive import samples
from tests.archive.samples import ClaudeLog
from tests.examples import few
from tests.waiting import until

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"  # made up


@pytest.fixture(params=few(["sqlite", "postgresql"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    where = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with Store.open(where, uuid.uuid4().hex) as opened:
        yield opened


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return a folder with logs of several kinds: long, with a rewind, broken, of another client, and none at all."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(5):
        log = ClaudeLog(f"s{number}")
        for turn in range(30):
            log.ask(f"{number} asks {turn}?").work(f"Look {turn}.", **{f"toolu_{number}_{turn}": f"found {turn}"})
            log.say(f"{number} says {turn}.")
        (folder / f"{number}.jsonl").write_text(log.text())
    log = ClaudeLog("back").ask("Left or right?").say("Left.")
    back = log.parent
    log.ask("Why?").say("Because.")
    log.parent = back
    log.ask("Are you sure?").say("Quite.")
    (folder / "5.jsonl").write_text(log.text())
    (folder / "6.jsonl").write_text(samples.codex_rollout())
    (folder / "7.jsonl").write_text("no log\n")
    (folder / "8.jsonl").write_text(json.dumps({"type": "queue-operation", "sessionId": "s"}) + "\n{broken\n")
    return folder


def import_all(store: Store, logs: Path, processes: int) -> list[FileImport | OSError | EverlongError | None]:
    return [found for _, found in samples.OwnLogs(store).add_all(sorted(logs.glob("*.jsonl")), processes=processes)]


def spoken(store: Store) -> list[list[str]]:
    talks = store.conversations.newest()
    return sorted([str(line.entry.message) for line in store.conversations.lines(one.id)] for one in talks)


def test_the_same_is_stored_whoever_reads(
    store: Store, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_import, "PART", 5_000)
    with Store.open(tmp_path / "alone.db", store.tenant) as alone:
        assert _told(import_all(store, logs, 2)) == _told(import_all(alone, logs, 0))
        assert (spoken(store), stats(store)["messages"]) == (spoken(alone), stats(alone)["messages"])
        paths = [str(path) for path in sorted(logs.glob("*.jsonl"))]
        for name in paths:
            ours, theirs = LogFiles(store).get(name), LogFiles(alone).get(name)
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert (ours.read_to, ours.mark, ours.stamp) == (theirs.read_to, theirs.mark, theirs.stamp)
    assert store.verify().problems == []


def _told(found: list[FileImport | OSError | EverlongError | None]) -> list[object]:
    return [one.outcomes if isinstance(one, FileImport) else one for one in found]


def test_secrets_are_taken_out_by_the_processes_too(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(ClaudeLog().ask(f"Use {KEY}, please.").say("Done.").text())
    with Store.open(tmp_path / "store.db") as plain:
        store = Store(plain.database, redact=redacted_message)
        list(samples.OwnLogs(store).add_all([path], processes=1))
        assert KEY not in str(spoken(store))
        assert "[redacted:api_key]" in str(spoken(store))


def test_the_end_of_a_process_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(ClaudeLog().ask("Here?").say("Here.").text())
    task = LogTask(str(path), "claude-code", "local")
    readers = ReadingProcesses(1)
    try:
        assert isinstance(list(readers.submit(task))[-1], LogEnd)
        with pytest.raises(ReadingFailed):
            list(readers.submit(task._replace(path=str(tmp_path / "nothing"))))
        assert isinstance(list(readers.submit(task))[-1], LogEnd)
        os.kill(readers.pids[0], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(ReadingFailed):
                list(readers.submit(task))
    finally:
        readers.close()


def test_an_archiver_with_processes_that_is_killed_goes_on(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.open(path).close()
    program = (
        "import sys; from pathlib import Path; from everlong.cli.archive import log_import; log_import.PART = 6_000\n"
        "from everlong.store import Store\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    archive = log_import.LogImport(store)\n"
        "    for _ in archive.add_all(sorted(Path(sys.argv[2]).glob('*.jsonl')), processes=2): print(flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(path), str(logs)]

    def messages() -> int:
        with closing(sqlite3.connect(path)) as raw:
            return int(raw.execute("SELECT COUNT(*) FROM node").fetchone()[0])

    for least in (1, 300):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            until(lambda least=least, process=process: messages() >= least or process.poll() is not None)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with Store.open(path) as store, Store.open(tmp_path / "alone.db") as alone:
        import_all(alone, logs, 0)
        assert (spoken(store), stats(store)["messages"]) == (spoken(alone), stats(alone)["messages"])
        assert store.verify().problems == []
