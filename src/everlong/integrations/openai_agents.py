"""The OpenAI Agents SDK: a filter that keeps an agent's requests inside the window.

A run's items are those of the Responses API. Items of one turn of the model (thinking, texts, calls) become one
message and stay together; kept messages are sent as the same items. Needs ``everlong[openai-agents]``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from agents import FunctionTool
from agents.run import CallModelData, ModelInputData

from everlong.integrations.history import HistoryKeeper, MakeEngine, Originals
from everlong.model import Message, calls_of, text_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["EverlongFilter"]

Item = dict[str, Any]


class EverlongFilter:
    """A filter for ``RunConfig(call_model_input_filter=…)``; use the same one for every run of a conversation.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        conversation: names the conversation of a call; without it, conversations are recognized by their words.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        *,
        store: Store | None = None,
        conversation: Callable[[CallModelData[Any]], str] = lambda _: "",
    ) -> None:
        self._keeper = HistoryKeeper(make_engine, store=store, platform="openai-agents")
        self._conversation = conversation
        self._counter = MessageCounter()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the items to send in place of the run's items; compacting, which may ask a model, runs in a thread."""
        return await asyncio.to_thread(self._fit, data)

    def _fit(self, data: CallModelData[Any]) -> ModelInputData:
        pairs = messages_of([dict(item) for item in data.model_data.input])
        prompt = data.model_data.instructions
        own: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
        fitted = self._keeper.fit(
            [*own, *(message for message, _ in pairs)],
            conversation=self._conversation(data),
            overhead=self._counter.count_tools([_schema(tool) for tool in data.agent.tools]),
        )
        originals, messages = Originals(pairs), fitted.messages
        if own and messages[0]["role"] == "system":
            prompt, messages = text_of(messages[0]), messages[1:]
        items = [item for message in messages for item in _items(message, originals)]
        return ModelInputData(input=items, instructions=prompt)  # type: ignore[arg-type] # items are dicts here


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


def _items(message: Message, originals: Originals[list[Item]]) -> list[Item]:
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


def _schema(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, FunctionTool):
        return {"type": str(getattr(tool, "name", tool))}
    return {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
