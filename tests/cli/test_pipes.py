"""What holds for all commands: tables as JSON, no colours if nobody wants them, whole words on a narrow screen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import everlong
from everlong.cli.main import cli
from everlong.store import Store
from tests.program import everlong_program

WITHOUT_A_TABLE = {
    "config set", "plugins use", "trust add", "trust remove",
    "channels pair", "sessions backup", "sessions export", "sessions rename",
    "setup",  # they change something and say so in a line
    "channels run", "chat", "mcp", "wrap",  # they talk to somebody else
}  # fmt: skip


def leaves(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield " ".join(names), command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, *names, name)


def test_every_command_that_prints_a_table_prints_json() -> None:
    plain = {name for name, one in leaves(cli) if not any("--json" in option.opts for option in one.params)}
    assert plain == WITHOUT_A_TABLE


def on_terminal(*arguments: str, **env: str) -> str:
    """Return what the program writes to a terminal of 80 columns."""
    pty = pytest.importorskip("pty", reason="needs a terminal of Unix")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*everlong_program(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80", "TERM": "xterm-256color", **env},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # so a terminal of Linux says that all was read
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    process.wait()
    return said.decode().replace("\r\n", "\n")


def test_no_color_means_none(tmp_path: Path) -> None:
    home = {"EVERLONG_HOME": str(tmp_path)}
    coloured = re.compile(r"\x1b\[[\d;]*(?:3|4|9|10)[0-7]m")
    assert coloured.search(on_terminal("doctor", **home))
    assert not coloured.search(on_terminal("doctor", NO_COLOR="1", **home))


@pytest.mark.parametrize(
    "words",
    [
        ("setup", "codex", "--write", "--undo"),
        ("compress", "TALK", "--budget", "1"),
        ("compress", "TALK"),
        ("doctor",),
        ("run", "Hello"),
    ],
)
def test_words_stay_whole_on_80_columns(tmp_path: Path, words: tuple[str, ...]) -> None:
    talk = tmp_path / "talk.json"
    talk.write_text('[{"role": "user", "content": "Where is the harbour?"}]')
    said = on_terminal(*(str(talk) if word == "TALK" else word for word in words), NO_COLOR="1")
    lines = [line for line in said.splitlines() if str(tmp_path) not in line]  # a path is one word
    assert len(lines) > 1
    assert [line for line in lines if len(line) > 80 and " " in line.strip() and not line.startswith("[")] == []


def test_a_hit_in_colours_fills_its_lines(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        branch = store.record([{"role": "user", "content": "The ferry Amber takes berth seven. " * 6}])
        store.sessions.start(branch, title="Harbour", from_depth=0)
    said = on_terminal("sessions", "search", "ferry berth", EVERLONG_HOME=str(tmp_path))
    shown = re.sub(r"\x1b\[[\d;]*m", "", said).splitlines()[:3]
    assert "\x1b" in said
    assert all(60 < len(line) <= 80 for line in shown[1:])


def test_notices_are_printed_in_one_place_which_keeps_their_words_whole() -> None:
    """What runs until it is stopped, such as ``everlong serve``, has its lines from there too."""
    own = re.compile(r"(?:echo|write|print)\(f\"everlong: ")
    found = [path.name for path in Path(everlong.__file__).parent.rglob("*.py") if own.search(path.read_text("utf-8"))]
    assert found == []
