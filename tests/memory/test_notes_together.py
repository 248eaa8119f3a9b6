"""Several programs and people change notes at once, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import everlong.memory.files
from everlong.config.files import write_whole
from everlong.errors import NotesError
from everlong.memory import NotesMemory
from everlong.memory.files import NotesFile, hold_lock

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


def test_threads_of_one_process_lose_nothing_either(folder: Path) -> None:
    def write(name: str) -> None:
        notes = NotesMemory(folder, wait_seconds=300)
        for number in range(10):
            notes.add("user", f"{name} {number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(NotesMemory(folder).notes("user")) == 30


def test_a_process_that_dies_with_the_lock_leaves_it_free(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    code = """
import os, sys
from pathlib import Path
from everlong.memory.files import hold_lock
with hold_lock(Path(sys.argv[1]), 300):
    os._exit(9)
"""
    process = start(code, str(folder))
    process.communicate()
    assert process.returncode == 9
    assert notes.add("memory", "still here") == "still here"


def test_who_keeps_the_lock_too_long_is_told_of(folder: Path) -> None:
    folder.mkdir()
    notes = NotesMemory(folder, wait_seconds=0)
    with hold_lock(folder, 300), pytest.raises(NotesError, match=r"another program has kept the notes in .* locked"):
        notes.add("memory", "one")
    assert notes.notes("memory") == []
    notes.add("memory", "one")


def test_reading_needs_no_lock(folder: Path) -> None:
    notes = NotesMemory(folder, wait_seconds=0)
    notes.add("memory", "one")
    with hold_lock(folder, 300):
        assert notes.notes("memory") == ["one"]
        assert [found.text for found in notes.search("one")] == ["one"]


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


def test_a_person_who_removes_the_note_meanwhile_is_heeded(
    notes: NotesMemory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.add("memory", "one")

    def slow_write(*args: Any, **kwargs: Any) -> None:
        (folder / "MEMORY.md").write_text("- other things\n", encoding="utf-8")
        write_whole(*args, **kwargs)

    monkeypatch.setattr(everlong.memory.files, "write_whole", slow_write)
    with pytest.raises(NotesError, match=r"no note of MEMORY\.md has the words 'one'"):
        notes.replace("memory", "one", "two")
    assert notes.notes("memory") == ["other things"]


def test_a_file_that_never_rests_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "MEMORY.md"

    def edit(before: str) -> str:
        path.write_text(before + ".", encoding="utf-8")
        return "mine"

    with pytest.raises(NotesError, match="is being changed all the time"):
        NotesFile(path, 5).change(edit)
    assert set(path.read_text(encoding="utf-8")) == {"."}
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".tmp"] == []
