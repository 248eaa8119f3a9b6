"""Completion in the shell, by the script of click's that docs/commands.md names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
