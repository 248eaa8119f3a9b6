"""The documentation of the chat has all that there is, and completion in the shell works as it says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from everlong.cli.chat.command import command_registry
from tests.program import everlong_program

ROOT = Path(__file__).parent.parent.parent
CHAT = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(command_registry().commands))
def test_every_command_of_the_chat_is_documented(name: str) -> None:
    command = command_registry().commands[name]
    rows = [line for line in CHAT.splitlines() if line.startswith("|") and f"`/{name}" in line]
    assert rows, f"/{name} is not in the table of docs/chat.md"
    for word in re.findall(r"--\w+|here", command.takes):
        assert any(word in row for row in rows), f"/{name} {word} is not in docs/chat.md"


def test_no_command_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(r"`/([a-z]+)\b", CHAT))
    assert named - {*command_registry().commands} == set()


def completion(**variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    return subprocess.run(everlong_program(), env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    assert f"_EVERLONG_COMPLETE={shell}_source everlong" in CHAT
    if shell == "bash" and not Path("/bin/bash").exists():
        pytest.skip("no bash, whose version is asked for")
    done = completion(_EVERLONG_COMPLETE=f"{shell}_source")
    assert "_everlong_completion" in done.stdout
    assert done.returncode == 0


def test_completion_knows_commands_and_options() -> None:
    commands = completion(_EVERLONG_COMPLETE="bash_complete", COMP_WORDS="everlong ch", COMP_CWORD="1")
    assert commands.stdout.split() == ["plain,chat"]
    options = completion(_EVERLONG_COMPLETE="bash_complete", COMP_WORDS="everlong chat --lo", COMP_CWORD="2")
    assert options.stdout.split() == ["plain,--local"]
