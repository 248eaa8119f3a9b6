"""Logs that other processes read ahead: they end in the store as if the archiver had read them itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from everlong.cli.archive import log_import
from everlong.cli.archive.log_import import FileImport
from everlong.errors import EverlongError
from everlong.store import Store
from everlong.store.log_files import LogFiles
from everlong.store.maintenance import stats
from everlong.store.opening import redacted_message
from tests.archive import samples
from tests.archive.samples import ClaudeLog
from tests.examples import few

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
