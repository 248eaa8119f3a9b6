"""Ctrl-C wherever the chat is: it stops what is under way and nothing else; and how the program leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everlong.store import Store
from everlong.testing import Answer, Ask, Call, Fault
from tests.chat.conftest import Gate, Open, configure, idle, long_talk, ready, talking_to
from tests.examples import few
from tests.testing_server.conftest import Serve

FAR_OUT = "Far out.\n\nAnd on, and on, and on, for as long as one listens, which is not very long."
NEVER_STARTS = "import time, everlong.cli.chat.worker as o; o.Opening.desk = lambda *_: time.sleep(3600)"

INTERRUPTED_LOADING = """
import os, signal, sys
class Interrupting:
    def find_spec(name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
"""


NOBODY = ["chat", "-m", "some-model", "--base-url", "http://127.0.0.1:1/v1"]


def script(ask: Ask) -> Answer:
    if ask.turns[-1].results:
        return Answer(f"It said: {ask.results[-1][1]}")
    if ask.last_user.startswith("$ "):
        return Answer("Running.", [Call("run_command", {"command": ask.last_user[2:]})])
    return Answer(FAR_OUT)


def test_ctrl_c_stops_what_is_under_way(serve: Serve, chat: Open, home: Path, root: Path) -> None:
    configure(home, agent={"sandbox": "off"})  # inside, a process has another number
    server = serve(script)
    server.closing = gate = Gate()
    found = chat(server)

    found.type("never sent")  # with a text: it is thrown away
    found.wait("❯ never sent")
    found.press("C-c")
    found.until(lambda: "❯ never sent" not in found.screen(), "an empty prompt")
    found.press("C-c")  # with none: it says how to leave
    found.wait_line("Ctrl-D leaves")

    server.fail_next(Fault("slow"))  # while an answer comes
    found.enter("Go on.")
    gate.let(4)
    found.wait("Far out.")
    found.press("C-c")
    found.wait("! stopped")
    gate.open()
    idle(found)

    found.enter("$ echo $$ > running; sleep 3600")  # while something is asked
    found.wait("[1] yes")
    found.press("C-c")
    idle(found)
    assert not (root / "running").exists()

    found.enter("$ echo $$ > running; sleep 3600")  # while a command runs
    found.wait("[1] yes")
    found.press("1")
    found.until((root / "running").exists, "the command")
    found.press("C-c")
    idle(found)
    pid = int((root / "running").read_text())
    found.until(lambda: not alive(pid), "the end of the command")

    found.enter("Still there?")
    found.until(lambda: found.everything().count("Far out.") == 2, "an answer")
    assert not server.rejections
    assert len(server.model.asked) == 4


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_stops_a_compaction_and_nothing_is_changed(serve: Serve, chat: Open, home: Path) -> None:
    long_talk(home, "Long talk")
    server = serve("Understood.", window=32_000)
    server.closing = gate = Gate()
    found = chat(server, "--resume", "Long talk")
    before = found.last_line
    server.fail_next(Fault("slow"))
    found.enter("/compress the harbour")
    found.until(gate.waits.is_set, "the request for a summary")
    found.wait_line(r"compacting [\d,]+ tokens · Ctrl-C stops")
    found.press("C-c")
    found.wait("! stopped; nothing was changed")
    gate.open()
    assert idle(found).count("⟲") == 0
    assert found.last_line == before


def test_ctrl_c_during_the_start_leaves_with_130(serve: Serve, terminal: Open) -> None:
    found = terminal()
    found.start(*talking_to(serve()), first=NEVER_STARTS)
    found.wait_line("starting")
    found.type("typed early")
    found.wait("❯ typed early")
    found.press("C-c")
    found.until(lambda: "❯ typed early" not in found.screen(), "an empty prompt")
    found.press("C-c")
    assert found.wait_exit() == 130
    assert "Traceback" not in found.everything()


@pytest.mark.parametrize(
    "module",
    few(["everlong.cli.main", "prompt_toolkit", "click", "everlong.cli.chat.worker", "everlong.cli.chat.terminal"], 2),
)
def test_ctrl_c_while_the_program_is_loaded_leaves_quietly_with_130(terminal: Open, module: str) -> None:
    found = terminal()
    found.start(*NOBODY, first=INTERRUPTED_LOADING.format(module=module))
    assert found.wait_exit() == 130
    assert found.screen().splitlines()[-2:] == ["everlong: interrupted", "[130]$"]
    assert "Traceback" not in found.everything()
    assert "-echo " not in found.shell("stty -a")


@pytest.mark.parametrize("word", few(["/quit", "exit"]))
def test_quit_waits_its_turn(serve: Serve, chat: Open, word: str) -> None:
    server = serve(script)
    server.closing = gate = Gate()
    found = chat(server)
    server.fail_next(Fault("slow"))
    found.enter("Go on.")
    gate.let(2)
    found.enter(word)
    found.wait_line("1 waiting")
    gate.open()
    assert found.wait_exit() == 0
    assert "not very long" in found.everything()


A_BUG = """
import everlong.cli.chat.show as s
def broken(*_):
    raise TypeError("a made-up bug")
s.Show._HANDLERS[s.e.{}] = broken
"""


def failing(ask: Ask) -> Answer:
    if ask.turns[-1].results:
        return Answer(f"It said: {ask.results[-1][1]}")
    if ask.last_user.startswith("list"):
        return Answer("", [Call("list_files", {})])
    return Answer(f"{len(ask.turns)} turns.")


def test_wrong_calls_leave_with_2_and_what_cannot_be_opened_with_1(serve: Serve, terminal: Open, home: Path) -> None:
    found = terminal()
    found.start("chat", "-c", "--resume", "x")
    found.wait("use --continue or --resume, not both")
    assert found.wait_exit() == 2
    found.start(*talking_to(serve()), "--resume", "nowhere")
    found.wait("✗ there is no conversation with the id or title 'nowhere'")
    assert found.wait_exit() == 1
    (home / "config.yaml").write_text("compression: {threshold: 7}\n", encoding="utf-8")
    found.start(*talking_to(serve()))
    found.wait("compression.threshold")
    assert found.wait_exit() == 1
    assert "Traceback" not in found.everything()


@pytest.mark.parametrize("event", few(["ToolFinished", "Answered"]))
def test_a_bug_leaves_the_terminal_sane_and_the_session_whole(
    serve: Serve, terminal: Open, home: Path, event: str
) -> None:
    server = serve(failing)
    found = terminal(140, 40)
    before = found.shell("stty -a")
    found.start(*talking_to(server), first=A_BUG.format(event))
    ready(found)
    found.enter("list the files")
    found.wait("✗ this is a bug in Everlong; the conversation is kept: TypeError: a made-up bug")
    idle(found)
    assert "Traceback" not in found.everything()
    found.press("C-d")
    assert found.wait_exit() == 0
    assert found.shell("stty -a") == before

    found.start("--debug", *talking_to(server), "-c", first=A_BUG.format(event))
    ready(found)
    found.enter("list them again")
    found.wait("Traceback (most recent call last)", "TypeError: a made-up bug")
    idle(found)
    found.press("C-d")
    assert found.wait_exit() == 0
    assert found.shell("stty -a") == before
    assert not server.rejections  # every call has its result
    with Store.open(home / "store.db") as store:
        assert not store.verify().problems
