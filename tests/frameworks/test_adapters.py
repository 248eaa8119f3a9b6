"""Every adapter with the real package: far past the window, recall, an engine's tools, a window smaller than said."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from everlong import ContextCompressor, ContextEngine, LosslessEngine, Store, wrap_client
from everlong.testing import ModelServer
from tests.examples import length
from tests.integrations.desk import FACT, FIRST, QUESTION, cache_share, clerk, errand, figures, looking, page

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = "You are a clerk."
Say = Callable[[str], str]
NUMBERS = itertools.count()


@dataclass
class Setting:
    """The server and the engines of a conversation."""

    server: ModelServer
    make_engine: Callable[[], ContextEngine]
    store: Store | None = None
    recall: bool = False


def look_up(number: int) -> str:
    """Read a page of the ledger."""
    return page(number)


@contextmanager
def pydantic_ai(setting: Setting) -> Iterator[Say]:
    from openai import AsyncOpenAI  # noqa: PLC0415 - each framework is loaded by its own test only
    from pydantic_ai import Agent  # noqa: PLC0415
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    client = AsyncOpenAI(base_url=setting.server.openai_url, api_key="any", max_retries=0)
    kept = wrap_client(client, setting.make_engine, store=setting.store, recall=setting.recall)
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=kept))
    agent: Any = Agent(model, instructions=PROMPT)
    agent.tool_plain(look_up)
    history: list[Any] = []
    with asyncio.Runner() as runner:

        def say(text: str) -> str:
            done = runner.run(agent.run(text, message_history=history))
            history[:] = done.all_messages()
            return str(done.output)

        yield say
        runner.run(client.close())


@contextmanager
def langgraph(setting: Setting) -> Iterator[Say]:
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415

    from everlong.integrations import KeptModel  # noqa: PLC0415

    model = KeptModel(_chat(setting), setting.make_engine, store=setting.store, recall=setting.recall)
    yield _graph(model.bind_tools([look_up]), InMemorySaver())


def _chat(setting: Setting) -> Any:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415

    return ChatOpenAI(model="gpt-4o", base_url=setting.server.openai_url, api_key="any", max_retries=0)  # type: ignore[arg-type]


def _graph(model: Any, saver: Any) -> Say:
    from langchain_core.runnables import RunnableConfig  # noqa: PLC0415
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415
    from langgraph.prebuilt import ToolNode, tools_condition  # noqa: PLC0415

    def answer(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [model.invoke(state["messages"], config)]}

    answer.__annotations__["config"] = RunnableConfig
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    app = graph.compile(checkpointer=saver)
    thread = {"configurable": {"thread_id": f"thread-{next(NUMBERS)}"}}
    return lambda text: str(app.invoke({"messages": [("user", text)]}, thread)["messages"][-1].content)


DRIVERS = {
    "pydantic-ai": pydantic_ai,
    "langgraph": langgraph,
}


pytestmark = pytest.mark.filterwarnings("default")  # the frameworks warn about each other

WINDOW = 8_000
TURNS = length(200, 26)


@pytest.mark.smoke
@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_many_turns_go_through_a_window_that_holds_a_few_of_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[ContextCompressor] = []

    def make() -> ContextCompressor:
        made.append(ContextCompressor(WINDOW))
        return made[-1]

    with ModelServer(clerk, window=WINDOW, dialect="openai") as server:
        with DRIVERS[name](Setting(server, make)) as say:
            say(FIRST)
            for number in range(TURNS):
                assert say(errand(number)) == f"The total: {number * 1000 + 17}."
            assert say(QUESTION) == f"The code is {FACT}."
        assert server.rejections == []
        assert {record.status for record in server.requests} == {200}
        assert sum(engine.compression_count for engine in made) >= 1
        assert cache_share(server) > 0.8, "prompt caches keep hitting between two compactions"
        with capsys.disabled():
            print(figures(name, TURNS, server))  # noqa: T201 - wanted


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_a_window_that_is_smaller_than_said_is_survived(name: str) -> None:
    with ModelServer(clerk, window=WINDOW, dialect="openai") as server:
        with DRIVERS[name](Setting(server, lambda: ContextCompressor(4 * WINDOW))) as say:
            say(FIRST)
            for number in range(26):
                assert say(errand(number)) == f"The total: {number * 1000 + 17}."
        assert sum(record.status != 200 for record in server.requests) == 1, "the refusal told the real window"


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_the_model_looks_up_what_was_compacted_away(name: str, tmp_path: Path) -> None:
    script = looking("everlong_recall")
    with ModelServer(script, window=WINDOW, dialect="openai") as server, Store.open(tmp_path / "talk.db") as store:
        setting = Setting(server, lambda: ContextCompressor(WINDOW), store, recall=True)
        with DRIVERS[name](setting) as say:
            say(FIRST)
            for number in range(20):
                say(errand(number))
            assert say(QUESTION) == f"Looked up: {FACT}."
        assert server.rejections == []
        assert store.compactions()


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_the_tools_of_an_engine_are_offered_and_answered(name: str, tmp_path: Path) -> None:
    script = looking("lcm_grep")
    with ModelServer(script, window=WINDOW, dialect="openai") as server, Store.open(tmp_path / "talk.db") as store:
        with DRIVERS[name](Setting(server, lambda: LosslessEngine(WINDOW), store)) as say:
            say(FIRST)
            for number in range(20):
                say(errand(number))
            assert say(QUESTION) == f"Looked up: {FACT}."
        assert server.rejections == []
