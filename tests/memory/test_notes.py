"""Notes in files: saved, changed, found, refused, and never at the cost of what a person wrote."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlong.config.files import write_whole
from everlong.memory import NotesMemory

BY_HAND = """# My machine

Some words of mine

<!-- - not for the agent
- nor this -->

## Ports

* gateway: 8437
1. first the database
---
"""


def call(notes: NotesMemory, name: str, **args: Any) -> dict[str, Any]:
    answer = json.loads(notes.handle_tool_call(name, args))
    assert isinstance(answer, dict)
    return answer


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_only_the_user_can_read_new_files(notes: NotesMemory, folder: Path) -> None:
    notes.add("The build needs Java 17.")
    assert stat.S_IMODE((folder / "NOTES.md").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_change_touches_nothing_but_its_note(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "NOTES.md"
    path.write_text(BY_HAND, encoding="utf-8")
    assert notes.notes() == ["Some words of mine", "gateway: 8437", "first the database"]
    notes.replace("8437", "gateway: 9000\n\nsince May")
    assert path.read_text(encoding="utf-8") == BY_HAND.replace("* gateway: 8437", "* gateway: 9000 since May")
    notes.replace("gateway: 9000", "gateway: 8437")
    notes.add("The cache is on disk.")
    notes.remove("cache is on")
    assert path.read_text(encoding="utf-8") == BY_HAND


def test_comments_that_nobody_ends_take_no_square_of_time(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    (folder / "NOTES.md").write_text("- one\n<!-- - two -->\n- " + "<!--" * 200_000, encoding="utf-8")
    assert notes.notes() == ["one", "<!--" * 200_000]


def test_what_somebody_edits_meanwhile_is_not_overwritten(notes: NotesMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.add("one")

    def slow_write(path: Path, text: str, *, check: Callable[[], None]) -> None:
        path.write_text("- written by hand\n", encoding="utf-8")
        write_whole(path, text, check=check)

    monkeypatch.setattr("everlong.memory.notes.write_whole", slow_write)
    assert "somebody is editing" in call(notes, "memory_add", text="two")["error"]
    assert notes.notes() == ["written by hand"]


@pytest.mark.parametrize("again", ["Prefers tabs.", "prefers  tabs", "Prefers\u200b tabs", " Prefers\ntabs.\n"])
def test_what_is_noted_already_is_not_noted_twice(notes: NotesMemory, again: str) -> None:
    notes.add("Prefers tabs.")
    assert "noted already: 'Prefers tabs.'" in call(notes, "memory_add", text=again)["error"]
    notes.add("Prefers dark mode.")
    assert "noted already" in call(notes, "memory_replace", old="dark", new=again)["error"]
    assert notes.notes() == ["Prefers tabs.", "Prefers dark mode."]


def test_full_notes_say_so_and_what_to_do(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "NOTES.md"
    path.write_text("\n".join(f"- note {n} {'word ' * 20}" for n in range(100)), encoding="utf-8")
    before = path.read_bytes()
    error = call(notes, "memory_add", text="one more")["error"]
    assert "the notes are full" in error
    assert "room for 1,200" in error
    assert "memory_remove" in error
    assert path.read_bytes() == before
    notes.replace("note 7 word", "shorter")  # room can be made even in a file that is over the limit
    assert "shorter" in notes.notes()


def test_a_secret_is_left_out_and_the_model_is_told(notes: NotesMemory, folder: Path) -> None:
    answer = call(notes, "memory_add", text="The registry wants npm_" + "a1" * 18 + " as its token.")
    assert "[redacted:api_key]" in answer["saved"]
    assert "secret was left out" in answer["hint"]
    assert "a1a1" not in (folder / "NOTES.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        ("pay\u200bload \u202eevil\u202c", "payload evil"),
        ("hidden\U000e0041\U000e0042 words\ufe01", "hidden words"),
        ("tone\x00 \x1b[31mred", "tone [31mred"),
        ("half \ud800 a character", "half a character"),
        ("a\u200db\u200c\u200dc", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("on fire \u2764\ufe0f\u200d\U0001f525", "on fire \u2764\ufe0f\u200d\U0001f525"),
        ("one\u2028two\r\nthree", "one two three"),
    ],
)
def test_what_does_not_show_is_not_saved_and_what_a_script_needs_is(notes: NotesMemory, given: str, saved: str) -> None:
    assert notes.add(given) == saved
    assert notes.notes() == [saved]


@pytest.mark.parametrize(
    ("name", "args", "told"),
    [
        ("memory_add", {}, "text must be a text, not NoneType"),
        ("memory_replace", {"old": "x", "new": 7}, "new must be a text, not int"),
        ("memory_remove", {"old": " "}, "it is empty"),
        ("memory_burn", {}, "Unknown tool: memory_burn"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wanted(
    notes: NotesMemory, name: str, args: dict[str, Any], told: str
) -> None:
    assert told in call(notes, name, **args)["error"]


def test_a_file_that_is_not_utf8_is_read_but_not_changed(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "NOTES.md"
    path.write_bytes(b"- one\n- caf\xe9\n")
    assert notes.notes() == ["one", "caf\ufffd"]
    assert "is not UTF-8" in call(notes, "memory_add", text="two")["error"]
    assert path.read_bytes() == b"- one\n- caf\xe9\n"


def test_a_comment_that_is_not_closed_cannot_swallow_notes(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    (folder / "NOTES.md").write_text("<!-- to do\n\n- one\n", encoding="utf-8")
    notes.add("arrows such as --> and <!--")
    assert notes.notes() == ["<!-- to do", "one", "arrows such as -- > and <! --"]
