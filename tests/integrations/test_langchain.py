"""LangChain's own agent with the middleware, through its own client for OpenAI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from everlong import LosslessEngine
from everlong.integrations import EverlongMiddleware
from everlong.store import Store
from everlong.testing import ModelServer
from tests.examples import length
from tests.integrations import desk
from tests.integrations.desk import FACT, FIRST, QUESTION, cache_share, errand, figures, looking, moved_prefixes

WINDOW = length(16_000, 8_000)
"""Half a window is passed as often by half as many turns."""
TURNS = length(200, 25)


def turns(whole: int) -> int:
    return length(whole, whole // 2)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(desk.clerk, window=WINDOW, dialect="openai") as started:
        yield started


class Engines(desk.Engines):
    """Engines for that window."""

    def __init__(self, window: int = WINDOW) -> None:
        super().__init__(window)


@tool
def look_up(number: int) -> str:
    """Read a page of the ledger."""
    return desk.page(number)


def agent(server: ModelServer, middleware: EverlongMiddleware, checkpointer: Any = None) -> Any:
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="any", max_retries=0)  # type: ignore[arg-type]
    return create_agent(
        model,
        tools=[look_up],
        system_prompt="You are a clerk.",
        middleware=[middleware],
        checkpointer=checkpointer or InMemorySaver(),
    )


def say(agent: Any, text: str, thread: str = "one") -> str:
    done = agent.invoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": thread}})
    return str(done["messages"][-1].content)


def test_many_turns_go_through_a_window_that_holds_a_few_of_them(
    server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = Engines()
    clerk = agent(server, EverlongMiddleware(engines))
    say(clerk, FIRST)
    for number in range(TURNS):
        assert say(clerk, errand(number)) == f"The total: {number * 1000 + 17}."
    assert say(clerk, QUESTION) == f"The code is {FACT}."
    assert server.rejections == []
    assert max(record.prompt_tokens for record in server.requests) < WINDOW
    assert 1 <= engines.compactions <= 15
    assert moved_prefixes(server) == engines.compactions
    state = clerk.get_state({"configurable": {"thread_id": "one"}}).values["messages"]
    assert len(state) == 4 + 4 * TURNS, "the agent's own state keeps everything"
    assert cache_share(server) > 0.8
    with capsys.disabled():
        print(figures("langchain", TURNS, server))  # noqa: T201 - wanted


def test_with_a_store_every_message_is_kept_and_a_new_process_goes_on_from_the_view(
    server: ModelServer, tmp_path: Path
) -> None:
    saver = InMemorySaver()
    with Store.open(tmp_path / "talk.db") as store:
        engines = Engines()
        clerk = agent(server, EverlongMiddleware(engines, store=store), saver)
        say(clerk, FIRST)
        for number in range(turns(30)):
            say(clerk, errand(number))
    assert engines.compactions >= 1
    before = len(server.requests)
    with Store.open(tmp_path / "talk.db") as store:
        fresh = Engines()
        clerk = agent(server, EverlongMiddleware(fresh, store=store), saver)
        assert say(clerk, QUESTION) == f"The code is {FACT}."
        assert fresh.compactions == 0
        assert store.search("berth 21").hits
    assert server.requests[before].prompt_tokens < WINDOW
    assert server.rejections == []


def test_messages_that_are_kept_are_the_very_objects_that_they_were(server: ModelServer) -> None:
    sent: list[Any] = []

    class Watch(EverlongMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            def watched(shorter: Any) -> Any:
                sent[:] = shorter.messages
                return handler(shorter)

            return super().wrap_model_call(request, watched)

    clerk = agent(server, Watch(Engines()))
    for number in range(turns(40)):
        say(clerk, errand(number))
    state = clerk.get_state({"configurable": {"thread_id": "one"}}).values["messages"]
    known = {message.id for message in state}
    new = [message for message in sent if message.id not in known]
    assert len(new) == 1, "only the summary is new"
    assert isinstance(new[0], HumanMessage | AIMessage)
    assert sent[-1] == state[-2]
    assert isinstance(sent[-1], ToolMessage)


@pytest.mark.parametrize(
    ("tool", "is_async", "has_thread"),
    [
        ("everlong_recall", False, True),
        ("everlong_recall", True, False),
        ("lcm_grep", True, True),
        ("lcm_grep", False, False),
    ],
)
def test_the_model_looks_up_what_was_compacted_away(
    tool: str, is_async: bool, has_thread: bool, tmp_path: Path
) -> None:
    make: Any = Engines(8_000) if tool == "everlong_recall" else lambda: LosslessEngine(8_000)
    thread: Any = {"configurable": {"thread_id": "one"}} if has_thread else None
    with (
        ModelServer(looking(tool), window=8_000, dialect="openai") as small,
        Store.open(tmp_path / "talk.db") as store,
        asyncio.Runner() as runner,
    ):
        keep = EverlongMiddleware(make, store=store, recall=tool == "everlong_recall")
        model = ChatOpenAI(model="gpt-4o", base_url=small.openai_url, api_key="any", max_retries=0)  # type: ignore[arg-type]
        saver = InMemorySaver() if has_thread else None
        clerk: Any = create_agent(model, tools=[look_up], middleware=[keep], checkpointer=saver)
        history: list[Any] = []
        for text in (FIRST, *map(errand, range(14)), QUESTION):
            given = {"messages": [*history, HumanMessage(text)]}
            done = runner.run(clerk.ainvoke(given, thread)) if is_async else clerk.invoke(given, thread)
            history = [] if has_thread else done["messages"]
        assert done["messages"][-1].content == f"Looked up: {FACT}."
        assert small.rejections == []
        assert store.compactions()


class Scripted(GenericFakeChatModel):
    """A model that says what it is told to."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Take any tools."""
        return self


class Between(AgentMiddleware[Any, Any, Any]):
    """Does something once, between a model's answer and the tools that it calls."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self._left = [act]

    def after_model(self, state: Any, runtime: Any) -> None:  # noqa: ARG002 - the framework's
        """Do it."""
        while self._left:
            self._left.pop()()


def test_calls_that_are_named_alike_look_up_in_their_own_conversations(tmp_path: Path) -> None:
    """Models name calls by number, and without a checkpointer no thread tells two people apart."""

    def ask(word: str, *between: AgentMiddleware[Any, Any, Any]) -> str:
        call = {"name": "everlong_recall", "args": {"query": "code word"}, "id": "functions.everlong_recall:0"}
        model = Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Found.")]))
        clerk: Any = create_agent(model, middleware=[keep, *between])
        said = [HumanMessage(f"My code word is {word}."), AIMessage("Noted."), HumanMessage("Which code word?")]
        (found,) = (one for one in clerk.invoke({"messages": said})["messages"] if isinstance(one, ToolMessage))
        return str(found.content)

    with Store.open(tmp_path / "talk.db") as store:
        keep = EverlongMiddleware(Engines(), store=store, recall=True)
        found = ask("heron", Between(lambda: ask("walrus")))
    assert "heron" in found
    assert "walrus" not in found
