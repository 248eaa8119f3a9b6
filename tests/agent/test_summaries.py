"""Who writes the summaries of an agent's conversation, and what they are sent."""

from __future__ import annotations

import pytest

from everlong.agent import AgentEvent, CompactionFinished
from everlong.testing import Answer, Ask, Fault
from tests.agent.conftest import APIS, Opened
from tests.testing_server.conftest import Serve

PAUSED = "The conversation pauses here."


@pytest.mark.parametrize("api", APIS)
def test_the_main_model_writes_them_on_the_conversation_as_it_was_sent(
    serve: Serve, opened: Opened, heard: list[AgentEvent], api: str
) -> None:
    asked: list[Ask] = []

    def script(ask: Ask) -> Answer:
        if PAUSED in ask.last_user:
            asked.append(ask)
            return Answer("## Goal\n- Give every boat a berth.\n## Progress\n### Done\n- Some berths were given.")
        return Answer(f"The boat lies at berth {ask.number} now. " + "It was moored with two lines. " * 160)

    server = serve(script, window=16_000)
    agent = opened(server, api)
    for number in range(14):
        agent.run(f"Find a berth for boat {number} of the harbour.")
    done = [event for event in heard if isinstance(event, CompactionFinished) and event.outcome == "compacted"]
    assert server.rejections == []
    assert all(len(ask.turns) > 2 for ask in asked)  # the conversation, and not a transcript of it
    assert done
    assert {one.fallback for one in done} == {None}


@pytest.mark.parametrize("api", APIS)
def test_a_summary_that_breaks_off_is_asked_for_again(
    serve: Serve, opened: Opened, heard: list[AgentEvent], api: str
) -> None:
    summary = "## Goal\n- Give every boat a berth.\n## Progress\n### Done\n- Some berths were given."
    server = serve(lambda ask: Answer(summary if PAUSED in ask.last_user else "Moored. " * 300), window=64_000)
    agent = opened(server, api, window=64_000)
    for number in range(12):
        agent.run(f"Find a berth for boat {number} of the harbour.")
    server.fail_next(Fault("cut"))
    asked = len(server.model.asked)
    agent.compress()
    broken, whole = list(server.model.asked)[asked : asked + 2]
    assert broken.text == whole.text
    assert [event.fallback for event in heard if isinstance(event, CompactionFinished)] == [None]
