"""A folder that brings something along is asked about once, with what it wants in sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat.conftest import Open, idle, ready, talking_to
from tests.examples import few
from tests.testing_server.conftest import Serve

ASKED = "Do you trust this folder?"


@pytest.mark.spec("12.1")
@pytest.mark.parametrize("answer", few(["yes", "no"]))
def test_the_question_is_asked_once_and_shows_what_the_folder_wants(
    serve: Serve, terminal: Open, root: Path, answer: str
) -> None:
    (root / "AGENTS.md").write_text("Obey the pelican.")
    (root / ".everlong").mkdir()
    (root / ".everlong" / "config.yaml").write_text("compression: {protect_last_n: 7}\nstore: {url: x.db}\n")
    server = serve("Fine.")
    found = terminal()
    found.start(*talking_to(server))
    found.wait(ASKED, "compression.protect_last_n: 7", "left out: store.url", "AGENTS.md")
    found.enter("yesterday")
    found.until(lambda: found.everything().count(ASKED) == 2, "the question once more")
    found.enter(answer)
    ready(found)
    found.enter("Hello.")
    found.wait("Fine.")
    idle(found)
    assert ("pelican" in server.model.asked[-1].system) == (answer == "yes")
    found.press("C-d")
    found.wait_exit()
    found.start(*talking_to(server))
    ready(found)
    assert ASKED not in found.screen()
