"""Who is asked about what, what a yes is good for, and how a person is asked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from everlong.agent.approval import (
    Decision,
)
from tests.agent.desk import Desk


def test_only_calls_that_change_something_are_asked_about(desk: Desk) -> None:
    desk.file("a.txt", "x\n")
    calls: dict[str, dict[str, object]] = {
        "read_file": {"path": "a.txt"},
        "list_files": {},
        "search_files": {"pattern": "x"},
        "update_todo": {"items": []},
        "search_sessions": {"query": "x"},
    }
    for name, arguments in calls.items():
        desk.done(name, **arguments)
    assert desk.asked == []
    desk.done("write_file", path="a.txt", content="y\n")
    desk.done("run_command", command="true")
    assert [(request.tool, request.effect) for request in desk.asked] == [
        ("write_file", "writes"),
        ("run_command", "runs"),
    ]


def test_a_yes_for_the_session_is_for_the_same_file_or_the_same_command(desk: Desk) -> None:
    desk.answer = "session"
    desk.done("run_command", command="true")
    desk.done("run_command", command="true")
    assert len(desk.asked) == 1
    desk.done("run_command", command="true && true")
    assert len(desk.asked) == 2
    desk.done("write_file", path="a.txt", content="x")
    desk.done("write_file", path="./a.txt", content="y")
    assert len(desk.asked) == 3
    desk.done("write_file", path="b.txt", content="x")
    desk.done("edit_file", path="a.txt", old="y", new="z")
    assert len(desk.asked) == 5
    assert {key for _, key in desk.approvals.remembered} == {
        *("run_command:true", "run_command:true && true"),
        *("write_file:a.txt", "write_file:b.txt", "edit_file:a.txt"),
    }


def test_a_yes_to_a_command_that_cannot_run_is_none_to_another_one_with_the_network(desk: Desk) -> None:
    desk.answer = "session"
    desk.failed("run_command", command="true\0network")
    desk.run("run_command", command="true", network=True)
    assert len(desk.asked) == 1
    assert desk.asked[0].summary == "run_command true (with the network)"


def test_a_yes_once_is_good_once_and_a_no_is_told_to_the_model(desk: Desk) -> None:
    desk.done("run_command", command="true")
    desk.done("run_command", command="true")
    assert len(desk.asked) == 2
    desk.answer = "no"
    result = desk.run("run_command", command="touch x")
    assert result.outcome == "refused"
    assert result.message["content"].startswith("Not allowed, so nothing was done: the user said no;")
    assert not (desk.root / "x").exists()


ASKING = """
import os, sys
if len(sys.argv) > 1:
    os.setsid()
    os.close(os.open(sys.argv[1], os.O_RDWR))  # the first terminal that a session opens becomes its own
from everlong.agent.approval import ApprovalRefused, ApprovalRequest, ask_on_terminal
detail = sys.stdin.read()
request = ApprovalRequest("run_command", "runs", "run_command ls", detail, "this very command")
try:
    print(ask_on_terminal(request))
except ApprovalRefused as error:
    print("refused:", error)
"""


class Person:
    """Somebody at a real terminal, with the program's input being a pipe."""

    def __init__(self, detail: str) -> None:
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKING, os.ttyname(slave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.slave = slave
        assert self.process.stdin is not None
        self.process.stdin.write(detail.encode())
        self.process.stdin.close()
        self.seen = ""

    def reads_until(self, text: str) -> None:
        while text not in self.seen:
            self.seen += os.read(self.master, 65_536).decode()

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def gets(self) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.read().decode().strip()
        self.process.stdout.close()
        assert self.process.wait() == 0
        os.close(self.slave)
        os.close(self.master)
        return said


posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")


@posix
@pytest.mark.parametrize(("typed", "decision"), [("YES\n", "once"), ("s\n", "session"), ("no\n", "no")])
def test_a_person_answers_with_a_letter_or_a_word(typed: str, decision: Decision) -> None:
    person = Person("ls -la")
    person.reads_until("[n]o: ")
    person.types(typed)
    assert person.gets() == decision
    assert "run_command ls\r\n\r\n    ls -la\r\n" in person.seen
    assert "Allow it? [y]es once, [s] yes to this very command in this session, [n]o: " in person.seen


@posix
def test_anything_else_is_no_answer_and_a_long_diff_can_be_seen_whole() -> None:
    person = Person("\n".join(f"line {number}" for number in range(100)))
    person.reads_until("[n]o: ")
    assert "line 59\r\n    … 40 more lines" in person.seen
    person.types("\n")
    person.reads_until("[n]o: \r\nAllow it?")
    person.types("what?\n")
    person.types("v\n")
    person.reads_until("line 99\r\n")
    person.types("y\n")
    assert person.gets() == "once"


@posix
def test_a_terminal_that_closes_is_a_no() -> None:
    person = Person("ls")
    person.reads_until("[n]o: ")
    person.types("\x04")
    assert person.gets() == "refused: the terminal was closed before there was an answer"


@posix
def test_without_a_terminal_the_answer_is_no_and_says_what_to_do() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ASKING], input="ls", capture_output=True, text=True, check=True, start_new_session=True
    )
    assert ran.stdout.strip() == "refused: there is no terminal to ask; run with --yes"
