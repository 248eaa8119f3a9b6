"""``everlong completion``: what real shells complete with the script that it prints."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.record_chat.terminal import Terminal

from tests.program import everlong_program

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(_EVERLONG_COMPLETE=bash_source everlong)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit && compinit -u -D && eval "$(_EVERLONG_COMPLETE=zsh_source everlong)"',
    ),
    "fish": (["fish", "--private", "--no-config", "-i"], "_EVERLONG_COMPLETE=fish_source everlong | source"),
}
"""How each shell starts without its user's files, and the line of the documentation."""


def in_shell(shell: str, folder: Path) -> Terminal:
    command, line = SHELLS[shell]
    path = shutil.which(command[0])
    if path is None:
        pytest.skip(f"{shell} is not installed")
    program = folder / "bin" / "everlong"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(everlong_program())} "$@"\n')
    program.chmod(0o755)
    env = {
        **{name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ},
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "EVERLONG_HOME": str(folder / "everlong"),
        "XDG_CONFIG_HOME": str(folder),
        "TERM": "xterm",
        "PS1": "$ ",
    }
    terminal = Terminal([path, *command[1:]], 100, 40, env, folder)
    terminal.wait(r"^[^\n]*[$%#>] ?$")
    terminal.press(f"{line} && echo READY\r")
    terminal.wait(r"^READY")
    return terminal


@pytest.fixture(scope="module", params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = in_shell(request.param, tmp_path_factory.mktemp(request.param))
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("everlong compr", "everlong compress"),
        ("everlong sessions compa", "everlong sessions compactions"),
        ("everlong chat --contin", "everlong chat --continue"),
        ("everlong usage --by da", "everlong usage --by day"),
    ],
)
def test_the_tab_key_completes_commands_options_and_values(shell: Terminal, typed: str, completed: str) -> None:
    shell.press("\x15" + typed)  # Ctrl-U empties the line of the test before
    shell.press("\t")
    shell.wait(rf"{completed}\b")


def test_completing_a_command_imports_none_of_them(tmp_path: Path) -> None:
    code = (
        "import sys, atexit; from everlong.cli.main import main\n"
        "atexit.register(lambda: print([name for name in sys.modules if name.startswith('everlong.cli.chat')]))\n"
        "main()"
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "EVERLONG_HOME": str(tmp_path),
        "_EVERLONG_COMPLETE": "bash_complete",
        "COMP_WORDS": "everlong ch",
        "COMP_CWORD": "1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["plain,channels", "plain,chat", "[]"]
