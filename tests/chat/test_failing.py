"""When something is wrong: what is said, what is kept, and the state in which the terminal is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.store import Store
from everlong.testing import Answer, Ask, Call
from tests.chat.conftest import Open, idle, ready, talking_to
from tests.examples import few
from tests.testing_server.conftest import Serve

A_BUG = """
import everlong.cli.chat.show as s
def broken(*_):
    raise TypeError("a made-up bug")
s.Show._HANDLERS[s.e.{}] = broken
"""


def script(ask: Ask) -> Answer:
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
    server = serve(script)
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
