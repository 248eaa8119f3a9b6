"""Every trigger of a compaction in the loop, and what belongs to it: sessions, hooks, memories, lists, logs."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from everlong import ContextCompressor, ContextOverflow, StoreFull
from everlong.agent import Agent, AgentEvent, CompactionFinished, Notice, open_agent, tool
from everlong.agent.conversation import Said
from everlong.config import Settings
from everlong.memory import MemoryManager, MemoryProvider
from everlong.model import Message
from everlong.providers import connect
from everlong.store import Store
from everlong.testing import Answer, Ask, Call, Fault, ModelServer
from tests.agent.conftest import APIS, MODELS, Opened, connected, settings_for
from tests.examples import few, length
from tests.testing_server.conftest import Serve
from tests.waiting import PATIENCE

WINDOW = 8_000
TURNS = length(40, 24)
FILLER = "The pilot boat reports wind from the west and a swell of two metres at the outer buoy. "


def talker(ask: Ask) -> str:
    """Answers at length, and writes a summary where one is asked for."""
    if "## Goal" in ask.last_user:
        return "## Goal\nKeep the harbour log.\n\n## Progress\n### Done\n- Wind and swell were noted."
    return f"Noted, entry {ask.number}. {FILLER * 10}"


def compactions(heard: list[AgentEvent]) -> list[CompactionFinished]:
    return [event for event in heard if isinstance(event, CompactionFinished)]


def talk(agent: Agent, turns: int, start: int = 0) -> None:
    for number in range(start, start + turns):
        assert agent.run(f"Entry {number}: {FILLER * 18}").stop == "end"


@pytest.mark.spec("4.1", "4.4", "7.1", "7.2")
@pytest.mark.parametrize("api", few(APIS))
def test_a_conversation_outgrows_its_window_unnoticed(
    serve: Serve, opened: Opened, store: Store, heard: list[AgentEvent], api: str
) -> None:
    server = serve(talker, window=WINDOW)
    agent = opened(server, api)
    talk(agent, TURNS)
    assert server.rejections == []
    assert max(record.prompt_tokens + (record.body.get("max_tokens") or 0) for record in server.requests) <= WINDOW
    done = compactions(heard)
    assert len(done) >= 3
    assert {event.reason for event in done} <= {"preflight", "threshold"}
    assert all(event.tokens_after < event.tokens_before for event in done)
    line = store.conversations.parts(agent.conversation.session_id)
    assert len(line) == len(done) + 1
    assert [one.end_reason for one in line[:-1]] == ["compression"] * len(done)
    assert [one.title for one in line[1:3]] == [f"{line[0].title} #2", f"{line[0].title} #3"]
    said = [entry.message for one in line for entry in store.sessions.entries(one.id)]
    assert [m["content"].split(":")[0] for m in said if m["role"] == "user"] == [f"Entry {n}" for n in range(TURNS)]
    history = store.compactions(branch=agent.conversation.branch.id)  # type: ignore[union-attr]
    assert [(one.session, one.child) for one in history] == [(one.id, after.id) for one, after in pairwise(line)]
    assert store.verify().problems == []


@pytest.mark.spec("4.4")
@pytest.mark.parametrize("api", APIS)
def test_an_overflow_is_compacted_and_the_true_window_learned(
    serve: Serve, opened: Opened, heard: list[AgentEvent], api: str
) -> None:
    server = serve(talker, window=9_000)
    agent = opened(server, api, window=60_000, settings={"agent": {"max_output_tokens": 256}})  # the window is wrong
    talk(agent, 20)
    assert "overflow" in {event.reason for event in compactions(heard)}
    refused = [record for record in server.requests if record.status != 200]
    assert 1 <= len(refused) <= 3
    if agent.connection.info.context_source == "learned":
        assert agent.engine.context_length == 9_000
        assert len(refused) <= 2  # the prompt, and perhaps the summary of it


@pytest.mark.spec("4.4")
def test_a_request_that_never_fits_is_a_clear_error_after_three_tries(serve: Serve, opened: Opened) -> None:
    server = serve(talker, window=WINDOW)
    agent = opened(server)
    talk(agent, 8)
    server.fail_next(*[Fault("overflow")] * 9)
    sent = len(server.requests)
    with pytest.raises(ContextOverflow, match="larger window"):
        agent.run("One more.")
    asked = [record for record in server.requests[sent:] if "## Goal" not in str(record.body)]  # not for summaries
    assert len(asked) <= 4
    server.fail_next()
    agent2 = opened(server, resume=agent.conversation.session_id)
    assert agent2.conversation.messages[-1]["content"] == "One more."


@pytest.mark.spec("4.4")
def test_a_smaller_model_finds_a_conversation_that_the_old_one_compacted(
    serve: Serve, opened: Opened, heard: list[AgentEvent], store: Store
) -> None:
    large, small = serve(talker, window=40_000), serve(talker, window=6_000)
    agent = opened(large)
    talk(agent, 14)
    assert not compactions(heard)
    asked = len(large.requests)
    agent.switch_model(connected(small, "openai", settings_for(6_000, MODELS["openai"])))
    (event,) = compactions(heard)
    assert event.reason == "model switch"
    assert len(large.requests) > asked  # it was the old model that summarized
    talk(agent, 3, 14)
    assert small.rejections == []
    assert store.sessions.get(agent.conversation.session_id).model == "custom:custom-model"
    assert agent.engine.context_length == 6_000


@pytest.mark.spec("4.2")
def test_a_full_session_is_compacted_before_the_model_sees_it_again(
    serve: Serve, opened: Opened, heard: list[AgentEvent], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "everlong.agent")
    server = serve(talker, window=60_000)
    agent = opened(server)
    talk(agent, 16)
    used = agent.compactor.tokens
    assert not compactions(heard)
    narrow = opened(server, window=int(used / 0.86), resume=agent.conversation.session_id)
    assert not compactions(heard)  # nobody waits for it, or is kept from stopping it, while the program starts
    narrow.run("go on")
    assert [event.reason for event in compactions(heard)] == ["hygiene"]
    assert "Session hygiene: auto-compress" in caplog.text
    assert narrow.compactor.tokens < narrow.engine.threshold_tokens


@pytest.mark.spec("1.4")
def test_an_engine_hears_of_the_child_session_and_of_no_end_until_the_end(serve: Serve, opened: Opened) -> None:
    told: list[tuple[str, str, dict[str, Any]]] = []

    class Listening(ContextCompressor):
        def on_session_start(self, session_id: str, **kwargs: Any) -> None:
            told.append(("start", session_id, kwargs))

        def on_session_end(self, session_id: str, messages: list[Message]) -> None:
            told.append(("end", session_id, {"messages": len(messages)}))

        def on_session_reset(self) -> None:
            super().on_session_reset()
            told.append(("reset", "", {}))

    agent = opened(
        serve(talker, window=WINDOW), settings={"context": {"engine": "listening"}}, engines={"listening": Listening}
    )
    first = agent.conversation.session_id
    talk(agent, 12)
    child = agent.conversation.session_id
    assert child != first
    assert [kind for kind, _, _ in told] == ["start"] * len(told)
    assert told[0][1] == first
    assert told[1][2].items() >= {"parent_session_id": first, "reason": "compression"}.items()
    agent.reset()
    assert [kind for kind, _, _ in told[-3:]] == ["end", "reset", "start"]
    assert told[-3][1] == child
    assert told[-1][1] == agent.conversation.session_id != child
    talk(agent, 1)
    agent.close()
    agent.close()
    assert [kind for kind, _, _ in told[-2:]] == ["start", "end"]
    assert told[-1][1] == agent.conversation.session_id
    assert agent.conversation.store.sessions.get(told[-1][1]).ended is None  # it can be resumed


@pytest.mark.spec("1.5")
def test_tools_of_the_engine_are_offered_and_answered_by_it(serve: Serve, opened: Opened) -> None:
    class WithTool(ContextCompressor):
        def get_tool_schemas(self) -> list[dict[str, Any]]:
            return [{"name": "buoy_depth", "description": "How deep.", "parameters": {"type": "object"}}]

        def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
            return json.dumps({"tool": name, "args": args, "messages": len(kwargs["messages"])})

    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer(ask.results[-1][1])
        assert "buoy_depth" in ask.tools
        return Answer(calls=[Call("buoy_depth", {"at": "outer"})])

    agent = opened(serve(script), settings={"context": {"engine": "deep"}}, engines={"deep": WithTool})
    assert json.loads(agent.run("How deep is it?").text) == {
        "tool": "buoy_depth",
        "args": {"at": "outer"},
        "messages": 3,
    }


@pytest.mark.spec("2.1")
def test_an_engine_that_is_not_there_is_said_and_the_compressor_used(
    serve: Serve, opened: Opened, heard: list[AgentEvent]
) -> None:
    agent = opened(serve("Hi."), settings={"context": {"engine": "nowhere"}})
    assert agent.engine.name == "compressor"
    (notice,) = [event for event in heard if isinstance(event, Notice)]
    assert "'nowhere'" in notice.text
    assert "compressor" in notice.text


@pytest.mark.spec("7.3")
def test_memories_are_asked_before_a_compaction_and_cannot_stop_it(
    serve: Serve, opened: Opened, heard: list[AgentEvent]
) -> None:
    release = threading.Event()
    asked: list[str] = []

    class Helpful(MemoryProvider):
        @property
        def name(self) -> str:
            return "helpful"

        def on_pre_compress(self, messages: list[Message]) -> str:
            return f"Keep the depth of berth nine ({len(messages) > 3})."

        def on_session_switch(self, session_id: str, **facts: Any) -> None:
            assert facts["reason"] == "compression"
            asked.append(session_id)

    class Hanging(MemoryProvider):
        @property
        def name(self) -> str:
            return "hanging"

        def on_pre_compress(self, messages: list[Message]) -> str:
            release.wait(PATIENCE)
            return f"{len(messages)} messages"

    prompts: list[str] = []

    def script(ask: Ask) -> str:
        prompts.append(ask.last_user)
        return talker(ask)

    agent = opened(serve(script, window=WINDOW))
    notices: list[str] = []
    memory = MemoryManager([Helpful(), Hanging()], timeout_seconds=PATIENCE, warn=notices.append)
    (hanging,) = [one for one in memory._providers if isinstance(one.provider, Hanging)]
    hanging._seconds = 0.2  # the other one is waited for on a busy machine too
    memory.start(agent.conversation.session_id)
    agent.memory = memory
    talk(agent, 14)
    assert len(compactions(heard)) >= 1
    assert any("berth nine (True)" in prompt for prompt in prompts)
    assert any("hanging" in text for text in notices)
    assert asked[0] != asked[-1] or len(compactions(heard)) == 1
    release.set()
    memory.close()


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_the_system_prompt_and_the_todo_list_survive(
    serve: Serve, opened: Opened, heard: list[AgentEvent], engine: str
) -> None:
    items = [{"text": "Repaint buoy 7 — RAL 3020", "status": "in_progress"}, {"text": "Call Inga", "status": "pending"}]

    def script(ask: Ask) -> Answer | str:
        if "Plan it" in ask.last_user and not ask.results:
            return Answer("A plan.", [Call("update_todo", {"items": items})])
        return talker(ask)

    server = serve(script, window=12_000)
    agent = opened(server, settings={"context": {"engine": engine}})
    agent.run("Plan it.")
    prompt = agent.conversation.system_prompt
    talk(agent, 40)
    assert len(compactions(heard)) >= 3
    last = server.model.asked[-1]
    assert last.system.startswith(prompt)
    plan = ["[>] Repaint buoy 7 — RAL 3020", "[ ] Call Inga"]
    assert all(item in last.text for item in plan)
    again = opened(server, resume=agent.conversation.session_id)
    talk(again, 2)
    assert all(item in server.model.asked[-1].text for item in plan)


def test_what_is_not_stored_is_not_compacted(
    serve: Serve, opened: Opened, store: Store, heard: list[AgentEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = opened(serve(talker, window=60_000))
    talk(agent, 3)

    def full(*_: object, **__: object) -> Any:
        raise StoreFull("no room left")

    with monkeypatch.context() as broken:
        broken.setattr(store, "append", full)
        talk(agent, 2, 3)
        with pytest.raises(Exception, match="not in the store"):
            agent.compress()
        assert next(event.text for event in heard if isinstance(event, Notice)).startswith("the conversation")
    talk(agent, 1, 5)
    said = [entry.message["content"] for entry in store.sessions.entries(agent.conversation.session_id)]
    assert [text.split(":")[0] for text in said[::2]] == [f"Entry {number}" for number in range(6)]
    assert store.context(agent.conversation.branch) == agent.conversation.messages  # type: ignore[arg-type]


@pytest.mark.spec("5.7")
def test_a_dead_summarizer_costs_quality_not_turns(
    serve: Serve, opened: Opened, heard: list[AgentEvent], store: Store
) -> None:
    def script(ask: Ask) -> Answer | str:
        if "## Goal" in ask.last_user:
            return Answer(refused=True)
        return talker(ask)

    agent = opened(serve(script, window=WINDOW))
    talk(agent, 20)
    done = compactions(heard)
    assert len(done) >= 2
    assert all(event.fallback for event in done)
    assert "left alone" in str(done[1].fallback)
    assert store.verify().problems == []


def test_a_call_under_way_when_the_program_ended_gets_a_result_that_says_so(serve: Serve, opened: Opened) -> None:
    def die() -> str:
        """End it all."""
        raise KeyboardInterrupt

    def script(ask: Ask) -> Answer:
        if ask.results:
            return Answer(ask.results[-1][1])
        return Answer("On it.", [Call("die", {})])

    server: ModelServer = serve(script)
    agent = opened(server, tools=[tool(die)])
    agent.conversation.add(Said({"role": "user", "content": "Do it."}))
    agent.query()  # the process ends here
    again = opened(server, resume=agent.conversation.session_id)
    assert "ended while this was running" in again.conversation.messages[-1]["content"]
    assert again.run().text.startswith("[The program ended")
    assert server.rejections == []


def test_a_compaction_that_can_change_nothing_asks_no_model(serve: Serve, opened: Opened) -> None:
    server = serve(talker, window=200_000)
    agent = opened(server, settings={"memory": {"enabled": True}})
    talk(agent, 2)
    assert agent.compress().outcome == "unchanged"
    assert len(server.requests) == 2


def test_the_first_threshold_heeds_where_prompts_become_dearer(store: Store) -> None:
    settings = Settings()
    connection = connect("openai:gpt-6-luna", settings, api_key="made-up")
    with closing(open_agent(settings, connection, store=store)) as agent:
        assert agent.engine.threshold_tokens == connection.info.price_step


# -- summaries by the main model ---------------------------------------------------------------------------------------


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
