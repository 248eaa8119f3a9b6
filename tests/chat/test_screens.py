"""A walk through a chat, and screens of other sizes and scripts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from everlong.testing import Answer, Ask, Call, Fault
from tests.chat.conftest import Gate, Open, environment, idle, talking_to
from tests.program import everlong_program
from tests.testing_server.conftest import Serve

MARKDOWN = """# Berths

The **northern pier** has three of them, the `southern` one has two.

```python
def berth(ship: str) -> int:
    return sum(map(ord, ship)) % 5
```

1. Ask the harbour master.
2. Tie up.

| ship | berth |
|---|---|
| 海鸥号 | 3 |
| Möwe 🚢 | 4 |

That is all."""


COMMANDS = [
    *("compress", "context", "history", "memory", "model", "new", "quit"),
    *("reset", "resume", "retry", "search", "title", "tools", "undo"),
]


def script(ask: Ask) -> Answer:
    if ask.turns[-1].results:
        return Answer("Written.")
    if "write" in ask.last_user:
        return Answer("I note it.", [Call("write_file", {"path": "berths.txt", "content": "海鸥号 3\nMöwe 4\n"})])
    return Answer(MARKDOWN)


@pytest.mark.spec("8")
def test_an_answer_an_approval_and_commands_are_shown(serve: Serve, chat: Open) -> None:
    found = chat(serve(script), columns=60, rows=120)
    found.enter("Which berths are there?")
    found.wait("That is all.")
    idle(found)
    found.enter("Please write that down.")
    found.wait("[1] yes")
    found.press("1")
    found.wait("Written.")
    idle(found)
    found.enter("/tools 1")
    found.wait("Made berths.txt")
    idle(found)  # a command that is sent while another is still at work is told once more when its turn comes
    found.enter("/context")
    found.wait("so far in this chat")
    idle(found)
    found.enter("/nonsense")
    found.wait("✗ there is no command /nonsense; see /help")
    idle(found)
    found.enter("/help")
    seen = found.wait("/undo [compaction]", "Ctrl-D leaves.")
    assert all(f"\n/{name} " in seen for name in COMMANDS)


@pytest.mark.soak
def test_wide_signs_break_no_line_and_a_resize_no_answer(serve: Serve, chat: Open) -> None:
    words = "海鸥号停在三号泊位🚢" * 12  # 20 columns each
    server = serve(f"Begin.\n\n{words}\n\nEnd.")
    server.closing = gate = Gate()
    found = chat(server, columns=60, rows=24)
    server.fail_next(Fault("slow"))
    found.enter("海鸥号在哪里？🚢 Where?")
    gate.let(4)
    found.wait("Begin.", "❯ 海鸥号在哪里？🚢 Where?")
    found.until(lambda: "🚢海鸥号" in found.screen().replace("\n", ""), "the beginning of what comes")
    found.resize(44, 20)
    found.wait_line("answering · Ctrl-C stops")
    found.type("meanwhile 海鸥")
    found.wait("❯ meanwhile 海鸥")
    found.resize(80, 30)
    gate.open()
    found.wait("End.")
    idle(found)
    seen = found.screen()
    assert words in re.sub(r"\s", "", seen)
    assert seen.count("❯ meanwhile 海鸥") == 1
    assert seen.count("End.") == 1
    found.enter("号")
    found.until(lambda: len(server.model.asked) == 2, "the second prompt")
    assert server.model.asked[1].last_user == "meanwhile 海鸥号"


def answers(ask: Ask) -> Answer:
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
    server = serve(answers)
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
    server = serve(answers)
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
