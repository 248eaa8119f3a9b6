"""Reading, writing, listing and searching files, also such as no text editor likes."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from everlong.agent.tools import Workspace, finding
from everlong.agent.tools.files import diff_of, edit_text
from everlong.errors import ToolError
from tests.agent.desk import Desk

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and users as POSIX has them")


def test_a_file_is_read_with_line_numbers(desk: Desk) -> None:
    desk.file("a.py", "import os\n\nprint(1)")
    assert desk.done("read_file", path="a.py") == "[a.py: all 3 lines]\n     1\timport os\n     2\t\n     3\tprint(1)"
    assert desk.done("read_file", path="a.py", start_line=2, lines=1) == (
        "[a.py: lines 2 to 2 of 3; go on with start_line=3]\n     2\t"
    )
    assert desk.done("read_file", path="a.py", start_line=9) == "[a.py has only 3 lines; start_line=9 is past its end]"
    assert desk.done("read_file", path=desk.file("e").name) == "[e has no lines: it is empty]"


def test_the_end_of_a_file_whose_lines_are_not_counted_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlong.agent.tools.files.COUNTED", 1)
    desk.file("a.py", "import os\n\nprint(1)\n")
    assert desk.done("read_file", path="a.py", start_line=9) == "[a.py has only 3 lines; start_line=9 is past its end]"


def test_a_long_file_is_read_in_parts_that_meet(desk: Desk) -> None:
    desk.file("long.txt", "".join(f"this is line {number}\n" for number in range(1, 1_001)))
    start, seen = 1, list[str]()
    while True:
        said = desk.done("read_file", path="long.txt", start_line=start, lines=1_000)
        assert len(said) <= desk.context.output_chars
        heading, *lines = said.splitlines()
        seen += [line.partition("\t")[2] for line in lines]
        if "go on with start_line=" not in heading:
            break
        start = int(heading.partition("start_line=")[2].rstrip("]"))
    assert seen == [f"this is line {number}" for number in range(1, 1_001)]


@posix
def test_a_file_keeps_its_mode_and_a_new_one_gets_the_usual_one(desk: Desk) -> None:
    script = desk.file("run.sh", "#!/bin/sh\n")
    script.chmod(0o750)
    desk.done("write_file", path="run.sh", content="#!/bin/sh\necho\n")
    desk.done("edit_file", path="run.sh", old="echo", new="true")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    before = os.umask(0o022)
    try:
        desk.done("write_file", path="new.txt", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((desk.root / "new.txt").stat().st_mode) == 0o644


@pytest.fixture
def guarded(desk: Desk) -> Iterator[Desk]:
    """A desk in a folder with files that may not be read or written; not as root, who may do anything."""
    with tempfile.TemporaryDirectory() as name:
        desk.root = Path(name).resolve()
        desk.context.workspace = Workspace(desk.root)
        desk.file("closed.txt", "secret").chmod(0)
        desk.file("fixed.txt", "fixed").chmod(0o444)
        desk.file("shut/a.txt", "a").parent.chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            for path in [desk.root, *desk.root.rglob("*")]:
                os.chown(path, 65_534, 65_534)
            os.seteuid(65_534)
        try:
            yield desk
        finally:
            if is_root:
                os.seteuid(0)
            (desk.root / "shut").chmod(0o755)


@posix
def test_files_without_permission_are_left_alone(guarded: Desk) -> None:
    assert guarded.failed("read_file", path="closed.txt") == "closed.txt cannot be opened: Permission denied"
    assert guarded.failed("write_file", path="fixed.txt", content="x") == "fixed.txt is read-only; it is left alone"
    assert (
        guarded.failed("edit_file", path="fixed.txt", old="fixed", new="x")
        == "fixed.txt is read-only; it is left alone"
    )
    assert guarded.failed("write_file", path="shut/b.txt", content="x") == (
        "shut/b.txt cannot be written: Permission denied"
    )
    assert guarded.done("search_files", pattern="fixed|secret") == "fixed.txt:1: fixed"
    assert sorted(path.name for path in (guarded.root / "shut").iterdir()) == ["a.txt"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("**/c.*", ["src/deep/c.py", "src/deep/c.ts"]),
        ("*.{ts,md}", ["README.md", "src/deep/c.ts"]),
        ("[!a].py", ["src/b.py", "src/deep/c.py"]),
        ("./a.py", ["a.py"]),
        ("src/**", ["src/b.py", "src/deep/c.py", "src/deep/c.ts"]),
        ("*(.py", []),
        ("src/**/[bc].{p,t}[ys]", ["src/b.py", "src/deep/c.py", "src/deep/c.ts"]),
    ],
)
def test_a_pattern_lists_what_matches_below(desk: Desk, pattern: str, names: list[str]) -> None:
    for name in ("a.py", "README.md", "src/b.py", "src/deep/c.py", "src/deep/c.ts", ".git/x.py", "node_modules/y.py"):
        desk.file(name)
    said = desk.done("list_files", pattern=pattern)
    assert [line.partition(" ")[0] for line in said.splitlines() if not line.startswith("[")] == names


def test_a_pattern_of_many_stars_comes_to_an_end(desk: Desk) -> None:
    desk.file("a" * 200)
    many = "*a" * 20 + "b"
    for said in (
        desk.run("list_files", pattern=many).message["content"],
        desk.run("search_files", pattern="x", glob=many).message["content"],
    ):
        assert "[no " in said or "takes too long" in said


def test_matches_are_told_by_path_and_line(desk: Desk) -> None:
    desk.file("a.py", "import os\r\nPORT = 8437\r\n")
    desk.file("src/b.py", "port = PORT\nx = PORT + PORT\n")
    desk.file("src/c.md", "PORT\n")
    desk.file(".git/config", "PORT\n")
    desk.file("pic.png", b"\0PORT")
    assert desk.done("search_files", pattern=r"PORT\b") == (
        "a.py:2: PORT = 8437\nsrc/b.py:1: port = PORT\nsrc/b.py:2: x = PORT + PORT\nsrc/c.md:1: PORT"
    )
    assert desk.done("search_files", pattern="^port", glob="*.py", ignore_case=True) == (
        "a.py:2: PORT = 8437\nsrc/b.py:1: port = PORT"
    )
    assert desk.done("search_files", pattern="8437$", path="a.py") == "a.py:2: PORT = 8437"
    assert desk.done("search_files", pattern="PORT", path=".git") == ".git/config:1: PORT"
    assert desk.done("search_files", pattern="nowhere") == "[no match for 'nowhere' in 3 files]"


def test_a_pattern_that_would_take_for_ever_is_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LINE_SECONDS", 0.5)
    desk.file("a.txt", "a" * 5_000)
    desk.file("b.txt", "aab\n")
    said = desk.done("search_files", pattern="(?:a+)+b$")
    assert said == "b.txt:1: aab\n[a.txt: given up, because the pattern takes too long on them]"


def test_an_interrupt_ends_a_search_with_what_it_found(desk: Desk) -> None:
    desk.file("a.txt", "x\n")
    desk.file("b.txt", "x\n")

    class Soon:
        """Set after the first look at it."""

        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            return self.looks > 2

    desk.context.interrupted = Soon()  # type: ignore[assignment]
    result = desk.run("search_files", pattern="x")
    assert result.outcome == "interrupted"
    assert result.message["content"] == "Interrupted by the user. Found so far:\na.txt:1: x"


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
