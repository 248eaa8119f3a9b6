"""docs/clients.md: every command is run, in the order of its section, and what it says to write is what is written."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from everlong.cli.clients.known import CLIENTS
from everlong.cli.main import main
from tests.cli.client_files import SECTIONS, TITLES, address, commands_of, scratch_home
from tests.cli.conftest import Run

__all__ = ["address"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the places of files are those of Linux"),
    pytest.mark.usefixtures("address"),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("python", *(program for client in CLIENTS.values() for program in client.programs)):
        (bin_ / name).write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return scratch_home(tmp_path / "home", monkeypatch)


def test_every_client_has_its_section() -> None:
    assert list(TITLES) == list(CLIENTS)
    assert set(TITLES.values()) < set(SECTIONS)


@pytest.mark.parametrize("client", TITLES)
def test_the_commands_of_a_section_run_one_after_the_other(
    home: Path, address: str, capfd: pytest.CaptureFixture[str], client: str
) -> None:
    assert [words[:3] for words in commands_of(client)][1] == ["everlong", "setup", client]
    for words in commands_of(client):
        named = ["--url", address] if "--write" in words else []  # it writes only where a gateway is
        main([*words[1:], *named])
        said = capfd.readouterr()
        if words[1] == "wrap":
            assert "came through the gateway" in said.err, "the stand-in asks no model"
            assert "no gateway" not in said.err
        elif "--write" not in words and "--undo" not in words:
            assert address in said.out
    assert [path for path in home.rglob("*") if path.is_file() and "everlong" not in path.parts] == []


READERS: dict[str, Any] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": YAML(typ="safe").load,
    "text": str.splitlines,
}


@pytest.mark.parametrize("client", [one for one, title in TITLES.items() if "By hand, in" in SECTIONS[title]])
def test_what_is_to_be_written_by_hand_is_what_setup_writes(run: Run, address: str, client: str) -> None:
    ((language, shown),) = re.findall(
        r"^```(json|toml|yaml|text)\n(.*?)^```", SECTIONS[TITLES[client]], re.DOTALL | re.MULTILINE
    )
    assert READERS[language](run("setup", client).out.replace(address, "http://127.0.0.1:8642")) == READERS[language](
        shown
    )
