"""The program as a whole: help, version, exit codes, errors, interruption."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everlong import EverlongError
from everlong.cli import main as program
from tests.cli.conftest import Run
from tests.waiting import PATIENCE


@pytest.mark.parametrize(
    ("given", "near"),
    [
        (["compres"], "Did you mean 'compress'?"),
        (["config", "list"], "There are: set, show."),
        (["wrap", "--prot", "1", "--", "true"], "Did you mean '--port'?"),
    ],
)
def test_a_misspelt_command_or_option_is_refused_with_the_nearest_name(run: Run, given: list[str], near: str) -> None:
    ran = run(*given)
    assert (ran.code, near in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (EverlongError("the tide is out"), 1, "everlong: the tide is out"),
        (PermissionError(13, "Permission denied", "x.json"), 1, "everlong: x.json: Permission denied"),
        (KeyboardInterrupt(), 130, "everlong: interrupted"),
    ],
)
def test_failures_are_one_line_and_an_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(program.cli, "main", fail)
    ran = run("demo")
    assert (ran.code, ran.err.strip()) == (code, words)


def test_a_traceback_is_shown_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    plain = subprocess.run(
        [sys.executable, "-c", _RUN, "compress", str(path)], capture_output=True, text=True, check=False
    )
    debug = subprocess.run(
        [sys.executable, "-c", _RUN, "--debug", "compress", str(path)], capture_output=True, text=True, check=False
    )
    assert (plain.returncode, "Traceback" in plain.stderr) == (1, False)
    assert (debug.returncode, "Traceback" in debug.stderr) == (1, True)


_RUN = "from everlong.cli.main import main; main()"


def test_a_reader_that_goes_away_early_causes_no_noise(session_file: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, "compress", str(session_file), "--context-length", "2000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=PATIENCE)
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors


PROGRAM = (
    "import sys, atexit; from everlong.cli.main import main\n"
    "atexit.register(lambda: print([name for name in sys.modules if name.startswith('everlong.cli.chat')]))\n"
    "main()"
)


def complete(folder: Path, **variables: str) -> list[str]:
    path = os.pathsep.join(filter(None, sys.path))
    env = {**os.environ, "PYTHONPATH": path, "EVERLONG_HOME": str(folder), **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("typed", "place", "completed"),
    [
        ("everlong ch", "1", ["plain,channels", "plain,chat", "[]"]),
        ("everlong usage --by da", "3", ["plain,day", "[]"]),
    ],
)
def test_commands_and_values_complete_without_loading_the_chat(
    tmp_path: Path, typed: str, place: str, completed: list[str]
) -> None:
    assert complete(tmp_path, _EVERLONG_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=place) == completed
