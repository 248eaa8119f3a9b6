"""A conversation in each framework, as people write it: a system prompt, a tool, and one text after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from everlong import ContextEngine, Store, wrap_client
from everlong.testing import ModelServer
from tests.integrations.desk import page

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
