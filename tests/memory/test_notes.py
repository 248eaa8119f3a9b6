"""Notes in files: saved, changed, found, refused, and never at the cost of what a person wrote."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from everlong.memory import NotesMemory

BY_HAND = """# My machine

Some words of mine, over
two lines.

<!-- - not for the agent -->

## Ports

* gateway: 8437
1. first the database,
   then the gateway

make up,
and wait
"""


def call(notes: NotesMemory, name: str, **args: Any) -> dict[str, Any]:
    answer = json.loads(notes.handle_tool_call(name, args))
    assert isinstance(answer, dict)
    return answer


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_only_the_user_can_read_new_files(notes: NotesMemory, folder: Path) -> None:
    notes.add("memory", "The build needs Java 17.")
    assert stat.S_IMODE((folder / "MEMORY.md").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_change_touches_nothing_but_its_note(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "MEMORY.md"
    path.write_text(BY_HAND, encoding="utf-8")
    notes.replace("memory", "8437", "gateway: 9000\n\nsince May")
    assert path.read_text(encoding="utf-8") == BY_HAND.replace("* gateway: 8437", "* gateway: 9000\n\n  since May")
    notes.replace("memory", "gateway: 9000", "gateway: 8437")
    notes.add("memory", "The cache is on disk.")
    notes.remove("memory", "cache is on")
    assert path.read_text(encoding="utf-8") == BY_HAND + "\n"


@pytest.mark.parametrize("again", ["Prefers tabs.", "prefers  tabs", "Prefers\u200b tabs", " Prefers\ntabs.\n"])
def test_what_is_noted_already_is_not_noted_twice(notes: NotesMemory, again: str) -> None:
    notes.add("user", "Prefers tabs.")
    assert "noted already: 'Prefers tabs.'" in call(notes, "memory_add", target="user", text=again)["error"]
    notes.add("user", "Prefers dark mode.")
    assert "noted already" in call(notes, "memory_replace", target="user", old="dark", new=again)["error"]
    assert notes.notes("user") == ["Prefers tabs.", "Prefers dark mode."]


def test_a_full_file_says_so_and_what_to_do(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "MEMORY.md"
    path.write_text("\n".join(f"- note {n} {'x' * 90}" for n in range(400)), encoding="utf-8")
    before = path.read_bytes()
    error = call(notes, "memory_add", target="memory", text="one more")["error"]
    assert "MEMORY.md is full" in error
    assert "of 40,000 characters" in error
    assert "memory_remove" in error
    assert path.read_bytes() == before
    notes.replace("memory", "note 7 x", "shorter")  # room can be made even in a file that is over the limit
    assert "shorter" in notes.notes("memory")


def test_a_secret_is_left_out_and_the_model_is_told(notes: NotesMemory, folder: Path) -> None:
    answer = call(notes, "memory_add", target="memory", text="The registry wants npm_" + "a1" * 18 + " as its token.")
    assert "[redacted:api_key]" in answer["saved"]
    assert "secret was left out" in answer["hint"]
    assert "a1a1" not in (folder / "MEMORY.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        ("pay\u200bload \u202eevil\u202c", "payload evil"),
        ("hidden\U000e0041\U000e0042 words\ufe01", "hidden words"),
        ("tone\x00 \x1b[31mred", "tone [31mred"),
        ("half \ud800 a character", "half  a character"),
        ("a\u200db\u200c\u200dc", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("on fire \u2764\ufe0f\u200d\U0001f525", "on fire \u2764\ufe0f\u200d\U0001f525"),
        ("one\u2028two\r\nthree", "one\ntwo\nthree"),
    ],
)
def test_what_does_not_show_is_not_saved_and_what_a_script_needs_is(notes: NotesMemory, given: str, saved: str) -> None:
    assert notes.add("memory", given) == saved
    assert notes.notes("memory") == [saved]


def test_search_finds_notes_with_any_of_the_words_best_first(notes: NotesMemory) -> None:
    notes.add("memory", "The gateway listens on 8437.")
    notes.add("memory", "Tests of the gateway need PostgreSQL.")
    notes.add("user", "Lives in Bergen.")
    notes.add("memory", "数据库端口是 5432")
    found = notes.search("which port does the gateway listen on")
    assert found[0].text == "The gateway listens on 8437."
    assert notes.search("端口号")[0].text == "数据库端口是 5432"
    assert notes.search("bergen", "memory") == []
    assert [each.text for each in notes.search("", limit=2)] == [
        "数据库端口是 5432",
        "Tests of the gateway need PostgreSQL.",
    ]
    answer = call(notes, "memory_search", query="BERGEN")
    assert answer["notes"] == [{"target": "user", "text": "Lives in Bergen."}]
    assert "never instructions" in answer["about"]
    assert "hint" in call(notes, "memory_search", query="submarine")


@pytest.mark.parametrize(
    ("name", "args", "told"),
    [
        ("memory_add", {"target": "notes", "text": "x"}, "target must be memory or user, not 'notes'"),
        ("memory_add", {"target": ["memory"], "text": "x"}, "target must be memory or user"),
        ("memory_add", {"target": "memory"}, "text must be a text, not NoneType"),
        ("memory_replace", {"target": "memory", "old": "x", "new": 7}, "new must be a text, not int"),
        ("memory_remove", {"target": "memory", "old": " "}, "it is empty"),
        ("memory_search", {"query": {}}, "query must be a text, not dict"),
        ("memory_search", {"query": "x", "target": "all"}, "target must be memory or user"),
        ("memory_burn", {}, "Unknown tool: memory_burn"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wanted(
    notes: NotesMemory, name: str, args: dict[str, Any], told: str
) -> None:
    assert told in call(notes, name, **args)["error"]


def test_a_file_that_is_not_utf8_is_read_but_not_changed(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "MEMORY.md"
    path.write_bytes(b"- one\n- caf\xe9\n")
    assert notes.notes("memory") == ["one", "caf\ufffd"]
    assert "is not UTF-8 (line 2)" in call(notes, "memory_add", target="memory", text="two")["error"]
    assert path.read_bytes() == b"- one\n- caf\xe9\n"


def test_a_comment_that_is_not_closed_cannot_swallow_notes(notes: NotesMemory, folder: Path) -> None:
    folder.mkdir()
    path = folder / "MEMORY.md"
    path.write_text("<!-- to do\n\n- one\n", encoding="utf-8")
    assert notes.notes("memory") == ["<!-- to do", "one"]
    assert (
        "not closed or of indented lines"
        in call(notes, "memory_add", target="memory", text="arrows such as --> and <--")["error"]
    )
    assert notes.notes("memory") == ["<!-- to do", "one"]
    notes.add("memory", "two")
    assert notes.notes("memory") == ["<!-- to do", "one", "two"]
