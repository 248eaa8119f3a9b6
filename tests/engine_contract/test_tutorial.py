"""The tutorial, run as it stands: every command, every change, and what it says will be printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from everlong.testing import ModelServer
from tests.program import everlong_program

PAGE = Path(__file__).parent.parent.parent / "docs" / "writing-an-engine.md"
BASH = shutil.which("bash")


class Block(NamedTuple):
    kind: str
    text: str


def blocks() -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(kind, text) for kind, text in found]


class Reader:
    """Someone who does what the page says, in a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.where = home
        self.printed = ""
        self.code = 0

    def run(self, text: str) -> None:
        lines = [line for line in text.splitlines() if not line.startswith("pip install ")]
        script = "\n".join(["set -e", *lines, f"pwd > {self.home}/where"])
        assert BASH is not None
        done = subprocess.run(
            [BASH, "-c", script], cwd=self.where, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        self.printed, self.code = done.stdout + done.stderr, done.returncode
        if done.returncode == 0:
            self.where = Path((self.home / "where").read_text().strip())

    def change(self, text: str) -> None:
        """Apply a change whose first line names the file."""
        head, *lines = text.splitlines()
        path = self.where / head.removeprefix("# ")
        before = "\n".join(line[1:] for line in lines if line[0] in " -")
        after = "\n".join(line[1:] for line in lines if line[0] in " +")
        code = path.read_text(encoding="utf-8")
        assert code.count(before) == 1, f"{path.name} has not once:\n{before}"
        path.write_text(code.replace(before, after), encoding="utf-8")

    def write(self, text: str) -> None:
        """Write the file that the first line names."""
        head, _, code = text.partition("\n")
        (self.where / head.removeprefix("# ")).write_text(code, encoding="utf-8")

    def add(self, text: str) -> None:
        """Add code to the end of the file that its first line names."""
        head, _, code = text.partition("\n")
        path = self.where / head.removeprefix("# at the end of ")
        path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{code}", encoding="utf-8")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    if BASH is None:
        pytest.skip("no bash")
    programs = tmp_path / "bin"
    programs.mkdir()
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for name, command in {"everlong": everlong_program(), "pytest": tested}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.delenv("EVERLONG_HOME")
    for name, value in {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }.items():
        monkeypatch.setenv(name, value)
    return Reader(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="the page names the folder of Linux")
@pytest.mark.spec("1.6", "2.4")
def test_the_tutorial_leads_from_nothing_to_an_engine_in_use(reader: Reader) -> None:
    with ModelServer("Hello!", dialect="openai") as server:
        settings = {
            "agent": {"model": "openai:gpt-4o"},
            "providers": {"openai": {"base_url": server.openai_url}},
        }
        folder = reader.home / ".config" / "everlong"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(json.dumps(settings))
        told = blocks()
        for block, following in zip(told, [*told[1:], Block("", "")], strict=True):
            if block.kind == "sh":
                reader.run(block.text)
                fails = following.kind == "text" and "failed" in following.text
                assert (reader.code != 0) == fails, f"{block.text}\n{reader.printed}"
            elif block.kind == "text":
                missing = [line for line in block.text.splitlines() if line not in reader.printed]
                assert missing == [], reader.printed
            elif block.kind == "diff":
                reader.change(block.text)
            elif block.text.startswith("# at the end of "):
                reader.add(block.text)
            elif block.kind in {"python", "yaml"} and block.text.startswith("# "):
                reader.write(block.text)
        assert len(server.requests) == 1
        tools = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
        assert "find_request" in tools, "the engine's tool is offered to the model"


def test_the_package_of_the_tutorial_names_the_entry_points_that_are_looked_for() -> None:
    (package,) = [tomllib.loads(block.text) for block in blocks() if block.kind == "toml"]
    assert list(package["project"]["entry-points"]) == ["everlong.engines"]
