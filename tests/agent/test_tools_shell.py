"""``run_command``: whatever a command does, it ends, all of it, and the model learns how."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from everlong.agent.tools import process
from tests.agent.desk import Desk
from tests.waiting import is_running, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands of a POSIX shell")


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.2)
    monkeypatch.setattr(process, "QUIET", 0.1)


def test_every_command_begins_in_the_root_folder_with_no_input_and_no_terminal(desk: Desk) -> None:
    assert desk.done("run_command", command="cd /; pwd").startswith("/\n")
    assert desk.done("run_command", command="pwd").startswith(f"{desk.root}\n")
    assert desk.done("run_command", command="cat; echo read").startswith("read\n")
    assert "[exit code 1]" in desk.failed("run_command", command="cat < /dev/tty")
    assert desk.done("run_command", command="echo $TERM $PAGER").startswith("dumb cat\n")


def test_escape_sequences_and_bytes_that_are_no_text_do_not_reach_the_model(desk: Desk) -> None:
    said = desk.done("run_command", command=r"printf '\033[1;31mred\033[0m \033]0;title\007\0 \377\n'")
    assert said == "red ␀ �\n[exit code 0]"


def test_a_command_over_its_time_is_stopped_with_all_that_it_started(desk: Desk) -> None:
    command = "sleep 600 & echo $!; trap '' TERM; (trap '' TERM; sleep 600) & echo $!; while true; do sleep 1; done"
    *pids, ending = desk.failed("run_command", command=command, timeout=1).splitlines()
    assert ending.startswith(
        "[stopped with all that it had started, as far as can be seen: it timed out after 1 seconds."
    )
    until(lambda: not any(is_running(int(pid)) for pid in pids))


def test_an_interrupt_stops_a_command_and_shows_what_it_had_printed(desk: Desk) -> None:
    (desk.root / "begun").unlink(missing_ok=True)

    def interrupt() -> None:
        until((desk.root / "begun").exists)
        desk.context.interrupted.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = desk.run("run_command", command="echo $$; touch begun; sleep 600")
    thread.join()
    assert result.outcome == "interrupted"
    pid, ending = result.message["content"].splitlines()
    assert ending == "[interrupted by the user, and stopped with all that it had started, as far as can be seen]"
    assert not is_running(int(pid))


def test_a_command_that_prints_for_ever_is_bounded_and_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FIRST_BYTES", 40_000)
    monkeypatch.setattr(process, "LAST_BYTES", 10_000)

    def interrupt() -> None:
        until((desk.root / "enough").exists)
        desk.context.interrupted.set()

    for_ever = "while :; do echo harbour; done"
    thread = threading.Thread(target=interrupt)
    thread.start()
    result = desk.run("run_command", command=f"{for_ever} | head -c 200000; touch enough; {for_ever}")
    thread.join()
    assert result.outcome == "interrupted"
    assert result.whole is not None
    assert len(result.whole) < 51_000
    assert "bytes were not kept …]" in result.whole
    assert len(result.message["content"]) <= desk.context.output_chars
    assert result.message["content"].endswith(
        "[interrupted by the user, and stopped with all that it had started, as far as can be seen]"
    )


def test_what_a_command_leaves_in_the_background_does_not_keep_us_waiting_and_is_not_killed(desk: Desk) -> None:
    command = "(while true; do echo tick; echo >> ticks; sleep 0.02; done) & echo $!"
    said = desk.done("run_command", command=command)
    pid = int(next(line for line in said.splitlines() if line.isdigit()))
    try:
        assert "[something that it started still runs and has this output open" in said
        ticks = desk.root / "ticks"
        until(ticks.exists)
        more = ticks.stat().st_size + 3
        until(lambda: ticks.stat().st_size >= more)  # it did not die of a closed pipe
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": " "}, "the command is empty"),
        ({"command": "echo a\0b"}, "NUL character"),
        ({"command": "true " + "x" * 3_000_000}, "the command could not be started"),
        ({"command": "echo \ud800"}, "the command could not be started"),
        ({"command": "true", "timeout": 0}, "'timeout' is 0: it must be greater than 0"),
    ],
)
def test_what_cannot_be_run_is_a_failed_call(desk: Desk, arguments: dict[str, object], said: str) -> None:
    assert said in desk.failed("run_command", **arguments)
