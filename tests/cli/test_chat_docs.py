"""The page of the chat names no command that the chat has not; the reference is made from all of them."""

from __future__ import annotations

import re
from pathlib import Path

from everlong.cli.chat.command import command_registry

ROOT = Path(__file__).parent.parent.parent
CHAT = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")


def test_no_command_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(r"`/([a-z]+)\b", CHAT))
    assert named - {*command_registry().commands} == set()
