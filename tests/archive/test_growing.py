"""A log that its client writes, rotates, cuts off or deletes while it is archived: every complete line arrives once."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from everlong.cli.archive.log_import import LogFolder
from everlong.store import Store
from everlong.store.store import redacted_message
from everlong.store.upkeep.maintenance import stats
from tests.archive import samples
from tests.archive.samples import ClaudeLog
from tests.waiting import until


def spoken(store: Store) -> list[str]:
    found = []
    for one in sorted(store.conversations.newest(), key=lambda one: one.started):
        for line in store.conversations.lines(one.id):
            content = line.entry.message.get("content")
            texts = (
                [part.get("text") for part in content if part.get("text")] if isinstance(content, list) else [content]
            )
            found += [text for text in texts if text]
    return found


def long_log(prompts: int = 40) -> ClaudeLog:
    log = ClaudeLog()
    for number in range(prompts):
        log.ask(f"Question {number}?").work(f"Look {number}.", **{f"toolu_{number}": f"result {number}"})
        log.say(f"Answer {number}.")
    return log


def every_word(prompts: int = 40) -> list[str]:
    steps = ("Question {}?", "Look {}.", "result {}", "Answer {}.")
    return [step.format(number) for number in range(prompts) for step in steps]


def test_secrets_of_a_log_are_not_stored_where_a_store_redacts(store: Store, tmp_path: Path) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"  # made up
    path = tmp_path / "log.jsonl"
    path.write_text(ClaudeLog().ask(f"Use {key}, please.").say("Done.").text())
    clean = Store(store.database, redact=redacted_message)
    samples.OwnLogs(clean).add(path)
    assert spoken(clean) == ["Use [redacted:api_key], please.", "Done."]


def test_a_log_read_after_every_line_ends_as_one_that_is_read_at_once(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    now = 0.0  # before the file was written, so that its end is never taken for complete
    archive = samples.OwnLogs(store, clock=lambda: now)
    with path.open("a") as file:
        for line in long_log(12).text().splitlines(keepends=True):
            file.write(line)
            file.flush()
            assert archive.add(path, is_growing=True) is not None
    samples.OwnLogs(store).add(path)
    assert spoken(store) == every_word(12)
    assert store.conversations.newest()[0].messages == len(every_word(12))
    assert store.verify().problems == []


def test_the_last_message_waits_until_the_client_has_written_it(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = long_log(2)
    path.write_text(log.text())
    now = path.stat().st_mtime
    archive = samples.OwnLogs(store, clock=lambda: now)
    archive.add(path, is_growing=True)
    assert spoken(store) == every_word(2)[:-1]
    now += 60
    archive.add(path, is_growing=True)
    assert spoken(store) == every_word(2)


def test_a_rotated_log_is_read_from_its_beginning(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(long_log(5).text())
    samples.OwnLogs(store).add(path)
    path.rename(tmp_path / "log.1.jsonl")
    path.write_text(ClaudeLog("other").ask("A new day?").say("A new day.").text() + " " * 20_000 + "\n")
    samples.OwnLogs(store).add(path)
    assert sorted(spoken(store)) == sorted([*every_word(5), "A new day?", "A new day."])


def test_a_rewind_keeps_both_ways(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = ClaudeLog().ask("Left or right?").say("Left.")
    back = log.parent
    log.ask("Why?").say("Because.")
    path.write_text(log.text())
    samples.OwnLogs(store).add(path)
    log.parent = back
    log.ask("Are you sure?").say("Quite.")
    path.write_text(log.text())
    samples.OwnLogs(store).add(path)
    log.ask("Good.").say("Thanks.")
    path.write_text(log.text())
    grown = samples.OwnLogs(store).add(path)
    assert grown is not None
    assert dict(grown.outcomes)["grown"] == 1
    talks = [[line.entry.message for line in store.conversations.lines(one.id)] for one in store.conversations.newest()]
    assert sorted(len(talk) for talk in talks) == [4, 6]
    assert store.verify().problems == []


def test_two_archivers_at_once_store_everything_once(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(6):
        log = ClaudeLog(f"s{number}")
        for turn in range(10):
            log.ask(f"{number} asks {turn}?").say(f"{number} says {turn}.")
        (logs / f"{number}.jsonl").write_text(log.text())
    problems: list[BaseException] = []

    def archive() -> None:
        try:
            with Store.open(tmp_path / "store.db", wait=60) as mine:
                samples.scan(mine, [LogFolder("claude-code", logs, ("*.jsonl",))])
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)

    Store.open(tmp_path / "store.db").close()
    threads = [threading.Thread(target=archive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store.open(tmp_path / "store.db") as store:
        assert problems == []
        assert sorted(one.messages for one in store.conversations.newest()) == [20] * 6
        assert stats(store)["messages"] == 120
        assert store.verify().problems == []


def _is_far_enough(messages: Callable[[], int], least: int, process: subprocess.Popen[bytes]) -> bool:
    return messages() >= least or process.poll() is not None


def test_an_archiver_that_is_killed_goes_on(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(4):
        log = ClaudeLog(f"s{number}")
        for turn in range(20):
            log.ask(f"{number} asks {turn}?").say(f"{number} says {turn}. " + "word " * 50)
        (logs / f"{number}.jsonl").write_text(log.text())
    path = tmp_path / "store.db"
    Store.open(path).close()
    program = (
        "import sys; from pathlib import Path\n"
        "from everlong.cli.archive.log_import import LogFolder; from tests.archive.samples import scan\n"
        "from everlong.store import Store\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    scan(store, [LogFolder('claude-code', Path(sys.argv[2]), ('*.jsonl',))])\n"
    )
    command = [sys.executable, "-c", program, str(path), str(logs)]

    def messages() -> int:
        with closing(sqlite3.connect(path)) as raw:
            return int(raw.execute("SELECT COUNT(*) FROM node").fetchone()[0])

    for least in (1, 60):
        with subprocess.Popen(command) as process:
            until(partial(_is_far_enough, messages, least, process))
            process.send_signal(signal.SIGKILL)
    subprocess.run(command, check=True)
    with Store.open(path) as store:
        assert sorted(one.messages for one in store.conversations.newest()) == [40] * 4
        assert stats(store)["messages"] == 160
        assert store.verify().problems == []


def test_a_database_is_read_where_it_has_changed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    samples.write_opencode(path)
    samples.OwnLogs(store).add(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        samples.add_opencode(raw, "s1", "m5", "user", [{"type": "text", "text": "And wire?"}], at=50)
        raw.execute("UPDATE session SET time_updated = 50 WHERE id = 's1'")
    found = samples.OwnLogs(store).add(path)
    assert found is not None
    assert (found.outcomes["grown"], found.outcomes["new"]) == (1, 0)
    assert "And wire?" in spoken(store)


@pytest.mark.parametrize("now", [1_788_800_000.0, 1e11])
def test_a_clock_that_was_wrong_hides_nothing_that_comes_later(now: float, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    samples.write_opencode(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE session SET time_updated = 99999999999999 WHERE id = 's2'")
    samples.OwnLogs(store, clock=lambda: now).add(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        samples.add_opencode(raw, "s1", "m5", "user", [{"type": "text", "text": "And wire?"}], at=1_788_800_001_000)
    samples.OwnLogs(store, clock=lambda: 1_788_800_002.0).add(path)
    assert "And wire?" in spoken(store)
