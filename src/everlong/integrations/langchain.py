"""LangChain: a middleware that keeps an agent's requests inside the window.

The agent's own state keeps every message; only the request is shortened. Kept messages are sent as the same objects.
The agent runs the tools of the engine, or of recall, like tools of its own. Needs ``everlong[langchain]``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import ToolRuntime  # noqa: TC002 - the framework reads annotations
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from everlong.integrations.history import (
    Fitted,
    HistoryKeeper,
    MakeEngine,
    Newest,
    OfferedTools,
    Originals,
    OverflowRescue,
    send_fitting,
    send_fitting_async,
)
from everlong.integrations.langgraph import message_of, original_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool
    from everlong.store import Store

__all__ = ["EverlongMiddleware"]

_CALLS = 2_000
"""The number of answers with calls of its tools whose requests a middleware remembers."""


class EverlongMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware for ``create_agent(middleware=[…])``; with a checkpointer, each thread is its own conversation.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        recall: offer the model tools that look things up in the store.
    """

    def __init__(self, make_engine: MakeEngine, *, store: Store | None = None, recall: bool = False) -> None:
        super().__init__()
        self._keeper = HistoryKeeper(make_engine, store=store, platform="langchain")
        self._offered = OfferedTools(store, recall=recall)
        self.tools: Sequence[BaseTool] = [self._tool(tool) for tool in self._offered.of(make_engine())]
        self._counter = MessageCounter()
        self._calls: Newest[Fitted] = Newest(_CALLS)
        """By the id of an answer with calls of its tools, the request that it answers; calls may be just numbered."""

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send a request that fits; if the provider refuses it as too long, compact and send it again."""
        response, (_, fitted) = send_fitting(partial(self._fit, request), lambda sent: handler(sent[0]))
        self._take_answer(fitted, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Do the same for asynchronous agents; compacting, which may ask a model, runs in a thread."""
        response, (_, fitted) = await send_fitting_async(partial(self._fit, request), lambda sent: handler(sent[0]))
        self._take_answer(fitted, response)
        return response

    def _fit(self, request: ModelRequest[Any], rescue: OverflowRescue) -> tuple[ModelRequest[Any], Fitted]:
        own = [] if request.system_message is None else [request.system_message]
        pairs = [(message_of(original), original) for original in (*own, *request.messages)]
        fitted = self._keeper.fit(
            [message for message, _ in pairs],
            model=str(getattr(request.model, "model_name", None) or getattr(request.model, "model", "")),
            conversation=(info.thread_id or "") if (info := request.runtime.execution_info) is not None else "",
            overhead=self._counter.count_tools([convert_to_openai_tool(tool) for tool in request.tools]),
            rescue=rescue,
        )
        originals = Originals(pairs)
        sent = [original_of(message, originals) for message in fitted.messages]
        system = request.system_message
        if own and isinstance(sent[0], SystemMessage):  # with a note appended once something was compacted
            system, sent = sent[0], sent[1:]
        return request.override(messages=sent, system_message=system), fitted

    def _take_answer(self, fitted: Fitted, response: ModelResponse[Any]) -> None:
        """Report the provider's count to the engine, which calibrates by it, and remember calls of its tools."""
        answers = [message for message in response.result if isinstance(message, AIMessage)]
        usage = next((answer.usage_metadata for answer in answers if answer.usage_metadata), None)
        if usage is not None:
            fitted.report(usage["input_tokens"], usage["output_tokens"])
        names = {tool.name for tool in self.tools}
        for answer in answers:
            if any(call["name"] in names for call in answer.tool_calls):
                self._calls.put(answer.id, fitted)

    def _tool(self, tool: HiddenTool) -> BaseTool:
        def call(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            answer = next(one for one in reversed(runtime.state["messages"]) if isinstance(one, AIMessage))
            return self._offered.call(self._calls.get(answer.id), tool.name, arguments)

        return StructuredTool(name=tool.name, description=tool.about, args_schema=dict(tool.takes), func=call)
