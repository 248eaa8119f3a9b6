"""Approvals: one key decides, a sentence says what to do instead, and nothing else is taken for a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.cli.chat.state import ASKED
from everlong.testing import Answer, Ask, Call, Fault
from tests.chat.conftest import Gate, Open, idle
from tests.examples import few
from tests.testing_server.conftest import Serve

SHOWN = ASKED.strip()


def writer(ask: Ask) -> Answer:
    """Writes what it is told into the file it is told: ``FILE WORD``."""
    if ask.turns[-1].results:
        return Answer(f"It said: {ask.results[-1][1]}")
    name, _, word = ask.last_user.partition(" ")
    return Answer("Writing.", [Call("write_file", {"path": name, "content": f"{word}\n"})])


def test_one_key_writes_once_always_or_not_at_all(serve: Serve, chat: Open, root: Path) -> None:
    found = chat(serve(writer))
    found.enter("yes.txt one")
    seen = found.wait(SHOWN)
    assert "? write_file yes.txt" in seen
    assert "+one" in seen
    assert not (root / "yes.txt").exists()
    found.press("1")
    found.wait("● write_file yes.txt")
    idle(found)
    assert (root / "yes.txt").read_text() == "one\n"

    found.enter("no.txt one")
    found.wait(SHOWN)
    found.press("3")
    found.wait("⊘ write_file no.txt", "It said:")
    idle(found)
    assert not (root / "no.txt").exists()

    found.enter("always.txt one")
    found.wait(SHOWN)
    found.press("2")
    found.wait("● write_file always.txt  [3] done")
    idle(found)
    found.enter("always.txt two")
    found.wait("● write_file always.txt  [4] done")
    idle(found)
    assert (root / "always.txt").read_text() == "two\n"


@pytest.mark.spec("12.3")
@pytest.mark.parametrize("words", few(["what?y", "1 file is enough", "yesterday", "actually, no"]))
def test_a_sentence_is_a_no_that_says_what_to_do_instead(serve: Serve, chat: Open, root: Path, words: str) -> None:
    found = chat(serve(writer))
    found.enter("first.txt one")
    found.wait(SHOWN)
    found.enter(words)
    found.wait("⊘ write_file first.txt", f"the user said no, and: {words}")
    idle(found)
    found.enter("first.txt two")
    found.wait("+two")
    assert not (root / "first.txt").exists()  # nothing was granted for ever


def test_what_is_being_typed_is_no_answer(serve: Serve, chat: Open, root: Path) -> None:
    server = serve(writer)
    server.closing = gate = Gate()
    found = chat(server)
    server.fail_next(Fault("slow"))
    found.enter("first.txt one")
    found.type("any")  # an a, an n and a y, while the answer is on its way
    found.wait("❯ any")
    gate.open()
    found.wait("? write_file first.txt", "send your line or clear it")
    found.enter("where.txt two")
    found.wait(SHOWN)
    assert not (root / "first.txt").exists()
    found.press("3")
    found.wait("⊘ write_file first.txt", "» anywhere.txt two", "? write_file anywhere.txt")
    found.wait(SHOWN)
    found.press("1")
    found.wait("● write_file anywhere.txt")
    idle(found)
    assert (root / "anywhere.txt").read_text() == "two\n"
