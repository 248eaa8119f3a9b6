"""The OpenAI Agents SDK's own runner with a wrapped client: a framework that takes a client needs no adapter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
)
from openai import AsyncOpenAI

from everlong import wrap_client
from everlong.store import Store
from everlong.testing import ModelServer
from tests.integrations import desk
from tests.integrations.desk import FACT, FIRST, QUESTION, WINDOW, Engines, errand, looking


@function_tool
def look_up(number: int) -> str:
    """Read a page of the ledger."""
    return desk.page(number)


def talk(
    server: ModelServer,
    engines: Engines,
    texts: list[str],
    *,
    kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel] = OpenAIChatCompletionsModel,
    store: Store | None = None,
    stream: bool = False,
) -> list[str]:
    """Return an agent's answers to one text after the other, with a session of the SDK as its memory."""

    async def all_of_it() -> list[str]:
        plain = AsyncOpenAI(base_url=server.openai_url, api_key="any", max_retries=0)
        client = wrap_client(plain, engines, store=store, recall=store is not None)
        model = kind(model="gpt-4o", openai_client=client)
        clerk = Agent(name="clerk", instructions="You are a clerk.", model=model, tools=[look_up])
        memory, config = SQLiteSession("one"), RunConfig(tracing_disabled=True)

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
            await plain.close()

    return asyncio.run(all_of_it())


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
def test_many_turns_go_through_a_window_that_holds_a_few_of_them(
    server: ModelServer, kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel]
) -> None:
    engines = Engines()
    answers = talk(server, engines, [FIRST, *map(errand, range(50)), QUESTION], kind=kind)
    assert answers[1:-1] == [f"The total: {number * 1000 + 17}." for number in range(50)]
    assert answers[-1] == f"The code is {FACT}."
    assert server.rejections == []
    assert max(record.prompt_tokens for record in server.requests) < WINDOW
    assert engines.compactions >= 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_window_that_is_smaller_than_said_is_survived(stream: bool) -> None:
    engines = Engines(window=32_000)
    with ModelServer(desk.clerk, window=8_000, dialect="openai") as small:
        answers = talk(small, engines, [FIRST, *map(errand, range(20)), QUESTION], stream=stream)
        assert answers[-1] == f"The code is {FACT}."
        assert sum(record.status != 200 for record in small.requests) == 1, "the refusal told the real window"
    assert engines.made[-1].context_length == 8_000


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_model_looks_up_what_was_compacted_away(stream: bool, tmp_path: Path) -> None:
    script = looking("everlong_recall")
    with ModelServer(script, window=8_000, dialect="openai") as small, Store.open(tmp_path / "talk.db") as store:
        texts = [FIRST, *map(errand, range(14)), QUESTION]
        assert talk(small, Engines(8_000), texts, store=store, stream=stream)[-1] == f"Looked up: {FACT}."
        assert small.rejections == []
        assert store.compactions()
