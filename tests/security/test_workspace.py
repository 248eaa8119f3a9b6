"""File tools act inside the workspace by descriptor: no link and no race leads out, and yes means the real file."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from everlong.agent.approval import ApprovalRequest, Approvals, Decision
from everlong.errors import ToolError
from everlong.store import Store
from tests.agent.desk import Desk

pytestmark = [
    pytest.mark.spec("12.3"),
    pytest.mark.skipif(sys.platform == "win32", reason="links as POSIX has them"),
]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    root = tmp_path / "project"
    root.mkdir()
    with Store.open(tmp_path / "store.db") as store:
        yield Desk(root, store)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "file.txt").write_text("pelican")
    return path


def test_a_yes_to_one_file_is_none_to_another_that_a_link_leads_to(desk: Desk) -> None:
    desk.file(".git/hooks/pre-commit", "")
    desk.file(".git/config", "")
    (desk.root / "l").symlink_to(".git/hooks")
    desk.answer = "session"
    desk.done("write_file", path="config", content="mine\n")
    desk.answer = "no"
    assert desk.run("write_file", path="l/../config", content="evil\n").outcome == "refused"
    assert desk.asked[-1].summary == "write_file .git/config"
    assert desk.asked[-1].remembered_as == "all changes to .git/config"
    assert (desk.root / ".git" / "config").read_text() == ""


def test_a_file_that_was_approved_and_then_swapped_for_a_link_is_asked_about_again(desk: Desk) -> None:
    desk.file(".git/config", "")
    desk.answer = "session"
    desk.done("write_file", path="notes", content="mine\n")
    (desk.root / "notes").unlink()
    (desk.root / "notes").symlink_to(".git/config")
    desk.answer = "no"
    assert desk.run("write_file", path="notes", content="evil\n").outcome == "refused"
    assert (desk.root / ".git" / "config").read_text() == ""


def test_what_is_swapped_while_the_user_thinks_is_not_written_to(desk: Desk) -> None:
    desk.file("docs/notes", "one\n")
    desk.file(".git/notes", "one\n")

    def swap(request: ApprovalRequest) -> Decision:
        assert request.summary.endswith(" docs/notes")
        if not (desk.root / "docs").is_symlink():
            (desk.root / "docs").rename(desk.root / "old")
            (desk.root / "docs").symlink_to(".git")
        return "once"

    desk.approvals = Approvals(swap)
    assert "now leads elsewhere" in desk.failed("edit_file", path="docs/notes", old="one", new="two")
    assert (desk.root / ".git" / "notes").read_text() == "one\n"
    (desk.root / "docs").unlink()
    (desk.root / "old").rename(desk.root / "docs")

    def swap_file(request: ApprovalRequest) -> Decision:
        assert request.summary == "write_file docs/notes"
        (desk.root / "docs" / "notes").unlink()
        (desk.root / "docs" / "notes").symlink_to("../.git/notes")
        return "once"

    desk.approvals = Approvals(swap_file)
    assert "not a regular file" in desk.failed("write_file", path="docs/notes", content="evil\n")
    assert (desk.root / ".git" / "notes").read_text() == "one\n"


SWAPPING = """
import os, sys
os.chdir(sys.argv[1])
print("begun", flush=True)
while True:
    for source, target in (("docs", "spare"), ("link", "docs"), ("docs", "link"), ("spare", "docs")):
        try:
            os.rename(source, target)
        except OSError:
            pass
"""


class Renamer:
    """Somebody who swaps a folder for a link out of the workspace and back, as fast as they can."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.root = root
        (root / "link").symlink_to(outside)

    def __enter__(self) -> Renamer:
        self._process = subprocess.Popen([sys.executable, "-c", SWAPPING, str(self.root)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_no_read_ever_leaves_the_workspace_while_folders_are_renamed(desk: Desk, outside: Path) -> None:
    desk.file("docs/file.txt", "harmless")
    workspace = desk.context.workspace
    seen = []
    with Renamer(desk.root, outside):
        for _ in range(6_000):
            with suppress(ToolError), os.fdopen(workspace.open(workspace.resolve("docs/file.txt")), "rb") as file:
                seen.append(file.read())
    assert b"harmless" in seen
    assert b"pelican" not in seen


class Rival:
    """Somebody who swaps a folder for a link right before chosen calls of the system, and back right after them.

    So whoever looks at a name and acts on it afterwards is led out, also where they look again when they have acted.
    """

    def __init__(self, root: Path, moments: set[int]) -> None:
        self._root, self._moments = root, moments
        self.calls = 0

    def __enter__(self) -> Rival:
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _watch(self, _frame: object, event: str, called: Any) -> None:
        if not event.startswith("c_") or getattr(called, "__module__", "") != "posix":
            return
        if event == "c_call":
            if self.calls in self._moments:
                self._rename(("docs", "spare"), ("link", "docs"))
        else:
            if self.calls in self._moments:
                self._rename(("docs", "link"), ("spare", "docs"))
            self.calls += 1

    def _rename(self, *names: tuple[str, str]) -> None:
        for source, target in names:
            (self._root / source).rename(self._root / target)


TOUCHES: dict[str, dict[str, Any]] = {
    "write_file docs/file.txt": {"path": "docs/file.txt", "content": "evil"},
    "write_file docs/new.txt": {"path": "docs/new.txt", "content": "evil"},
    "write_file docs/made/new.txt": {"path": "docs/made/new.txt", "content": "evil"},
    "edit_file docs/file.txt": {"path": "docs/file.txt", "old": "harmless", "new": "evil"},
    "read_file docs/file.txt": {"path": "docs/file.txt"},
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_nothing_is_read_or_written_outside_though_a_rival_wins_every_race(
    desk: Desk, outside: Path, touch: str
) -> None:
    tool = touch.split(maxsplit=1)[0]
    (desk.root / "link").symlink_to(outside)

    def meet(moments: set[int]) -> int:
        shutil.rmtree(desk.root / "docs", ignore_errors=True)
        desk.file("docs/file.txt", "harmless")
        desk.run("read_file", path="docs/file.txt")  # what is changed has been read
        with Rival(desk.root, moments) as rival:
            said = desk.run(tool, **TOUCHES[touch]).text
        assert "pelican" not in said, moments
        assert [path.relative_to(outside).as_posix() for path in sorted(outside.rglob("*"))] == ["file.txt"], moments
        assert (outside / "file.txt").read_text() == "pelican", moments
        return rival.calls

    calls = meet(set())
    assert calls > 2
    for first in range(calls):
        meet({first})
    pairs = list(combinations(range(calls), 2))
    most = len(pairs) if tool == "read_file" else min(len(pairs), 150)
    for pair in random.Random(1).sample(pairs, most):
        meet(set(pair))


def test_no_listing_and_no_search_ever_leaves_the_workspace_while_folders_are_renamed(
    desk: Desk, outside: Path
) -> None:
    desk.file("docs/file.txt", "harmless")
    (outside / "nest").mkdir()
    (outside / "nest" / "egg.txt").write_text("pelican")
    with Renamer(desk.root, outside):
        for _ in range(300):
            assert "egg.txt" not in desk.run("list_files", path="docs", pattern="**/*").text
            assert ": pelican" not in desk.run("search_files", path="docs", pattern="pelican|harmless").text


def test_links_that_stay_inside_still_work(desk: Desk) -> None:
    desk.file("real/notes.txt", "one\n")
    (desk.root / "link").symlink_to("real")
    assert "one" in desk.done("read_file", path="link/notes.txt")
    desk.done("edit_file", path="link/notes.txt", old="one", new="two")
    assert (desk.root / "real" / "notes.txt").read_text() == "two\n"
    assert (desk.root / "link").is_symlink()
    assert desk.done("list_files", path="link") == "notes.txt (4 bytes)"
