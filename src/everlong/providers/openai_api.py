"""OpenAI, and every endpoint that speaks its chat completions, through the official client.

The client is imported by the first call, and its own retries are off. `client` has the course of a call. Answers of
OpenAI's Responses API are read here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from everlong.model import Message, calls_of
from everlong.providers.base import (
    CallOptions,
    Event,
    Reply,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallMade,
    Usage,
    tokens_in,
    weigh,
)
from everlong.providers.client import ClientProvider, StreamAssembler, listed_window, need, official_client
from everlong.wire import message_of_answer, sendable

__all__ = ["OpenAIProvider", "ResponsesAssembler", "openai_body", "openai_reply", "openai_usage", "responses_reply"]

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


class OpenAIProvider(ClientProvider):
    """One model of the chat completions API.

    ``strict`` sends only fields that OpenAI itself takes. It is off by default for other servers, which may also read
    cache markers and reasoning.
    """

    _required = ("model", "messages")
    _streaming: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        name: str = "openai",
        strict: bool | None = None,
        takes_markers: bool = False,
        timeout: float = 600.0,
    ) -> None:
        need("openai", "this provider")

        client = partial(official_client, "OpenAI", api_key, base_url, timeout)
        super().__init__(model, name, client, OpenAIAssembler)
        self.takes_markers = takes_markers
        self._strict = name == "openai" if strict is None else strict

    def served_models(self) -> list[dict[str, Any]]:
        """Return the server's list of models."""
        with self._failures():
            return [model.to_dict(mode="json") for model in self._client().models.list().data]

    def served_context_length(self) -> int | None:
        """Return the model's window as the server lists it."""
        return listed_window(self.served_models(), self.model)

    def _body(self, messages: Sequence[Message], call: CallOptions) -> dict[str, Any]:
        return openai_body(
            messages,
            self.model,
            tools=call.get("tools", ()),
            max_tokens=call.get("max_tokens"),
            strict=self._strict,
            options=call.get("options"),
        )

    @property
    def _create(self) -> Any:
        return self._client().chat.completions.create

    def _reply(self, whole: Any) -> Reply:
        reply = openai_reply(whole, self.name) if isinstance(whole, dict) else None
        if reply is None:
            raise self._malformed("no message")
        return reply


_REASONING = re.compile(r"(?:.*/)?(?:gpt-?[5-9]|o[1-9])(?![a-z0-9])")
"""OpenAI's models that refuse ``max_tokens``, whoever serves them; most other servers know no other name."""

# -- requests -------------------------------------------------------------------------------------------------------


def openai_body(
    messages: Sequence[Message],
    model: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    max_tokens: int | None = None,
    strict: bool = True,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the request body; ``strict`` is for OpenAI itself, ``options`` override its fields."""
    sent = [_message(message, strict) for message in sendable(messages)]
    body: dict[str, Any] = {"model": model, "messages": sent}
    if tools:
        body["tools"] = [_without_marker(tool) if strict else dict(tool) for tool in tools]
    if max_tokens is not None:
        body["max_completion_tokens" if strict or _REASONING.match(model) else "max_tokens"] = max_tokens
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
    """Return whether a field is Everlong's own, such as the tag by which a store recognizes its messages."""
    return name == "is_error" or (name.startswith("_") and name != "_ephemeral")  # caching still needs that one


def _is_sendable(part: Any) -> bool:
    """Return whether a part may be sent: no thinking, and no text part without a string."""
    if not isinstance(part, dict):
        return True
    kind = part.get("type")
    return isinstance(kind, str) and kind not in _THINKING and (kind != "text" or isinstance(part.get("text"), str))


def _part(part: Any, strict: bool, known: frozenset[str]) -> Any:
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    if part["type"] not in known:  # a part of another API, which this one refuses
        return {"type": "text", "text": f"[{part['type']} left out: this model does not take it]"}
    return {name: value for name, value in part.items() if name in _PART_FIELDS} if strict else part


def _call(call: dict[str, Any], strict: bool) -> dict[str, Any]:
    if not strict:
        return call
    if isinstance(call.get("custom"), dict):
        kept = {name: value for name, value in call.items() if name in {"type", "custom"}}
        return {"id": _short(str(call.get("id") or "")), **kept}
    (read,) = calls_of({"tool_calls": [call]})
    name = _NOT_NAME.sub("_", read.name)[:64] or "unknown"  # models do invent names
    return {"id": _short(read.id), "type": "function", "function": {"name": name, "arguments": read.arguments}}


def _short(identifier: str) -> str:
    # Ids of other providers may be longer than OpenAI takes; their ends differ.
    return identifier if len(identifier) <= _ID_LIMIT else identifier[-_ID_LIMIT:]


def _without_marker(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != "cache_control"}


# -- answers --------------------------------------------------------------------------------------------------------


def openai_reply(answer: Mapping[str, Any], provider: str) -> Reply | None:
    """Return the reply that a completion stands for; None if it has no message."""
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
    """Return the usage of a completion; this API counts cached tokens as part of the prompt."""
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


# -- streams --------------------------------------------------------------------------------------------------------


class OpenAIAssembler(StreamAssembler):
    """Assembles a completion from the chunks of a stream."""

    def __init__(self) -> None:
        self._finish: str | None = None
        self._frame: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._calls: dict[int, _GatheredCall] = {}
        self._usage: dict[str, Any] = {}

    def take(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        self._frame.update({name: chunk[name] for name in ("id", "model") if chunk.get(name)})
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for choice in chunk.get("choices") or []:
            self._finish = choice.get("finish_reason") or self._finish
            yield from self._add(choice.get("delta") or {})

    def _add(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        for name in ("reasoning_content", "reasoning", "content", "refusal"):
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._texts.setdefault(name, []).append(text)
                self.weight += len(text)
                yield ThinkingDelta(text) if name.startswith("reasoning") else TextDelta(text)
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self._details += details
            self.weight += weigh(details)
        for fragment in delta.get("tool_calls") or []:
            index = int(fragment.get("index", len(self._calls)))
            if index not in self._calls:
                self._calls[index] = _GatheredCall()
                self.weight += weigh(fragment)
            call, function = self._calls[index], fragment.get("function") or {}
            call.id = call.id or fragment.get("id") or ""
            call.name = call.name or function.get("name") or ""
            call.arguments.append(function.get("arguments") or "")
            self.weight += len(call.arguments[-1])

    def end(self) -> Iterator[Event]:
        # The pieces of calls may come in any order, so no call is complete before the end.
        for call in calls_of(self._whole_message()):
            yield ToolCallMade(call)

    def whole(self) -> dict[str, Any] | None:
        if self._finish is None:
            return None
        choice = {"index": 0, "message": self._whole_message(), "finish_reason": self._finish}
        return {**self._frame, "choices": [choice], "usage": self._usage}

    def so_far(self) -> dict[str, Any] | None:
        message = self._whole_message()
        if not any(value for name, value in message.items() if name != "role"):
            return None
        choice = {"index": 0, "message": message, "finish_reason": self._finish or "length"}
        return {**self._frame, "choices": [choice], "usage": self._usage}

    def _whole_message(self) -> Message:
        message: Message = {"role": "assistant", "content": None}
        message.update({name: "".join(pieces) for name, pieces in self._texts.items()})
        if self._details:
            message["reasoning_details"] = [*self._details]
        if self._calls:
            message["tool_calls"] = [self._calls[index].to_dict() for index in sorted(self._calls)]
        return message


class _GatheredCall:
    """A tool call of which the pieces come one by one."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments: list[str] = []

    def to_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class FirstChoiceAssembler(OpenAIAssembler):
    """A gathering of the first of several answers to one request: the conversation goes on with it."""

    def take(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        choices = [choice for choice in chunk.get("choices") or [] if not choice.get("index")]
        yield from super().take({**chunk, "choices": choices})


# -- the Responses API ----------------------------------------------------------------------------------------------


def responses_reply(answer: Mapping[str, Any], provider: str) -> Reply | None:
    """Return the reply in a whole answer; None if there is none."""
    output = answer.get("output")
    if not isinstance(output, list) or answer.get("status") not in {None, "completed", "incomplete"}:
        return None
    message = message_of_answer(output)
    stop: StopReason = "tool_calls" if message.get("tool_calls") else "end"
    if answer.get("status") == "incomplete":
        stop = "length"
    usage, model = _responses_usage(answer.get("usage")), str(answer.get("model") or "")
    return Reply(message, usage, stop, model, provider, answer.get("id"), answer)


def _responses_usage(usage: Any) -> Usage:
    cached = tokens_in(usage, "input_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=max(0, tokens_in(usage, "input_tokens") - cached),
        output_tokens=tokens_in(usage, "output_tokens"),
        cache_read_tokens=cached,
        reasoning_tokens=tokens_in(usage, "output_tokens_details", "reasoning_tokens"),
    )


class ResponsesAssembler(StreamAssembler):
    """Assembles the answer of a stream: its last event has it whole, or the events before it have its items."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] | None = None
        self._done: list[Any] = []
        self._words: list[str] = []

    def take(self, piece: Mapping[str, Any]) -> Iterator[Event]:
        """Add an event; the host that reads the stream passes its words on itself."""
        kind = piece.get("type")
        if kind in {"response.completed", "response.incomplete"}:
            self._answer = piece["response"]
        elif kind == "response.output_item.done":
            self._done.append(piece["item"])
            self._words = []
            self.weight += weigh(piece["item"])
        elif kind == "response.output_text.delta":
            self._words.append(str(piece.get("delta") or ""))
            self.weight += len(self._words[-1])
        return iter(())

    def whole(self) -> dict[str, Any] | None:
        """Return the answer; None if the stream ended too early."""
        answer = self._answer
        return {**answer, "output": self._done} if answer is not None and not answer.get("output") else answer

    def so_far(self) -> dict[str, Any] | None:
        """Return the part of an incomplete answer that has come; None if nothing readable has."""
        text = "".join(self._words)
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        output = [*self._done, said] if text else self._done
        return {"status": "incomplete", "output": output} if output else None
