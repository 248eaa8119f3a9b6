"""The documentation of the chat has all that there is, and completion in the shell works as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everlong.cli.chat.command import command_registry

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
