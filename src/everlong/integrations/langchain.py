"""LangChain: a middleware that keeps an agent's requests inside the window.

The agent's own state keeps every message; only the request is shortened. Kept messages are sent as the same objects.
Needs ``everlong[langchain]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from everlong.integrations.history import Fitted, HistoryKeeper, MakeEngine, Originals, OverflowRescue
from everlong.integrations.langchain_messages import message_of, original_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["EverlongMiddleware"]


class EverlongMiddleware(AgentMiddleware[Any, Any, Any]):
    """A middleware for ``create_agent(middleware=[…])``; with a checkpointer, each thread is its own conversation.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
    """

    def __init__(self, make_engine: MakeEngine, *, store: Store | None = None) -> None:
        super().__init__()
        self._keeper = HistoryKeeper(make_engine, store=store, platform="langchain")
        self._counter = MessageCounter()

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send a request that fits; if the provider refuses it as too long, compact and send it again."""
        rescue = OverflowRescue()
        while True:
            shorter, fitted = self._fit(request, rescue)
            try:
                response = handler(shorter)
            except Exception as error:  # each provider's client has its own
                if not rescue.takes(error):
                    raise
                continue
            _report_usage(fitted, response)
            return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Do the same for asynchronous agents; compacting, which may ask a model, runs in a thread."""
        rescue = OverflowRescue()
        while True:
            shorter, fitted = await asyncio.to_thread(self._fit, request, rescue)
            try:
                response = await handler(shorter)
            except Exception as error:
                if not rescue.takes(error):
                    raise
                continue
            _report_usage(fitted, response)
            return response

    def _fit(self, request: ModelRequest[Any], rescue: OverflowRescue) -> tuple[ModelRequest[Any], Fitted]:
        own = [] if request.system_message is None else [request.system_message]
        pairs = [(message_of(original), original) for original in (*own, *request.messages)]
        info = request.runtime.execution_info
        fitted = self._keeper.fit(
            [message for message, _ in pairs],
            model=str(getattr(request.model, "model_name", None) or getattr(request.model, "model", "")),
            conversation=(info.thread_id or "") if info is not None else "",
            overhead=self._counter.count_tools([convert_to_openai_tool(tool) for tool in request.tools]),
            rescue=rescue,
        )
        originals = Originals(pairs)
        sent = [original_of(message, originals) for message in fitted.messages]
        system = request.system_message
        if own and isinstance(sent[0], SystemMessage):  # with a note appended once something was compacted
            system, sent = sent[0], sent[1:]
        return request.override(messages=sent, system_message=system), fitted


def _report_usage(fitted: Fitted, response: ModelResponse[Any]) -> None:
    """Report the provider's count to the engine, which decides and calibrates by it."""
    answers: Sequence[BaseMessage] = response.result
    usage = next((m.usage_metadata for m in answers if isinstance(m, AIMessage) and m.usage_metadata), None)
    if usage is not None:
        counts = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
        fitted.engine.update_from_response({**counts, "total_tokens": usage["total_tokens"]})
