"""LangGraph: a model whose requests fit, for graphs of one's own. Needs ``everlong[langgraph]``."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.utils.function_calling import convert_to_openai_tool

from everlong.agent.tools.hidden_tools import ROUNDS, RecallLookup
from everlong.integrations.history import (
    Fitted,
    HistoryKeeper,
    MakeEngine,
    OfferedTools,
    Originals,
    OverflowRescue,
    arguments_of,
    send_fitting,
)
from everlong.model import Message, calls_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["KeptModel", "message_of", "original_of"]


class KeptModel(Runnable[Any, AIMessage]):
    """A chat model for the nodes of a graph; each thread is its own conversation.

    The state keeps every message; only the request is shortened. A request that is refused as too long is compacted and
    sent again. The tools of the engine, or of recall, are offered and answered here: no node sees them.

    Args:
        model: the chat model.
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given.
        recall: offer the model tools that look things up in the store.
    """

    def __init__(
        self, model: Any, make_engine: MakeEngine, *, store: Store | None = None, recall: bool = False
    ) -> None:
        self._model = model
        self._keeper = HistoryKeeper(make_engine, store=store, platform="langgraph")
        self._offered = OfferedTools(store, recall=recall)
        self._hidden = self._offered.of(make_engine())
        self._counter = MessageCounter()
        self._schemas = [_schema(tool) for tool in self._hidden]
        self._bound: Any = model.bind_tools(self._schemas) if self._hidden else model

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> KeptModel:
        """Return the model with tools on offer, like `bind_tools` of a chat model."""
        bound = copy.copy(self)
        own = [_schema(tool) for tool in self._hidden]
        bound._bound = self._model.bind_tools([*tools, *own], **options)  # noqa: SLF001 - a copy of this very object
        bound._schemas = [*(convert_to_openai_tool(tool) for tool in tools), *own]  # noqa: SLF001 - as above
        return bound

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AIMessage:  # noqa: A002 - the framework's name
        """Return the model's answer to a whole history."""
        messages = input.to_messages() if hasattr(input, "to_messages") else convert_to_messages(input)
        behind: list[BaseMessage] = []
        names = {tool.name for tool in self._hidden}
        left = ROUNDS

        def send(fitting: tuple[list[Any], Fitted]) -> AIMessage:
            return self._bound.invoke([*fitting[0], *behind], config, **options)  # type: ignore[no-any-return]

        while True:
            answer, (_, fitted) = send_fitting(partial(self._fit, messages, config), send)
            if answer.usage_metadata is not None:
                fitted.report(answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"])
            own = [call for call in answer.tool_calls if call["name"] in names]
            left -= 1
            if not own or not left or len(own) < len(answer.tool_calls):
                kept = [call for call in answer.tool_calls if call["name"] not in names]
                return answer.model_copy(update={"tool_calls": kept}) if own else answer
            lookups = [RecallLookup(str(call["id"]), call["name"], call["args"]) for call in own]
            told = self._offered.answer(fitted, lookups)
            behind += [answer, *(ToolMessage(told[str(call["id"])], tool_call_id=call["id"]) for call in own)]

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AIMessage:  # noqa: A002 - as above
        """Do the same in a thread."""
        return await asyncio.to_thread(self.invoke, input, config, **options)

    def _fit(
        self, messages: Sequence[BaseMessage], config: RunnableConfig | None, rescue: OverflowRescue
    ) -> tuple[list[Any], Fitted]:
        pairs = [(message_of(message), message) for message in messages]
        where = (config or {}).get("configurable") or {}
        fitted = self._keeper.fit(
            [message for message, _ in pairs],
            conversation=str(where.get("thread_id") or ""),
            model=str(getattr(self._model, "model_name", None) or getattr(self._model, "model", "")),
            overhead=self._counter.count_tools(self._schemas),
            rescue=rescue,
        )
        originals = Originals(pairs)
        return [original_of(message, originals) for message in fitted.messages], fitted


def _schema(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.about, "parameters": dict(tool.takes)}
    return {"type": "function", "function": function}


# -- messages of LangChain and LangGraph in the OpenAI format, and back ------------------------------------------------


_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}


def message_of(original: BaseMessage) -> Message:
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


def original_of(message: Message, originals: Originals[Any]) -> AnyMessage:
    """Return the original of a message, or a new one for a message that the compaction wrote."""
    content = message.get("content") or ""
    if (original := originals.of(message)) is not None:
        return original  # type: ignore[no-any-return]
    if (result := originals.result_of(message)) is not None:
        return result.model_copy(update={"content": content})  # type: ignore[no-any-return]
    if message["role"] == "tool":
        return ToolMessage(content=content, tool_call_id=message["tool_call_id"])
    if message["role"] == "assistant":
        return _answer(content, message)
    return SystemMessage(content=content) if message["role"] == "system" else HumanMessage(content=content)


def _answer(content: Any, message: Message) -> AIMessage:
    """Return an answer of the model; calls whose arguments are no JSON object are invalid ones, as they were."""
    calls: list[Any] = []
    invalid: list[Any] = []
    for ident, name, arguments in calls_of(message):
        read = arguments_of(arguments)
        if read is None:
            invalid.append({"id": ident, "name": name, "args": arguments, "error": None, "type": "invalid_tool_call"})
        else:
            calls.append({"id": ident, "name": name, "args": read, "type": "tool_call"})
    return AIMessage(content=content, tool_calls=calls, invalid_tool_calls=invalid)
