"""File tools touch what is in the root folder and what the user allowed, however a path is written."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.desk import Desk

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, FIFOs and modes as POSIX has them")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "secret.txt").write_text("pelican")
    return path


@pytest.mark.parametrize(
    "path", ["../outside/secret.txt", "a/../../outside/secret.txt", "~/x", "/etc/hostname", "~root/x"]
)
def test_paths_that_lead_out_are_refused_with_what_is_allowed(desk: Desk, outside: Path, path: str) -> None:
    for said in (
        desk.failed("read_file", path=path),
        desk.failed("write_file", path=path, content="x"),
        desk.failed("edit_file", path=path, old="a", new="b"),
        desk.failed("list_files", path=path),
        desk.failed("search_files", path=path, pattern="pelican"),
    ):
        assert f"allowed: {desk.root}. The user can allow more with --allow DIR." in said
    assert (outside / "secret.txt").read_text() == "pelican"
    assert desk.asked == []


def test_a_link_that_leads_out_is_refused_and_its_words_are_not_searched(desk: Desk, outside: Path) -> None:
    (desk.root / "file").symlink_to(outside / "secret.txt")
    (desk.root / "folder").symlink_to(outside)
    for path in ("file", "folder/secret.txt", "folder/new.txt"):
        assert "(it leads to " in desk.failed("read_file", path=path)
        assert "(it leads to " in desk.failed("write_file", path=path, content="x")
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt"]
    assert desk.done("search_files", pattern="pelican").startswith("[no match")
    assert desk.done("list_files") == f"file -> {outside}/secret.txt\nfolder -> {outside}"
    assert desk.done("list_files", pattern="**/*") == f"file -> {outside}/secret.txt\nfolder -> {outside}"


@pytest.fixture
def special(desk: Desk) -> Iterator[list[str]]:
    os.mkfifo(desk.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(desk.root)  # a socket's path must be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        yield ["fifo", "socket"]


def test_what_is_no_regular_file_is_left_alone_and_nobody_waits_for_it(desk: Desk, special: list[str]) -> None:
    for name in special:
        assert name in desk.failed("read_file", path=name)
        assert "not a regular file" in desk.failed("write_file", path=name, content="x")
        assert name in desk.failed("edit_file", path=name, old="a", new="b")
    assert "is a FIFO" in desk.failed("read_file", path="fifo")
    assert desk.done("search_files", pattern="x") == "[no match for 'x' in 0 files]"
    assert desk.done("list_files") == "fifo (no regular file)\nsocket (no regular file)"
