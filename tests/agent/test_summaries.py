"""Who writes the summaries of an agent's conversation, and what they are sent."""

from __future__ import annotations

import pytest

from everlong.agent import AgentEvent, CompactionFinished
from everlong.testing import Answer, Ask, Fault
from tests.agent.conftest import APIS, Opened
from tests.examples import few
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


@pytest.mark.spec("5.6")
@pytest.mark.parametrize("window", few([3_000, 16_000, 8_000, 64_000]))
def test_a_writer_with_a_small_window_gets_parts_that_fit_it(
    serve: Serve, opened: Opened, heard: list[AgentEvent], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRITER_KEY", "made-up-key")
    writer = serve(
        "## Goal\n- Give every boat a berth.\n## Progress\n### Done\n- Some berths were given.", window=window
    )
    server = serve("The boat lies at its berth. " * 200, window=40_000)
    settings = {
        "models": {"claude-sonnet-5": {"context_length": 40_000}, "w": {"context_length": window}},
        "providers": {"shop": {"base_url": writer.openai_url, "key_variable": "WRITER_KEY"}},
        "auxiliary": {"compression": {"models": ["shop:w"]}},
    }
    agent = opened(server, settings=settings)
    for number in range(16):
        agent.run(f"Find a berth for boat {number} of the harbour.")
    agent.compress()
    done = [event for event in heard if isinstance(event, CompactionFinished) and event.outcome == "compacted"]
    assert done
    assert writer.rejections == []
    assert {(one.fallback, one.summarizer) for one in done} == {(None, "shop:w")}
