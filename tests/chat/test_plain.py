"""The chat without drawing: in a pipe, in a dumb terminal, for screen readers, without colours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from everlong.testing import Answer, Ask, Call, Fault
from tests.chat.conftest import Gate, Open, environment, talking_to
from tests.program import everlong_program
from tests.testing_server.conftest import Serve


def script(ask: Ask) -> Answer:
    if ask.turns[-1].results:
        return Answer(f"It said: {ask.results[-1][1]}")
    if ask.last_user.startswith("write "):
        return Answer("", [Call("write_file", {"path": ask.last_user[6:], "content": "seven\n"})])
    return Answer(f"You said **{ask.last_user}**.\n\n- one\n- two")


def piped(home: Path, root: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*everlong_program(), *arguments],
        input=lines,
        cwd=root,
        env=environment(home),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_every_line_of_a_pipe_is_a_prompt_or_a_command(serve: Serve, home: Path, root: Path) -> None:
    server = serve(script)
    done = piped(home, root, "hi\n\nwrite out.txt\n/context\n/nonsense\n", *talking_to(server))
    out, err = done.stdout, done.stderr
    assert out.startswith("You said **hi**.\n- one\n- two\n")  # as the model wrote it
    assert re.search(r"^tail +[\d,]+ ", out, re.MULTILINE)
    assert "Prompt caching" not in out
    assert "Prompt caching" in err
    assert "⊘ write_file out.txt" in err  # nobody is there to ask
    assert "✗ there is no command /nonsense; see /help" in err
    assert not (root / "out.txt").exists()
    assert "\x1b" not in out + err
    assert done.returncode == 1  # because of /nonsense
    assert [ask.last_user for ask in server.model.asked] == ["hi", "write out.txt", "write out.txt"]


def test_a_dumb_terminal_is_asked_line_by_line(serve: Serve, terminal: Open, root: Path) -> None:
    server = serve(script)
    server.closing = gate = Gate()
    found = terminal()
    found.start(*talking_to(server), env={"TERM": "dumb"})
    found.wait_line("^>$")
    found.enter("hi")
    found.wait("You said **hi**.")
    found.wait_line("^>$")
    found.enter("write out.txt")
    found.wait_line("or say what to do instead:$")
    found.enter(" ")
    found.until(lambda: found.everything().count("[1] yes") == 2, "the question once more")
    assert not (root / "out.txt").exists()
    found.enter("y")
    found.wait("● write_file out.txt")
    found.wait_line("^>$")
    assert (root / "out.txt").read_text() == "seven\n"

    server.fail_next(Fault("slow"))  # Ctrl-C stops an answer, and throws a line away
    found.enter("slowly")
    gate.waits.wait()
    found.press("C-c")
    found.wait("! stopped")
    gate.open()
    found.wait_line("^>$")
    found.type("never")
    found.press("C-c")
    found.until(lambda: found.last_line == ">", "an empty line")
    found.enter("write not.txt")  # and a question
    found.wait_line("or say what to do instead:$")
    found.press("C-c")
    found.wait_line("^>$")
    assert not (root / "not.txt").exists()
    found.press("C-d")
    assert found.wait_exit() == 0
    assert "Traceback" not in found.everything()
