"""Sessions in the chat: going on after a crash, by title, on a branch, in another one; finding what was said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everlong.store import Store
from everlong.testing import Ask, Fault
from tests.chat.conftest import Gate, Open, idle, ready, talking_to
from tests.testing_server.conftest import Serve


def counter(ask: Ask) -> str:
    return f"{len(ask.turns)} turns; you said {ask.last_user!r}."


@pytest.mark.spec("8")
def test_a_chat_that_is_killed_goes_on(serve: Serve, chat: Open, home: Path) -> None:
    server = serve(counter)
    server.closing = gate = Gate()
    found = chat(server, "--title", "Harbour plans")
    found.enter("First.")
    found.wait("2 turns; you said 'First.'.")
    idle(found)
    server.fail_next(Fault("slow"))
    found.enter("Second.")
    gate.waits.wait()
    found.kill()
    assert found.wait_exit() == 137
    found.enter("stty sane")
    gate.open()

    found.start(*talking_to(server), "-c")
    seen = ready(found)
    assert "(Harbour plans): 3 messages" in seen
    assert "» Second." in seen
    found.wait("! this was not answered; /retry asks again")
    found.enter("/retry")
    found.wait("4 turns; you said 'Second.'.")
    idle(found)
    found.press("C-d")
    assert found.wait_exit() == 0

    found.start(*talking_to(server), "--resume", "Harbour plans")
    found.wait("4 turns; you said 'Second.'.")
    idle(found)
    found.enter("Third.")
    found.wait("6 turns; you said 'Third.'.")
    found.press("C-d")
    assert found.wait_exit() == 0
    with Store.open(home / "store.db") as store:
        assert not store.verify().problems
    assert not server.rejections


@pytest.mark.spec("8")
def test_sessions_are_titled_left_and_found(serve: Serve, chat: Open) -> None:
    server = serve(counter)
    found = chat(server)
    found.enter("/title")
    found.wait("✗ nothing was said yet")
    found.enter("The ferry leaves at eight.")
    found.wait("2 turns;")
    idle(found)
    found.enter("/title Ferry times")
    found.wait("Ferry times (2")
    idle(found)
    found.enter("/new")
    found.wait("a new session: 2")
    idle(found)
    found.enter("Something else.")
    found.wait("2 turns; you said 'Something else.'.")
    idle(found)
    found.enter("/resume")
    found.wait("Something else.", "Ferry times")
    idle(found)
    found.enter("/resume Ferry times")
    found.wait("(Ferry times): 2 messages")
    idle(found)
    found.enter("And the bus?")
    found.wait("4 turns; you said 'And the bus?'.")
    idle(found)
    found.enter("/search ferry leaves eight")
    seen = found.wait('  user, in "Ferry times"')
    (number,) = re.findall(r'^(\d+)  .*  user, in "Ferry times"', seen, re.MULTILINE)
    found.enter(f"/search {number}")
    found.until(lambda: found.everything().count("\nThe ferry leaves at eight.") == 1, "the whole message")
    found.enter("/search 8437")
    found.wait("nothing was found")
    found.enter("/search")
    found.wait("✗ say what to look for")
    found.enter("/resume nowhere")
    found.wait("✗ there is no conversation with the id or title 'nowhere'")
    found.enter("/memory")
    found.wait("nothing is remembered yet")
