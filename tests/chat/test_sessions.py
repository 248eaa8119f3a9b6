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


def echo(ask: Ask) -> str:
    return f"{len(ask.turns)} turns; rules {'seen' if 'Spell colour with u' in ask.text else 'unseen'}."


@pytest.mark.spec("8")
@pytest.mark.spec("9.6")
def test_rules_are_listed_edited_and_kept(serve: Serve, chat: Open) -> None:
    server = serve(echo)
    found = chat(server, "--title", "House rules")
    found.enter("/rules")
    found.wait("no rules yet")
    found.enter("Never touch legacy/. What is in it?")
    found.wait("2 turns; rules unseen.")
    idle(found)
    found.enter("/rules add Spell colour with u.")
    found.wait("in force from now on: Spell colour with u.")
    found.enter("/rules")
    found.wait("1  Never touch legacy/.  (turn 1)", "2  Spell colour with u.  (turn 1)")
    found.enter("/search colour")
    found.wait("Edited by the user with /rules: + Spell colour with u.")
    assert "user_rules" not in found.everything()
    found.enter("/rules remove 1")
    found.wait("no longer in force: Never touch legacy/.")
    found.enter("/rules remove 9")
    found.wait("✗ '9' is no number from 1 to 1")
    found.enter("/rules forget")
    found.wait("✗ say /rules, /rules add TEXT, or /rules remove N")
    found.enter("And now?")
    found.wait("rules seen.")
    idle(found)
    found.press("C-d")
    assert found.wait_exit() == 0

    found.start(*talking_to(server), "--resume", "House rules")
    ready(found)
    found.enter("/rules")
    found.until(lambda: found.everything().count("1  Spell colour with u.") > 0, "the rule after a restart")
    found.press("C-d")
    assert found.wait_exit() == 0
    assert not server.rejections
