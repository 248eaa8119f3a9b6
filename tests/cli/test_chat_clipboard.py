"""The picture in the clipboard becomes a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong import processes
from everlong.cli.chat.attachments import save_clipboard_image

PNG = "\\211PNG\\r\\n\\032\\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all programs that there are."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(processes, "SYSTEM_FOLDERS", (f"{folder.resolve()}/",))
    return folder


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_a_picture_is_saved_for_its_user_only(tmp_path: Path, programs: Path) -> None:
    install(programs, "wl-paste", "exit 1")  # no Wayland
    install(programs, "xclip", f"printf '{PNG}rest'")
    saved = save_clipboard_image(tmp_path / "pasted")
    assert saved is not None
    assert saved.read_bytes() == b"\x89PNG\r\n\x1a\nrest"
    assert saved.stat().st_mode & 0o077 == 0
