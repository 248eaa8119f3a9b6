"""Whatever is saved, changed and removed, in whatever file: the notes are those of a plain list."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from everlong.errors import NotesError
from everlong.memory import NotesMemory
from everlong.memory.notes import _checked, _form

MARKDOWN = [
    "- ",
    "* ",
    "1. ",
    "# ",
    "```",
    "~~~",
    "<!--",
    "-->",
    "\n",
    "\n\n",
    "  ",
    "\t",
    "---",
    ">",
    "word",
    "é",
    "\r\n",
]
words = st.one_of(
    st.text(max_size=60),
    st.lists(st.one_of(st.sampled_from(MARKDOWN), st.text("ab .-#", max_size=5)), max_size=12).map("".join),
)
files = st.lists(st.one_of(st.sampled_from(MARKDOWN), st.text("ab .-#\n", max_size=8)), max_size=30).map("".join)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "replace", "remove"]), st.integers(0, 20), words), min_size=1, max_size=12
)


@settings(deadline=None)
@given(files, changes)
def test_notes_behave_like_a_list_of_texts(file: str, steps: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "NOTES.md")
        path.write_bytes(file.encode())
        notes = NotesMemory(folder)
        model = notes.notes()
        for what, place, text in steps:
            before = path.read_bytes()
            old = model[place % len(model)] if model else "nothing"
            expected = _after(model, what, place, text)
            try:
                if what == "add":
                    notes.add(text)
                elif what == "replace":
                    notes.replace(old, text)
                else:
                    notes.remove(old)
            except NotesError:
                # Refused: without words, noted already, or not one note.
                assert path.read_bytes() == before
                assert expected is None or _is_ambiguous(model, old)
            else:
                assert expected is not None
                model = expected
            assert notes.notes() == model


def _after(model: list[str], what: str, place: int, text: str) -> list[str] | None:
    """The list after a change; None where it must be refused."""
    if what != "add" and not model:
        return None
    at = place % len(model) if model else 0
    others = model if what == "add" else [*model[:at], *model[at + 1 :]]
    if what == "remove":
        return others
    try:
        note = _checked(text)
    except NotesError:
        return None
    if _form(note) in map(_form, others):
        return None
    return [*model, note] if what == "add" else [*model[:at], note, *model[at + 1 :]]


def _is_ambiguous(model: list[str], old: str) -> bool:
    # Only in files written by hand: two notes of the same words, or one of signs that do not show.
    return sum(_form(text) == _form(old) for text in model) > 1 or not _form(old)
