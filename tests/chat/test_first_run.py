"""The first minutes of a new user at a real terminal."""

from __future__ import annotations

from pathlib import Path

from tests.chat.conftest import Open, idle
from tests.testing_server.conftest import Serve


def offering(url: str) -> str:
    """Code that puts a server of the test into the place of Ollama, and takes all others away."""
    return f"""
import dataclasses
from everlong.providers import endpoints
for name in ("llamacpp", "lmstudio", "vllm"):
    del endpoints.ENDPOINTS[name]
endpoints.ENDPOINTS["ollama"] = dataclasses.replace(endpoints.ENDPOINTS["ollama"], base_url={url!r})
"""


NOBODY = offering("http://127.0.0.1:1/v1")


def test_with_nothing_one_screen_names_the_choices(terminal: Open) -> None:
    found = terminal()
    found.start(first=NOBODY)
    assert found.wait_exit() == 1
    seen = found.screen()
    for said in ("a key ", "a server ", "a file ", "everlong demo"):
        assert said in seen


def test_a_server_on_this_machine_is_one_key_away_and_remembered(serve: Serve, terminal: Open, home: Path) -> None:
    server = serve("Hello from the harbour.")
    found = terminal()
    found.start(first=offering(server.openai_url))
    found.wait("Which model should Everlong use?", "served on this machine")
    found.press("Enter")
    found.wait("Hello from the harbour.", "/help lists what you can type")
    idle(found)
    found.enter("Are you there?")
    found.until(lambda: found.everything().count("Hello from the harbour.") == 2, "an answer")
    found.press("C-d")
    assert found.wait_exit() == 0
    written = next(home.rglob("config.yaml")).read_text(encoding="utf-8")
    assert written.startswith("# Everlong's settings.")
    assert "model: ollama:" in written


def test_leaving_the_menu_changes_nothing(serve: Serve, terminal: Open, home: Path) -> None:
    found = terminal()
    found.start(first=offering(serve().openai_url))
    found.wait("Which model should Everlong use?")
    found.press("Escape")
    assert found.wait_exit() == 1
    assert "`everlong setup` asks again" in found.everything()
    assert not list(home.rglob("config.yaml"))
