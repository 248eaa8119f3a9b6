"""A conversation as the body of a chat-completions request, and a completion as a reply.

OpenAI itself takes known fields only; other servers that speak the format read more (cache markers, reasoning) and are
sent it. Sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from everlong.model import Message, calls_of
from everlong.providers.base import Reply, StopReason, Usage, tokens_in
from everlong.wire import sendable

__all__ = ["openai_body", "openai_reply", "openai_usage"]

_STRICT_FIELDS = {
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"},
    "tool": {"role", "content", "tool_call_id"},
}
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_ANY_FIELDS = {"role", "content", "name"}
_PART_FIELDS = {"type", "text", "refusal", "image_url", "input_audio", "file", "prompt_cache_breakpoint"}
_PARTS = frozenset({"text", "refusal", "image_url", "input_audio", "file", "video_url"})
_TOOL_PARTS = frozenset({"text"})
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_STOPS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}
_ID_LIMIT = 40
_NOT_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def openai_body(
    messages: Sequence[Message],
    model: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    max_tokens: int | None = None,
    strict: bool = True,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The request body; ``strict`` is for OpenAI itself, ``options`` stand above what is made here."""
    sent = [_message(message, strict) for message in sendable(messages)]
    body: dict[str, Any] = {"model": model, "messages": sent}
    if tools:
        body["tools"] = [_without_marker(tool) if strict else dict(tool) for tool in tools]
    if max_tokens is not None:
        body["max_completion_tokens" if strict else "max_tokens"] = max_tokens
    return {**body, **(options or {})}


def _message(message: Message, strict: bool) -> Message:
    role = message["role"]
    if strict and role not in _ROLES:
        message, role = {"role": "user", "content": message.get("content")}, "user"
    result = {name: value for name, value in message.items() if not _is_ours(name)}
    if strict:
        known = _STRICT_FIELDS.get(role, _ANY_FIELDS)
        result = {name: value for name, value in result.items() if name in known}
    content = result.get("content")
    if isinstance(content, list):
        taken = _TOOL_PARTS if role == "tool" else _PARTS
        parts = [_part(part, strict, taken) for part in content if _is_sendable(part)]
        result["content"] = parts or (None if result.get("tool_calls") else "")
    elif content is None and not (result.get("tool_calls") or result.get("refusal")):
        result["content"] = ""
    if result.get("tool_calls"):
        result["tool_calls"] = [_call(call, strict) for call in result["tool_calls"]]
    elif "tool_calls" in result:
        del result["tool_calls"]
    if strict and role == "tool":
        result["tool_call_id"] = _short(str(result.get("tool_call_id") or ""))
    return result


def _is_ours(name: str) -> bool:
    """Whether a field is between us and a host, such as the tag by which a store knows its messages again."""
    return name == "is_error" or (name.startswith("_") and name != "_ephemeral")  # that one is still needed for caching


def _is_sendable(part: Any) -> bool:
    """Whether a part says anything to this API: not thinking, and no text without words."""
    if not isinstance(part, dict):
        return True
    kind = part.get("type")
    return isinstance(kind, str) and kind not in _THINKING and (kind != "text" or isinstance(part.get("text"), str))


def _part(part: Any, strict: bool, known: frozenset[str]) -> Any:
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    if part["type"] not in known:  # of another API, and refused by this one
        return {"type": "text", "text": f"[{part['type']} left out: this model does not take it]"}
    return {name: value for name, value in part.items() if name in _PART_FIELDS} if strict else part


def _call(call: dict[str, Any], strict: bool) -> dict[str, Any]:
    if not strict:
        return call
    if isinstance(call.get("custom"), dict):
        kept = {name: value for name, value in call.items() if name in {"type", "custom"}}
        return {"id": _short(str(call.get("id") or "")), **kept}
    (read,) = calls_of({"tool_calls": [call]})
    name = _NOT_NAME.sub("_", read.name)[:64] or "unknown"  # models do make up names
    return {"id": _short(read.id), "type": "function", "function": {"name": name, "arguments": read.arguments}}


def _short(identifier: str) -> str:
    # Ids of other providers may be longer than OpenAI takes; their ends tell them apart.
    return identifier if len(identifier) <= _ID_LIMIT else identifier[-_ID_LIMIT:]


def _without_marker(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != "cache_control"}


def openai_reply(answer: Mapping[str, Any], provider: str) -> Reply | None:
    """The reply that a completion stands for; None where it has no message."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    said = choice["message"]
    message: Message = {"role": "assistant", "content": said.get("content")}
    message.update({name: value for name, value in said.items() if value and name not in {"role", "content"}})
    stop: StopReason = _STOPS.get(str(choice.get("finish_reason")), "end")
    if message.get("refusal"):
        stop = "refusal"
    elif message.get("tool_calls") and stop == "end":  # some servers do not say so
        stop = "tool_calls"
    return Reply(
        message=message,
        usage=openai_usage(answer.get("usage")),
        stop=stop,
        model=str(answer.get("model") or ""),
        provider=provider,
        id=answer.get("id"),
        raw=answer,
    )


def openai_usage(usage: Any) -> Usage:
    """Usage in one vocabulary: what was cached is part of the prompt's tokens here, and told apart."""
    prompt = tokens_in(usage, "prompt_tokens")
    read = tokens_in(usage, "prompt_tokens_details", "cached_tokens") or tokens_in(usage, "prompt_cache_hit_tokens")
    write = tokens_in(usage, "prompt_tokens_details", "cache_write_tokens")
    return Usage(
        input_tokens=max(0, prompt - read - write),
        output_tokens=tokens_in(usage, "completion_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=tokens_in(usage, "completion_tokens_details", "reasoning_tokens"),
    )
