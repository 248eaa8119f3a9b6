"""The OpenAI Agents SDK's own runner with the filter, through the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, SQLiteSession, function_tool
from agents.run import CallModelData, ModelInputData
from openai import AsyncOpenAI

from everlong import LosslessEngine
from everlong.context.invariants import check_all
from everlong.integrations import EverlongFilter
from everlong.integrations.client_formats import pairs_of
from everlong.store import Store
from everlong.testing import ModelServer
from tests.integrations import desk
from tests.integrations.desk import (
    FACT,
    FIRST,
    QUESTION,
    TURNS,
    WINDOW,
    Engines,
    cache_share,
    errand,
    figures,
    looking,
    moved_prefixes,
)


@function_tool
def look_up(number: int) -> str:
    """Read a page of the ledger."""
    return desk.page(number)


def talk(
    server: ModelServer,
    keep: EverlongFilter,
    texts: list[str],
    session: SQLiteSession | None = None,
    *,
    guards: bool = False,
    stream: bool = False,
) -> list[str]:
    """Return an agent's answers to one text after the other, with a session of the SDK as its memory."""

    async def all_of_it() -> list[str]:
        client = AsyncOpenAI(base_url=server.openai_url, api_key="any", max_retries=0)
        model = OpenAIChatCompletionsModel(model="gpt-4o", openai_client=client)
        clerk = Agent(
            name="clerk",
            instructions="You are a clerk.",
            model=keep.guard(model) if guards else model,
            tools=[look_up, *keep.tools()],
        )
        memory = session or SQLiteSession("one")
        config = RunConfig(call_model_input_filter=keep, tracing_disabled=True)

        async def say(text: str) -> str:
            if not stream:
                return str((await Runner.run(clerk, text, session=memory, run_config=config)).final_output)
            done = Runner.run_streamed(clerk, text, session=memory, run_config=config)
            async for _ in done.stream_events():
                pass
            return str(done.final_output)

        try:
            return [await say(text) for text in texts]
        finally:
            await client.close()

    return asyncio.run(all_of_it())


def test_many_turns_go_through_a_window_that_holds_a_few_of_them(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = Engines()
    answers = talk(server, EverlongFilter(engines), [FIRST, *map(errand, range(TURNS)), QUESTION])
    assert answers[1:-1] == [f"The total: {number * 1000 + 17}." for number in range(TURNS)]
    assert answers[-1] == f"The code is {FACT}."
    assert server.rejections == []
    assert max(record.prompt_tokens for record in server.requests) < WINDOW
    assert 1 <= engines.compactions <= 15
    assert moved_prefixes(server) == engines.compactions
    assert cache_share(server) > 0.8
    with capsys.disabled():
        print(figures("openai-agents", TURNS, server))  # noqa: T201 - wanted


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_guarded_model_survives_a_window_that_is_smaller_than_said(stream: bool) -> None:
    engines = Engines(window=32_000)
    with ModelServer(desk.clerk, window=8_000, dialect="openai") as small:
        texts = [FIRST, *map(errand, range(20)), QUESTION]
        answers = talk(small, EverlongFilter(engines), texts, guards=True, stream=stream)
        assert answers[1:-1] == [f"The total: {number * 1000 + 17}." for number in range(20)]
        assert answers[-1] == f"The code is {FACT}."
        assert sum(record.status != 200 for record in small.requests) == 1, "the refusal told the real window"
    assert engines.made[-1].context_length == 8_000


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tool", ["everlong_recall", "lcm_grep"])
def test_the_model_looks_up_what_was_compacted_away(tool: str, stream: bool, tmp_path: Path) -> None:
    make: Any = Engines(8_000) if tool == "everlong_recall" else lambda: LosslessEngine(8_000)
    with ModelServer(looking(tool), window=8_000, dialect="openai") as small, Store.open(tmp_path / "talk.db") as store:
        keep = EverlongFilter(make, store=store, recall=tool == "everlong_recall")
        texts = [FIRST, *map(errand, range(14)), QUESTION]
        assert talk(small, keep, texts, stream=stream)[-1] == f"Looked up: {FACT}."
        assert small.rejections == []
        assert store.compactions()


def test_with_a_store_every_message_is_kept_and_a_new_process_goes_on_from_the_view(
    server: ModelServer, tmp_path: Path
) -> None:
    session, engines, fresh = SQLiteSession("one"), Engines(), Engines()
    with Store.open(tmp_path / "talk.db") as store:
        talk(server, EverlongFilter(engines, store=store), [FIRST, *map(errand, range(30))], session)
    assert engines.compactions >= 1
    with Store.open(tmp_path / "talk.db") as store:
        assert talk(server, EverlongFilter(fresh, store=store), [QUESTION], session) == [f"The code is {FACT}."]
        assert store.search("berth 21").hits
    assert fresh.compactions == 0
    assert server.rejections == []


ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "Look at both."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"},
    {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "look_up", "arguments": '{"number": 1}'},
    {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "look_up", "arguments": '{"number": 2}'},
    {"type": "function_call_output", "call_id": "a", "output": "one"},
    {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "screenshot"}, "status": "completed"},
    {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:,"}},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Both are fine.", "annotations": []}],
    },
    {"role": "assistant", "content": "Anything else?"},
    {"role": "user", "content": [{"type": "input_text", "text": "No."}]},
]


def call(items: list[dict[str, Any]]) -> CallModelData[Any]:
    agent: Any = SimpleNamespace(tools=[])
    return CallModelData(model_data=ModelInputData(input=items, instructions="Be brief."), agent=agent, context=None)  # type: ignore[arg-type]


def test_a_compacted_run_of_responses_items_has_whole_groups_and_a_note() -> None:
    items = [ITEMS[0]]
    for number in range(60):
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": "Hm."}]}
        asked = {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "look_up"}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": desk.page(number)}
        items += [thought, {**asked, "arguments": f'{{"number": {number}}}'}, output]
    keep = EverlongFilter(Engines())
    fitted = asyncio.run(keep(call(items)))
    sent: list[Any] = list(fitted.input)
    assert len(sent) < len(items)
    assert check_all([message for message, _ in pairs_of(sent)]) == []
    for place, item in enumerate(sent):
        if item.get("type") == "reasoning":
            assert sent[place + 1]["type"] == "function_call"
            assert sent[place + 1]["id"].removeprefix("fc_") == item["id"].removeprefix("rs_")
    assert str(fitted.instructions).startswith("Be brief.\n[Note: Some earlier")
    again = asyncio.run(keep(call([*items, {"role": "user", "content": "And?"}])))
    assert again.input == [*sent, {"role": "user", "content": "And?"}]
    assert again.instructions == fitted.instructions
