"""Agents with engines from the folders beside this file, each on a real store and against a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlong.agent import Agent, AgentEvent, Notice
from everlong.testing import Answer, Ask, Call
from tests.agent.conftest import Opened, heard, opened
from tests.examples import length
from tests.testing_server.conftest import Serve, serve

__all__ = ["heard", "opened", "serve"]

collect_ignore = ["folders"]  # plugins, some with tests of their own that need another host on the path

FOLDERS = Path(__file__).parent / "folders"
WINDOW = 8_000
SENTENCE = "The pilot boat reports wind from the west and a swell of two metres at the outer buoy. "
FILLER = SENTENCE * length(1, 2)
"""Twice as long in a short run, so that half as many turns are compacted as often."""

WithEngine = Callable[..., Agent]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's configuration and data."""
    monkeypatch.setenv("EVERLONG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def with_engine(serve: Serve, opened: Opened) -> WithEngine:
    """Opens an agent whose engine is the plugin in a folder."""

    def open_one(name: str, script: Any = None, **more: Any) -> Agent:
        server = more.pop("server", None) or serve(script or talker, window=WINDOW)
        sections: dict[str, Any] = {**more.pop("context", {}), "engine": name}
        plugins = {"paths": [str(FOLDERS)], **more.pop("plugins", {})}
        settings = {"context": sections, "plugins": plugins, **more.pop("settings", {})}
        return opened(server, settings=settings, **more)

    return open_one


def talker(ask: Ask) -> Answer:
    """Answers at length; calls a tool of the engine where one is asked for and there."""
    if "## Goal" in ask.last_user:
        return Answer("## Goal\nKeep the harbour log.")
    if "use the tool" in ask.last_user and not ask.results:
        tool = next((name for name in ask.tools if name.endswith(("_tool", "_find"))), None)
        if tool is not None:
            return Answer(calls=[Call(tool, {"words": "berth nine"})])
    return Answer(f"Noted, entry {ask.number}. {FILLER * 5}")


def talk(agent: Agent, turns: int, start: int = 0, filler: str = FILLER) -> None:
    for number in range(start, start + turns):
        wish = "Now use the tool. " if number % 40 == 20 else ""
        assert agent.run(f"Entry {number}: {wish}{filler * 6}").stop == "end"


def notices(heard: list[AgentEvent]) -> list[str]:
    return [event.text for event in heard if isinstance(event, Notice)]
