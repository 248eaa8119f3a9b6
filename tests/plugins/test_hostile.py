"""Whatever an engine does, a long session ends well, with one clear warning."""

from __future__ import annotations

import pytest

from everlong.agent import Agent, AgentEvent, CompactionFinished
from everlong.plugins.guard import GuardedEngine
from everlong.store import Store
from tests.examples import few, length
from tests.plugins.conftest import FILLER, WINDOW, WithEngine, notices, talk

TURNS = length(100, 9)

METHODS = (
    "update_from_response",
    "should_compress",
    "compress",
    "should_compress_preflight",
    "has_content_to_compress",
    "on_session_start",
    "on_session_end",
    "on_session_reset",
    "get_tool_schemas",
    "handle_tool_call",
    "get_status",
)


def went_well(agent: Agent, store: Store, heard: list[AgentEvent], turns: int = TURNS) -> None:
    """Everything that was said is stored, it was compacted on the way, and what is sent now is within the window."""
    line = store.conversations.parts(agent.conversation.session_id)
    entries = [entry for one in line for entry in store.sessions.entries(one.id)]
    asked = [entry.message["content"] for entry in entries if entry.message["role"] == "user"]
    assert [text.split(":")[0] for text in asked] == [f"Entry {number}" for number in range(turns)]
    done = [event for event in heard if isinstance(event, CompactionFinished) and event.outcome == "compacted"]
    assert len(done) >= length(5, 1)
    assert agent.compactor.tokens < WINDOW
    assert store.verify().problems == []


@pytest.mark.spec("2.4", "2.8")
@pytest.mark.parametrize(("method", "kind"), few([("compress", "exit"), *((method, "error") for method in METHODS)], 4))
def test_an_engine_may_raise_in_any_method(
    with_engine: WithEngine,
    store: Store,
    heard: list[AgentEvent],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    kind: str,
) -> None:
    monkeypatch.setenv("HOSTILE_METHOD", method)
    monkeypatch.setenv("HOSTILE_KIND", kind)
    agent = with_engine("raising")
    talk(agent, TURNS, filler=FILLER * length(1, 3))
    went_well(agent, store, heard)
    agent.engine.get_status()
    agent.reset()
    (said,) = notices(heard)
    assert "the context engine 'raising' raised" in said
    assert f"nobody home in {method}" in said


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("nothing", "returned something that is no list of messages"),
        ("lying", "returned something that is no list of messages"),
        ("orphans", "returned calls and results that do not belong together; that was mended"),
        ("doubling", "tokens of"),
        ("declining", "tokens as they were in a window of 8,000; the built-in compressor did it instead"),
        ("forgetting", "dropped the user's latest message; that was mended"),
        ("sleeping", "did not come back from compress() in time"),
    ],
)
def test_what_an_engine_returns_is_checked_mended_or_replaced(
    with_engine: WithEngine,
    store: Store,
    heard: list[AgentEvent],
    monkeypatch: pytest.MonkeyPatch,
    result: str,
    said: str,
) -> None:
    monkeypatch.setenv("HOSTILE_RESULT", result)
    if result == "sleeping":
        monkeypatch.setattr("everlong.plugins.running.CALL_SECONDS", 5.0)
    agent = with_engine("hostile")
    talk(agent, TURNS, filler=FILLER * length(1, 3))
    went_well(agent, store, heard)
    (warned,) = notices(heard)
    assert "the context engine 'hostile'" in warned
    assert said in warned
    assert agent.conversation.branch is not None
    history = store.compactions(branch=agent.conversation.branch.id)
    assert all(one.engine == "hostile" and one.fallback and "hostile" in one.fallback for one in history)
    assert isinstance(agent.engine, GuardedEngine)
    assert agent.engine.is_off is (result == "sleeping")
