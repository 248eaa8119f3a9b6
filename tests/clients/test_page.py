"""docs/clients.md: the commands of a client's section are run with the client itself, in their order."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.clients.install import command_of
from bench.clients.programs import PROGRAMS, Place, Program
from bench.clients.script import Plan, expected_files, plan_of_one_prompt, short_plan
from bench.clients.session import open_desk, written

from everlong.store import Store
from tests.cli.client_files import TITLES, commands_of
from tests.gateway.served import program as served_gateway
from tests.program import everlong_program
from tests.waiting import PATIENCE

pytestmark = pytest.mark.matrix

ADDRESSES = ("ANTHROPIC_BASE_URL", "OPENAI_API_BASE")
"""Variables by which the clients of the matrix are told an address; a file must do that here."""


def plan_for(program: Program) -> Plan:
    return short_plan() if program.resumes else plan_of_one_prompt(1, 300)


def answer_to(plan: Plan) -> str:
    return plan.tasks[0].answer or "halibut"


class Person:
    """Somebody who types the commands of the page, in the home of a client."""

    def __init__(self, program: Program, place: Place, root: Path, port: int) -> None:
        self.program, self.place = program, place
        self.data = root / "everlong"
        self._bin = root / "bin"
        self._bin.mkdir()
        self._port = port

    def environment(self, *, has_address: bool) -> dict[str, str]:
        """The client's own environment, and Everlong's."""
        told = self.program.environment(self.place)
        kept = {name: value for name, value in told.items() if has_address or name not in ADDRESSES}
        return {
            **kept,
            "PATH": f"{self._bin}:{told['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "EVERLONG_HOME": str(self.data),
            "EVERLONG_GATEWAY__PORT": str(self._port),
        }

    def install(self, name: str) -> None:
        """Have the client found by the name that the page calls it by."""
        file = self._bin / name
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command_of(self.program.name))} "$@"\n', encoding="utf-8")
        file.chmod(0o755)

    def arguments(self, prompt: str) -> list[str]:
        """What the client needs to do something without a person; the page leaves that to whoever types."""
        whole = self.program.command(self.place, prompt, resumes=False)
        return whole[len(command_of(self.program.name)) :]

    def type(self, words: list[str], *more: str, has_address: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of the page, or the client itself."""
        command = [*everlong_program(), *words[1:]] if words[0] == "everlong" else words
        ran = subprocess.run(
            [*command, *more],
            cwd=self.place.folder,
            env=self.environment(has_address=has_address),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.returncode == 0, f"{words}: {ran.stdout[-1500:]} {ran.stderr[-1500:]}"
        return ran

    def files(self) -> dict[str, bytes]:
        """The files in the home that `setup` may change."""
        kinds = ("settings.json", "config.toml", "opencode.json", "models.json", "providers.json", ".aider.conf.yml")
        found = [path for path in self.place.home.rglob("*") if path.is_file() and path.name in kinds]
        return {str(path.relative_to(self.place.home)): path.read_bytes() for path in found}


@contextmanager
def free_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    yield port


def test_every_client_of_the_matrix_has_a_section_and_no_command_is_left_out() -> None:
    assert set(TITLES) == {program.name for program in PROGRAMS.values()}
    for name in TITLES:
        wrap, *setup = commands_of(name)
        assert wrap[:3] == ["everlong", "wrap", "--"]
        assert setup == [["everlong", "setup", name, *more] for more in ([], ["--write"], ["--undo"])]


@pytest.mark.parametrize("program", TITLES, indirect=True)
def test_the_commands_of_the_page_lead_the_client_through_the_gateway(program: Program, tmp_path: Path) -> None:
    plan = plan_for(program)
    wrap, show, write, undo = commands_of(program.name)
    with open_desk(program, [plan], through_gateway=False, window=200_000) as desk, free_port() as port:
        place = desk.place(plan)
        person = Person(program, place, tmp_path, port)
        person.install(wrap[-1])

        ran = person.type(wrap, *person.arguments(plan.prompt(0)))
        assert answer_to(plan) in " ".join(ran.stdout.split())
        assert re.search(r"everlong: \d+ requests?", ran.stderr), ran.stderr[-500:]
        assert "came through" not in ran.stderr
        direct = len(desk.server.requests)
        for path in written(place):
            (place.folder / path).unlink()  # the second run does the same work

        before = person.files()
        assert str(port) in person.type(show).stdout
        assert person.files() == before, "showing changes nothing"
        person.type(write)
        assert person.files() != before
        home, store = {"EVERLONG_HOME": str(tmp_path / "served")}, tmp_path / "served.db"
        asked = ("--port", str(port), "--upstream", desk.server.url, "--store", str(store))
        with served_gateway(*asked, **home) as served:
            assert served.address
            ran = person.type([wrap[-1]], *person.arguments(plan.prompt(0)), has_address=False)
            assert answer_to(plan) in " ".join(ran.stdout.split())
            served.tell(signal.SIGTERM)
            assert served.end()[0] == 0
        with Store.open(store) as kept:
            turns = sum(turn.status == "done" for turn in kept.turns.since())
        assert turns == len(desk.server.requests) - direct > 0

        person.type(undo)
        assert person.files() == before
        assert written(place) == {path: text for path, text in expected_files(plan).items() if path in written(place)}
        assert desk.server.rejections == []
