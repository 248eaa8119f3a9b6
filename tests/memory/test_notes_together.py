"""Several programs and people change notes at once, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import everlong.memory.files
from everlong.config.files import write_whole
from everlong.memory import NotesMemory

if TYPE_CHECKING:
    import pytest

WRITER = """
import sys
from everlong.memory import NotesMemory
notes = NotesMemory(sys.argv[1], wait_seconds=300)
sys.stdin.readline()
for number in range(20):
    notes.add("memory", f"{sys.argv[2]} saw ship {number}")
    if number % 4 == 3:
        notes.remove("memory", f"{sys.argv[2]} saw ship {number - 1}")
"""


def start(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_three_processes_that_write_at_once_lose_nothing(notes: NotesMemory, folder: Path) -> None:
    names = ["Anna", "Boris", "Chen"]
    writers = [start(WRITER, str(folder), name) for name in names]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    expected = {f"{name} saw ship {n}" for name in names for n in range(20) if n % 4 != 2}
    saved = notes.notes("memory")
    assert set(saved) == expected
    assert len(saved) == len(expected)
    for name in names:  # each one's notes in the order in which it wrote them
        assert [text for text in saved if text.startswith(name)] == sorted(
            (text for text in expected if text.startswith(name)), key=lambda text: int(text.split()[-1])
        )
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "MEMORY.md"]


def test_a_person_who_saves_the_file_meanwhile_is_not_overwritten(
    notes: NotesMemory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "MEMORY.md"
    notes.add("memory", "one")
    by_hand = iter([path.read_text(encoding="utf-8") + "- written by hand\n"])

    def slow_write(*args: Any, **kwargs: Any) -> None:
        for text in by_hand:  # the first time only
            path.write_text(text, encoding="utf-8")
        write_whole(*args, **kwargs)

    monkeypatch.setattr(everlong.memory.files, "write_whole", slow_write)
    notes.add("memory", "two")
    assert notes.notes("memory") == ["one", "written by hand", "two"]
