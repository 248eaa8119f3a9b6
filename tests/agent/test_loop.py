"""The four verbs against a real server: questions, tools, limits, failures, interrupts."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.agent import AgentEvent, Answered, ToolFinished
from everlong.store import Store
from everlong.testing import Answer, Ask, Call
from tests.agent.conftest import APIS, Opened
from tests.testing_server.conftest import Serve


@pytest.mark.parametrize("api", APIS)
def test_a_prompt_is_answered_with_the_help_of_a_tool(
    serve: Serve, opened: Opened, store: Store, root: Path, heard: list[AgentEvent], api: str
) -> None:
    (root / "notes.md").write_text("The harbour opens at seven.\n")

    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer(f"It says: {ask.results[-1][1]}")
        return Answer("Let me look.", [Call("read_file", {"path": "notes.md"})])

    server = serve(script, window=32_000)
    agent = opened(server, api)
    finished = agent.run("When does the harbour open?")
    assert "The harbour opens at seven." in finished.text
    assert (finished.stop, finished.steps) == ("end", 2)
    assert server.rejections == []
    assert [type(event) for event in heard if isinstance(event, Answered | ToolFinished)] == [
        Answered,
        ToolFinished,
        Answered,
    ]
    roles = [entry.message["role"] for entry in store.sessions.entries(finished.session_id)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert [turn.status for turn in store.turns.of_session(finished.session_id)] == ["done", "done"]
