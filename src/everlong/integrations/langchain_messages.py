"""Messages of LangChain in the OpenAI format, for planning, and back; for LangChain's agents and for LangGraph."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from everlong.integrations.history import Originals, arguments_of
from everlong.model import Message, calls_of

__all__ = ["message_of", "original_of"]

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
