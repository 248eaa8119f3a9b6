"""Plugins at a terminal: the menu that chooses an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat.conftest import Open
from tests.plugins.making import HARBOUR_LOG, engine_in


@pytest.mark.spec("2.6")
def test_an_engine_is_chosen_from_the_menu(terminal: Open, home: Path) -> None:
    engine_in(home / "plugins" / "context_engine" / "harbour_log", manifest=HARBOUR_LOG)
    engine_in(home / "plugins" / "context_engine" / "short", manifest="")
    file = home / "config.yaml"
    file.write_text("# mine\ncontext:\n  engine: compressor  # for now\n", encoding="utf-8")
    found = terminal(80)
    found.start("plugins")
    found.wait("› ● compressor")
    seen = found.everything()
    assert "Provider Plugins → Context Engine" in seen
    assert "○ harbour_log  1.2.0  user" in seen
    assert "Keeps one line for each request." in seen
    assert "clears old tool …\n" in seen  # cut behind a word
    assert "! it has no plugin.yaml" in seen
    found.press("Down")
    found.wait("› ○ lcm")
    found.press("Down")
    found.wait("› ○ harbour_log")
    found.press("Enter")
    assert found.wait_exit() == 0
    assert "context.engine is now harbour_log in" in found.everything()
    assert file.read_text(encoding="utf-8") == "# mine\ncontext:\n  engine: harbour_log  # for now\n"
