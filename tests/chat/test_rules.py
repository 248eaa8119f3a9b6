"""``/rules`` in the chat: what was laid down is listed, edited by hand, and there again later."""

from __future__ import annotations

import pytest

from everlong.testing import Ask
from tests.chat.conftest import Open, idle, ready, talking_to
from tests.testing_server.conftest import Serve


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
