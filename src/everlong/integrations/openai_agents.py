"""The OpenAI Agents SDK: a filter that keeps an agent's requests inside the window.

A run's items are those of the Responses API; kept messages are sent as the same items. Needs
``everlong[openai-agents]``.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from agents import FunctionTool
from agents.run import CallModelData, ModelInputData

from everlong.integrations.history import Fitted, HistoryKeeper, MakeEngine, Originals, OverflowRescue
from everlong.integrations.tools import OfferedTools
from everlong.model import Message, calls_of, text_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool
    from everlong.store import Store

__all__ = ["EverlongFilter", "messages_of"]

Model = TypeVar("Model")


class EverlongFilter:
    """A filter for ``RunConfig(call_model_input_filter=…)``; use the same one for every run of a conversation.

    Give agents `tools`, and the model of `guard`, to get the rest of what Everlong does.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        conversation: names the conversation of a call; without it, conversations are recognized by their words.
        recall: have `tools` return those that look things up in the store.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        *,
        store: Store | None = None,
        conversation: Callable[[CallModelData[Any]], str] = lambda _: "",
        recall: bool = False,
    ) -> None:
        self._keeper = HistoryKeeper(make_engine, store=store, platform="openai-agents")
        self._offered = OfferedTools(store, recall=recall)
        self._tools = self._offered.of(make_engine())
        self._conversation = conversation
        self._counter = MessageCounter()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the items to send in place of the run's items; compacting, which may ask a model, runs in a thread."""
        sent, fitted = await asyncio.to_thread(self._fit, data, OverflowRescue())
        _CURRENT.set(_Call(self, data, fitted))
        return sent

    def tools(self) -> list[FunctionTool]:
        """Return the tools of the engine, or of recall, for the agents of this filter's runs."""
        return [self._tool(tool) for tool in self._tools]

    def guard(self, model: Model) -> Model:
        """Return a copy of a model that compacts a request which is refused as too long, and sends it again."""
        kind: Any = type(model)
        guarded: Any = copy.copy(model)
        guarded.__class__ = _guarded_class(kind)
        guarded.everlong_filter = self
        return guarded  # type: ignore[no-any-return]

    async def fit_again(self, error: Exception, rescue: OverflowRescue) -> ModelInputData | None:
        """Return the shorter request to send after a refusal; None if the error is another, or was met too often."""
        call = self._current()
        if call is None or not rescue.takes(error):
            return None
        sent, call.fitted = await asyncio.to_thread(self._fit, call.data, rescue)
        return sent

    def take_usage(self, usage: Any) -> None:
        """Report the provider's counts."""
        call = self._current()
        if call is not None and usage is not None:
            call.fitted.report(usage.input_tokens, usage.output_tokens)

    def _current(self) -> _Call | None:
        call = _CURRENT.get()
        return call if call is not None and call.owner is self else None

    def _fit(self, data: CallModelData[Any], rescue: OverflowRescue) -> tuple[ModelInputData, Fitted]:
        pairs = messages_of([dict(item) for item in data.model_data.input])
        prompt = data.model_data.instructions
        own: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
        fitted = self._keeper.fit(
            [*own, *(message for message, _ in pairs)],
            conversation=self._conversation(data),
            overhead=self._counter.count_tools([_schema(tool) for tool in data.agent.tools]),
            rescue=rescue,
        )
        originals, messages = Originals(pairs), fitted.messages
        if own and messages[0]["role"] == "system":
            prompt, messages = text_of(messages[0]), messages[1:]
        items: list[Any] = [item for message in messages for item in items_of(message, originals)]
        return ModelInputData(input=items, instructions=prompt), fitted

    def _tool(self, tool: HiddenTool) -> FunctionTool:
        async def invoke(_: Any, text: str) -> str:
            call = self._current()
            try:
                arguments = dict(json.loads(text or "{}"))
            except (TypeError, ValueError):
                return "[the arguments are not a JSON object]"
            fitted = None if call is None else call.fitted
            return await asyncio.to_thread(self._offered.call, fitted, tool.name, arguments)

        return FunctionTool(tool.name, tool.about, dict(tool.takes), invoke, strict_json_schema=False)


@dataclass
class _Call:
    """A call of the model, and the filter that fitted its request."""

    owner: EverlongFilter
    data: CallModelData[Any]
    fitted: Fitted


_CURRENT: ContextVar[_Call | None] = ContextVar("everlong_call", default=None)
"""The newest call of this run: the model and the tools of a turn run in its task, or in tasks that it starts."""


@lru_cache(maxsize=64)
def _guarded_class(kind: Any) -> Any:
    """Return the subclass of a model's class that survives refusals."""
    own = {"get_response": _make_get_response(kind), "stream_response": _make_stream_response(kind)}
    return type(kind.__name__, (kind,), {**own, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _make_get_response(kind: Any) -> Any:
    async def get_response(self: Any, system_instructions: Any, input: Any, *args: Any, **options: Any) -> Any:  # noqa: A002 - the framework's name
        keep, rescue = self.everlong_filter, OverflowRescue()
        while True:
            try:
                answer = await kind.get_response(self, system_instructions, input, *args, **options)
            except Exception as error:
                again = await keep.fit_again(error, rescue)
                if again is None:
                    raise
                system_instructions, input = again.instructions, again.input  # noqa: A001 - as above
                continue
            keep.take_usage(answer.usage)
            return answer

    return get_response


def _make_stream_response(kind: Any) -> Any:
    async def stream_response(
        self: Any,
        system_instructions: Any,
        input: Any,  # noqa: A002 - as above
        *args: Any,
        **options: Any,
    ) -> AsyncIterator[Any]:
        keep, rescue, has_begun = self.everlong_filter, OverflowRescue(), False
        while True:
            try:
                async for event in kind.stream_response(self, system_instructions, input, *args, **options):
                    has_begun = True
                    if event.type == "response.completed":
                        keep.take_usage(event.response.usage)
                    yield event
            except Exception as error:
                again = None if has_begun else await keep.fit_again(error, rescue)
                if again is None:
                    raise
                system_instructions, input = again.instructions, again.input  # noqa: A001 - as above
                continue
            return

    return stream_response


def _schema(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, FunctionTool):
        return {"type": str(getattr(tool, "name", tool))}
    return {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}


# -- items of the Responses API as messages, and back ------------------------------------------------------------------


Item = dict[str, Any]


def messages_of(items: Iterable[Item]) -> list[tuple[Message, list[Item]]]:
    """Return items as messages in the OpenAI format, each with the items that it stands for."""
    items = list(items)
    answered = {item.get("call_id") for item in items if _is_output(item)}
    pairs: list[tuple[Message, list[Item]]] = []
    for item in items:
        if _is_output(item):
            result = {"role": "tool", "tool_call_id": item.get("call_id"), "content": _output(item)}
            pairs.append((result, [item]))
        elif item.get("role", "assistant") != "assistant":
            pairs.append(({"role": item["role"], "content": _content(item.get("content"))}, [item]))
        elif pairs and pairs[-1][0]["role"] == "assistant" and not _ends_turn(pairs[-1][1][-1], item):
            pairs[-1][1].append(item)
        else:
            pairs.append(({"role": "assistant"}, [item]))
    return [(_assistant_message(own, answered) if m["role"] == "assistant" else m, own) for m, own in pairs]


def _is_output(item: Item) -> bool:
    return str(item.get("type", "")).endswith("_output") and "call_id" in item


def _ends_turn(before: Item, item: Item) -> bool:
    """Return whether a model's turn is over: thinking, or another text after a text, begins the next."""
    spoke = before.get("role") == "assistant"
    return spoke and (item.get("role") == "assistant" or item.get("type") == "reasoning")


def _assistant_message(items: list[Item], answered: set[Any]) -> Message:
    texts = [_content(item.get("content")) for item in items if item.get("role") == "assistant"]
    joined = [{"type": "text", "text": text_of({"content": text})} for text in texts]
    message: Message = {"role": "assistant", "content": texts[0] if len(texts) == 1 else joined or None}
    calls = [item for item in items if "call_id" in item and (item["call_id"] in answered or "arguments" in item)]
    if calls:
        message["tool_calls"] = [_call(item) for item in calls]
    rest = [item for item in items if item.get("role") is None and item not in calls]
    if rest:  # thinking, and tools that ran at the provider: counted, and kept with the message
        message["reasoning_content"] = json.dumps(rest, ensure_ascii=False, default=str)
    return message


def _call(item: Item) -> Item:
    arguments = item.get("arguments", item.get("input", item.get("action")))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    function = {"name": str(item.get("name") or item["type"]), "arguments": text}
    return {"id": item["call_id"], "type": "function", "function": function}


def _content(content: Any) -> Any:
    """Return parts of the Responses API in the chat format, as far as they are counted and summarized."""
    if not isinstance(content, list):
        return content
    texts = {"input_text", "output_text", "refusal"}
    parts = (part if isinstance(part, dict) else {"type": "input_text", "text": str(part)} for part in content)
    return [{"type": "text", "text": p.get("text", "")} if p.get("type") in texts else p for p in parts]


def _output(item: Item) -> Any:
    output = item.get("output")
    return output if isinstance(output, str) else _content(output) if isinstance(output, list) else json.dumps(output)


def items_of(message: Message, originals: Originals[list[Item]]) -> list[Item]:
    """Return the items of a message, or new ones for a message that the compaction wrote."""
    if (kept := originals.of(message)) is not None:
        return kept
    if message["role"] == "tool":
        result = originals.result_of(message) or [{"type": "function_call_output", "call_id": message["tool_call_id"]}]
        return [{**result[0], "output": text_of(message)}]
    text = text_of(message)
    said: list[Item] = [{"role": message["role"], "content": text}] if text else []
    calls = calls_of(message)
    return said + [{"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]
