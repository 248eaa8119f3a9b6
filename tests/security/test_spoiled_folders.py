"""What is no file where a folder's settings and instructions should be: it stops nobody, and keeps nobody waiting."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from everlong.cli.clients.client import ConfigurationFile
from everlong.cli.clients.formats import JSON
from everlong.config import load_settings
from everlong.config.trust import folder_wishes, folders_at, remember_folder
from everlong.errors import ConfigError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "clone" / ".everlong").mkdir(parents=True)
    return tmp_path / "clone"


def _looked_at(clone: Path) -> str:
    """Whatever any command does when it begins in a folder; what is wrong with its settings."""
    assert clone in folders_at(clone) or folders_at(clone)
    wishes = folder_wishes(clone)
    remember_folder(wishes, is_trusted=True)
    load_settings(cwd=clone)
    return wishes.problem


def test_a_pipe_keeps_nobody_waiting(clone: Path) -> None:
    os.mkfifo(clone / ".everlong" / "config.yaml")
    os.mkfifo(clone / "AGENTS.md")
    assert "is not a regular file" in _looked_at(clone)


def test_links_in_a_circle_are_no_settings(clone: Path) -> None:
    (clone / ".everlong").rmdir()
    (clone / ".everlong").symlink_to(".everlong")
    (clone / "AGENTS.md").symlink_to("AGENTS.md")
    assert "cannot be read" in _looked_at(clone) or "link" in _looked_at(clone)


def test_a_circle_at_the_settings_themselves_is_none_either(clone: Path) -> None:
    (clone / ".everlong" / "config.yaml").symlink_to("config.yaml")
    assert _looked_at(clone)


def test_a_name_that_is_too_long_is_no_instruction(clone: Path) -> None:
    (clone / "AGENTS.md").symlink_to("a" * 300)
    assert _looked_at(clone) == ""


@pytest.mark.parametrize("leads_to", ["a pipe", os.devnull, "/dev/zero"])
def test_what_a_client_would_read_there_keeps_nobody_waiting(clone: Path, leads_to: str) -> None:
    path = clone / "settings.json"
    os.mkfifo(clone / "a pipe")
    path.symlink_to(leads_to)
    with pytest.raises(ConfigError, match="no regular file"):
        ConfigurationFile(path, JSON).values()


@pytest.mark.parametrize("text", ["[" * 1_000, "a: &a [1]\nb: [*a, *c]", "compression: !!python/name:os.system x"])
def test_broken_settings_are_left_out_also_of_a_trusted_folder(text: str, clone: Path) -> None:
    (clone / ".everlong" / "config.yaml").write_text(text)
    assert _looked_at(clone)
    assert [notice for notice in load_settings(cwd=clone).notices if "left out" in notice]
