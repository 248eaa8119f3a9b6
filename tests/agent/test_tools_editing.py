"""``edit_file`` changes exactly what was quoted, keeps everything else, and says what to do where it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from everlong.agent.tools.files import diff_of, edit_text
from everlong.errors import ToolError
from tests.agent.desk import Desk


def test_a_text_that_stands_several_times_is_not_touched_unless_all_are_meant(desk: Desk) -> None:
    path = desk.file("a.py", "x = 1\ny = 1\nz = 1\n")
    assert desk.failed("edit_file", path="a.py", old="= 1", new="= 2") == (
        "'old' is in a.py 3 times, at lines 1, 2, 3; quote more around the one that is meant, or say replace_all=true"
    )
    assert path.read_text() == "x = 1\ny = 1\nz = 1\n"
    said = desk.done("edit_file", path="a.py", old="= 1", new="= 2", replace_all=True)
    assert said == "Edited a.py in 3 places, at lines 1, 2, 3."
    assert path.read_text() == "x = 2\ny = 2\nz = 2\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("    return one", "Lines 2 to 2 differ from it in white space only. They are:\n\treturn one"),
        ("def  f():\n", "Read the file again; lines like it are:\n     1\tdef f():"),
        ("retrun two # and more", "     4\t        return two  # and more"),
        ("class Harbour(Base, Mixin):", "Nothing in it is much like it; read the file again."),
        ("", "'old' is empty"),
        ("\n\n\n\n", "'old' is not in a.py"),
    ],
)
def test_a_text_that_is_not_there_is_answered_with_what_is_like_it(desk: Desk, old: str, said: str) -> None:
    desk.file("a.py", "def f():\n\treturn one\ndef g():\n        return two  # and more\n")
    assert said in desk.failed("edit_file", path="a.py", old=old, new="x")


def test_line_ends_stay_what_they_are(desk: Desk) -> None:
    path = desk.file("dos.txt", b"one\r\ntwo\r\nthree\r\n")
    desk.done("edit_file", path="dos.txt", old="one\ntwo", new="one\nand\ntwo")
    desk.done("edit_file", path="dos.txt", old="three", new="three\nfour")
    assert path.read_bytes() == b"one\r\nand\r\ntwo\r\nthree\r\nfour\r\n"
    mixed = desk.file("mixed.txt", b"a\r\nb\nc\nd\r\n")
    desk.done("edit_file", path="mixed.txt", old="b\nc", new="b\nx\nc")
    assert mixed.read_bytes() == b"a\r\nb\nx\nc\nd\r\n"


def test_a_line_break_that_makes_a_comment_live_is_shown() -> None:
    hidden, live = "# harmless\u2028rm -r .\n", "# harmless\nrm -r .\n"
    assert "+rm -r ." in diff_of("a.sh", hidden, live).split("\n")
    assert "+rm -r ." in diff_of("a.sh", hidden.replace("\u2028", "\r"), live).split("\n")
    assert diff_of("a.sh", live, live.replace("\n", "\r\n")) == "a.sh: only line ends or the last line's end change"
    assert diff_of("a.sh", "", "x\n").split("\n")[-1] == "+x"


def test_a_long_run_of_one_letter_or_line_takes_no_square_of_time() -> None:
    run = "a" * 1_000_000
    with pytest.raises(ToolError, match="20 times or more"):
        edit_text(run, run[:200_000], "b", "f")
    assert edit_text(run, run[:100_000], "b", "f", replace_all=True) == ("b" * 10, [1] * 10, 10)
    lines = "x\n" * 300_000
    with pytest.raises(ToolError, match="not in f"):
        edit_text(lines, " x\n" * 100_000 + "y", "z", "f")
    with pytest.raises(ToolError, match="Lines 1 to 100000 differ"):
        edit_text(lines, " x\n" * 100_000, "z", "f")


LINES = st.lists(st.text(st.sampled_from("ab .\t[(é"), max_size=6), max_size=6).map("\n".join)
NEW = st.text(st.sampled_from("xy\n"), max_size=5)


@given(LINES, LINES, NEW, st.data())
def test_an_edit_is_a_replacement_and_nothing_else(before: str, after: str, new: str, data: st.DataObject) -> None:
    old = data.draw(st.text(st.sampled_from("ab .\n[("), min_size=1, max_size=5))
    text = before + old + after
    places = sum(text.startswith(old, at) for at in range(len(text)))
    if old == new:
        with pytest.raises(ToolError, match="the same"):
            edit_text(text, old, new, "f")
    elif places == 1:
        assert edit_text(text, old, new, "f").text == before + new + after
    else:
        with pytest.raises(ToolError, match=f"{min(places, 20)} times"):
            edit_text(text, old, new, "f")
        assert edit_text(text, old, new, "f", replace_all=True).text == text.replace(old, new)
