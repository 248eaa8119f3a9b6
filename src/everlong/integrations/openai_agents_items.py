"""Items of the Responses API as messages in the OpenAI format, for planning, and back; for the OpenAI Agents SDK.

Items of one turn of the model (thinking, texts, calls) become one message and stay together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from everlong.integrations.history import Originals
from everlong.model import Message, calls_of, text_of

__all__ = ["Item", "items_of", "messages_of"]

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
