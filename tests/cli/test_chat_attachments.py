"""``@file`` in a prompt: the file goes along, and what cannot is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from everlong.cli.chat.attachments import attach_files
from everlong.cli.chat.command import command_registry
from everlong.cli.chat.terminal import PastedTexts


def attached(text: str, root: Path) -> tuple[Any, list[str]]:
    notes: list[str] = []
    return attach_files(text, root, notes.append), notes


@pytest.mark.parametrize("mention", ["@notes.md", "@./notes.md", "@notes.md.", "(see) @notes.md?", '@"notes.md"'])
def test_a_file_goes_along_with_the_words(tmp_path: Path, mention: str) -> None:
    (tmp_path / "notes.md").write_text("port 8437\n", encoding="utf-8")
    parts, notes = attached(f"What is in {mention}", tmp_path)
    assert parts[0] == {"type": "text", "text": f"What is in {mention}"}
    assert "port 8437" in parts[1]["text"]
    assert parts[1]["text"].startswith('<file path="')
    assert len(notes) == 1


def test_a_link_of_the_folder_takes_no_file_of_another_one_along(tmp_path: Path) -> None:
    root = tmp_path / "clone"
    root.mkdir()
    (tmp_path / "key").write_text("pelican", encoding="utf-8")
    (root / "README.md").symlink_to(tmp_path / "key")
    (root / "inner.md").write_text("harmless", encoding="utf-8")
    (root / "link.md").symlink_to("inner.md")
    parts, notes = attached("explain @README.md and @link.md", root)
    assert "pelican" not in str(parts)
    assert "harmless" in str(parts)
    assert f"README.md leads out of the folder, to {tmp_path / 'key'}; name that file itself" in notes[0]
    outside = f"explain @{tmp_path / 'key'} and @inner.md"
    assert "pelican" in str(attached(outside, root)[0])
    parts = attach_files(outside, root, notes.append, is_typed=False)  # as it comes by a pipe, from anybody
    assert "pelican" not in str(parts)
    assert "harmless" in str(parts)


def test_a_long_paste_is_counted_in_whole_lines() -> None:
    assert PastedTexts().take("The tide is out.\n" * 100) == "[pasted 100 lines]"


ROOT = Path(__file__).parent.parent.parent
CHAT = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")


def test_no_command_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(r"`/([a-z]+)\b", CHAT))
    assert named - {*command_registry().commands} == set()
