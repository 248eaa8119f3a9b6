"""A conversation in each framework, as people write it: a system prompt, a tool, and one text after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from everlong import ContextEngine, Store
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

    from everlong.integrations import EverlongHistory  # noqa: PLC0415

    client = AsyncOpenAI(base_url=setting.server.openai_url, api_key="any", max_retries=0)
    keep = EverlongHistory(setting.make_engine, store=setting.store, recall=setting.recall)
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
    agent: Any = Agent(model, instructions=PROMPT, capabilities=[keep])
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
def google_adk(setting: Setting) -> Iterator[Say]:
    from anthropic import AsyncAnthropic  # noqa: PLC0415
    from google.adk.agents import Agent  # noqa: PLC0415
    from google.adk.apps import App  # noqa: PLC0415
    from google.adk.models.anthropic_llm import AnthropicLlm  # noqa: PLC0415
    from google.adk.runners import InMemoryRunner  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415

    from everlong.integrations import EverlongPlugin  # noqa: PLC0415

    client = AsyncAnthropic(base_url=setting.server.url, api_key="any", max_retries=0)
    model = AnthropicLlm(model="claude-sonnet-4-6", max_tokens=500, client=client)
    agent = Agent(name="clerk", model=model, instruction=PROMPT, tools=[look_up])
    plugin = EverlongPlugin(setting.make_engine, store=setting.store, recall=setting.recall)
    adk = InMemoryRunner(app=App(name="harbour", root_agent=agent, plugins=[plugin]))

    async def one(session: str, text: str) -> str:
        told = ""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in adk.run_async(user_id="ada", session_id=session, new_message=message):
            for part in event.content.parts if event.content else ():
                told = part.text or told
        return told

    with asyncio.Runner() as runner:
        session = runner.run(adk.session_service.create_session(app_name="harbour", user_id="ada"))
        yield lambda text: runner.run(one(session.id, text))
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


@contextmanager
def llama_index(setting: Setting) -> Iterator[Say]:
    from llama_index.core.agent.workflow import FunctionAgent  # noqa: PLC0415
    from llama_index.llms.openai_like import OpenAILike  # noqa: PLC0415

    from everlong.integrations import EverlongMemory  # noqa: PLC0415

    llm = OpenAILike(
        model="gpt-4o",
        api_base=setting.server.openai_url,
        api_key="any",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    memory = EverlongMemory.from_defaults(make_engine=setting.make_engine, store=setting.store, recall=setting.recall)
    agent = FunctionAgent(tools=[look_up, *memory.tools()], llm=memory.guard(llm), system_prompt=PROMPT)

    async def one(text: str) -> str:
        return str(await agent.run(user_msg=text, memory=memory))

    with asyncio.Runner() as runner:
        yield lambda text: runner.run(one(text))


DRIVERS = {
    "pydantic-ai": pydantic_ai,
    "google-adk": google_adk,
    "langgraph": langgraph,
    "llama-index": llama_index,
}
