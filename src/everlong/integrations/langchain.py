"""LangChain: a middleware that keeps an agent's requests inside the window.

The agent's own state keeps every message; only the request is shortened. Kept messages are sent as the same objects.
Needs ``everlong[langchain]``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from everlong.integrations.history import Fitted, HistoryKeeper, MakeEngine, Originals, refused_window
from everlong.model import Message, calls_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["EverlongMiddleware"]

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}


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
        shorter, fitted = self._fit(request)
        try:
            response = handler(shorter)
        except Exception as error:  # each provider's client has its own
            if (window := refused_window(error)) is None:
                raise
            shorter, fitted = self._fit(request, window)
            response = handler(shorter)
        _report_usage(fitted, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Do the same for asynchronous agents; compacting, which may ask a model, runs in a thread."""
        shorter, fitted = await asyncio.to_thread(self._fit, request)
        try:
            response = await handler(shorter)
        except Exception as error:
            if (window := refused_window(error)) is None:
                raise
            shorter, fitted = await asyncio.to_thread(self._fit, request, window)
            response = await handler(shorter)
        _report_usage(fitted, response)
        return response

    def _fit(self, request: ModelRequest[Any], window: int | None = None) -> tuple[ModelRequest[Any], Fitted]:
        own = [] if request.system_message is None else [request.system_message]
        pairs = [(_message(original), original) for original in (*own, *request.messages)]
        info = request.runtime.execution_info
        fitted = self._keeper.fit(
            [message for message, _ in pairs],
            model=str(getattr(request.model, "model_name", None) or getattr(request.model, "model", "")),
            conversation=(info.thread_id or "") if info is not None else "",
            overhead=self._counter.count_tools([convert_to_openai_tool(tool) for tool in request.tools]),
            refused_window=window,
        )
        originals = Originals(pairs)
        sent = [_original(message, originals) for message in fitted.messages]
        system = request.system_message
        if own and isinstance(sent[0], SystemMessage):  # with a note appended once something was compacted
            system, sent = sent[0], sent[1:]
        return request.override(messages=sent, system_message=system), fitted


def _message(original: BaseMessage) -> Message:
    """Return a message of LangChain in the OpenAI format, for planning."""
    message: Message = {"role": _ROLES.get(original.type, "user"), "content": _content(original.content)}
    if isinstance(original, ToolMessage):
        message["tool_call_id"] = original.tool_call_id
    if isinstance(original, AIMessage):
        calls = [(c["id"], c["name"], json.dumps(c["args"], ensure_ascii=False)) for c in original.tool_calls]
        calls += [(c["id"], c["name"] or "", c["args"] or "") for c in original.invalid_tool_calls]
        if calls:
            message["tool_calls"] = [_call(*call) for call in calls]
    return message


def _content(content: Any) -> Any:
    """Return content without the calls that some providers repeat there."""
    if not isinstance(content, list):
        return content
    parts = ({"type": "text", "text": part} if isinstance(part, str) else part for part in content)
    return [part for part in parts if part.get("type") not in ("tool_use", "tool_call", "function_call")]


def _call(ident: str | None, name: str, arguments: str) -> dict[str, Any]:
    return {"id": ident or "", "type": "function", "function": {"name": name, "arguments": arguments}}


def _original(message: Message, originals: Originals[Any]) -> AnyMessage:
    """Return the original of a message, or a new one for a message that the compaction wrote."""
    content = message.get("content") or ""
    if (original := originals.of(message)) is not None:
        return original  # type: ignore[no-any-return]
    if (result := originals.result_of(message)) is not None:
        return result.model_copy(update={"content": content})  # type: ignore[no-any-return]
    if message["role"] == "tool":
        return ToolMessage(content=content, tool_call_id=message["tool_call_id"])
    if message["role"] == "assistant":
        return AIMessage(content=content, tool_calls=[_tool_call(*call) for call in calls_of(message)])
    return SystemMessage(content=content) if message["role"] == "system" else HumanMessage(content=content)


def _tool_call(ident: str, name: str, arguments: str) -> Any:
    return {"id": ident, "name": name, "args": json.loads(arguments or "{}"), "type": "tool_call"}


def _report_usage(fitted: Fitted, response: ModelResponse[Any]) -> None:
    """Report the provider's count to the engine, which decides and calibrates by it."""
    answers: Sequence[BaseMessage] = response.result
    usage = next((m.usage_metadata for m in answers if isinstance(m, AIMessage) and m.usage_metadata), None)
    if usage is not None:
        counts = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
        fitted.engine.update_from_response({**counts, "total_tokens": usage["total_tokens"]})
