"""Claude through Anthropic's official client, whole and as a stream.

The client is imported by the first call, and its own retries are off. `client` has the course of a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from everlong.errors import RequestRefused
from everlong.model import EPHEMERAL, Message, parts_of
from everlong.model.long_texts import structure
from everlong.model.message import ToolCall
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
from everlong.wire import sendable, to_anthropic
from everlong.wire.anthropic import INVALID, from_assistant

__all__ = ["AnthropicProvider", "anthropic_body", "anthropic_reply", "anthropic_usage"]

_EMPTY = "(empty)"
"""Stands in for a message without words, which the API refuses."""
_FOREIGN = frozenset({"image_url", "input_audio", "audio", "file", "input_image", "input_file", "video_url"})
"""Parts of other APIs that have no counterpart in this one."""
_THINKING = frozenset({"thinking", "redacted_thinking"})
_NOT_ID = re.compile(r"[^a-zA-Z0-9_-]")
_STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "window",
    "refusal": "refusal",
    "pause_turn": "pause",
}
DEFAULT_MAX_TOKENS = 8_192
"""The limit of an answer if the caller gives none; the API needs a number."""


class AnthropicProvider(ClientProvider):
    """One model of the Anthropic Messages API, or of any endpoint that speaks it."""

    takes_markers = True
    _required = ("model", "max_tokens", "messages")

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        name: str = "anthropic",
        timeout: float = 600.0,
    ) -> None:
        need("anthropic", "Claude")

        client = partial(official_client, "Anthropic", api_key, base_url, timeout)
        super().__init__(model, name, client, AnthropicAssembler)

    def served_context_length(self) -> int | None:
        """Return the model's window as the API, or another server that speaks its format, lists it."""
        try:
            with self._failures():
                found: int | None = self._client().models.retrieve(self.model).max_input_tokens
        except RequestRefused as error:
            if error.status != 404:
                raise
            found = None
        if found is not None:
            return found
        with self._failures():
            listed = [model.to_dict(mode="json") for model in self._client().models.list().data]
        return listed_window(listed, self.model)

    def _body(self, messages: Sequence[Message], call: CallOptions) -> dict[str, Any]:
        most = call.get("max_tokens")
        return anthropic_body(
            messages,
            self.model,
            tools=call.get("tools", ()),
            max_tokens=DEFAULT_MAX_TOKENS if most is None else most,
            options=call.get("options"),
        )

    @property
    def _create(self) -> Any:
        return self._client().messages.create

    def _reply(self, whole: Any) -> Reply:
        if not isinstance(whole, dict) or not isinstance(whole.get("content"), list):
            raise self._malformed("no content")
        return anthropic_reply(whole, self.name)


# -- requests -------------------------------------------------------------------------------------------------------


def anthropic_body(
    messages: Sequence[Message],
    model: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    max_tokens: int,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the request body; ``options`` override its fields."""
    system, turns = to_anthropic([_mark_parts(message) for message in messages])
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
    prompt = sendable(system) if isinstance(system, list) else system
    if isinstance(prompt, list):
        prompt = [block for block in map(_system_block, prompt) if _is_sendable(block)]
    if prompt:
        body["system"] = prompt
    body["messages"] = _with_unique_ids(_merge_neighbours([_sendable_turn(turn) for turn in sendable(turns)]))
    if not body["messages"] or body["messages"][0]["role"] != "user":
        body["messages"].insert(0, {"role": "user", "content": _EMPTY})
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    return {**body, **(options or {})}


def _mark_parts(message: Any) -> Any:
    """Return an ephemeral message with the mark on each of its parts, because it may be merged with others."""
    if not (isinstance(message, dict) and message.get(EPHEMERAL)) or message.get("role") == "tool":
        return message
    return {**message, "content": [{**part, EPHEMERAL: True} for part in parts_of(message)]}


def _sendable_turn(turn: dict[str, Any]) -> dict[str, Any]:
    role = turn["role"] if turn["role"] in {"user", "assistant", "system"} else "user"
    content = turn.get("content")
    if not isinstance(content, list):
        return {"role": role, "content": content if isinstance(content, str) and content.strip() else _EMPTY}
    blocks = [part for part in map(_sendable_block, content) if _is_sendable(part)]
    if not any(block.get("type") not in _THINKING for block in blocks):
        blocks.append({"type": "text", "text": _EMPTY})
    return {"role": role, "content": blocks}


def _merge_neighbours(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns with neighbours of one role merged, as the API itself does and some of its hosts do not.

    Thinking must stay first in its message, so a turn that begins with it is not merged.
    """
    result: list[dict[str, Any]] = []
    for turn in turns:
        blocks = _blocks_of(turn)
        apart = turn["role"] == "system" or str(blocks[0].get("type")) in _THINKING
        if result and result[-1]["role"] == turn["role"] and not apart:
            result[-1] = {**turn, "content": [*_blocks_of(result[-1]), *blocks]}
        else:
            result.append(turn)
    return result


def _blocks_of(turn: dict[str, Any]) -> list[dict[str, Any]]:
    content = turn["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _sendable_block(part: Any) -> dict[str, Any]:
    """Return a block that the API takes; a part of another API becomes a text that says so."""
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    if part.get("type") == "tool_result" and isinstance(part.get("content"), list):
        return _sendable_result(part)
    return _left_out(part) if part.get("type") in _FOREIGN else part


def _system_block(part: Any) -> Any:
    """Return a block of the system prompt, where the API takes text only."""
    is_other = isinstance(part, dict) and isinstance(part.get("type"), str)
    return _left_out(part) if is_other and part["type"] not in {"text", *_THINKING} else part


def _left_out(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": f"[{part['type']} left out: this model does not take it]"}


def _sendable_result(block: dict[str, Any]) -> dict[str, Any]:
    """Return a tool result whose parts the API takes; a cache marker moves from the parts to the result."""
    parts = [part for part in map(_sendable_block, block["content"]) if _is_sendable(part)]
    markers = [part["cache_control"] for part in parts if "cache_control" in part]
    inside = [{name: value for name, value in part.items() if name != "cache_control"} for part in parts]
    marker = {"cache_control": markers[-1]} if markers and "cache_control" not in block else {}
    return {**block, "content": inside, **marker}


def _is_sendable(block: Any) -> bool:
    """Return whether a block may be sent: no empty text, and no thinking without this API's signature."""
    kind = block.get("type")
    if kind == "text":
        return isinstance(block.get("text"), str) and bool(block["text"].strip())
    if kind == "thinking":
        return bool(block.get("signature"))
    return isinstance(kind, str) and kind != "reasoning"


def _with_unique_ids(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns with tool-call ids that the API takes: its characters only, and none twice.

    Some models number their calls anew in each turn. A new id depends only on the turns before it, so that a growing
    conversation keeps its bytes.
    """
    seen: dict[str, int] = {}
    given: dict[str, list[str]] = {}
    result = []
    for turn in turns:
        content = turn["content"]
        if isinstance(content, list):
            if turn["role"] == "assistant":
                given = {}
            content = [_with_id(block, seen, given) for block in content]
        result.append({**turn, "content": content})
    return result


def _with_id(block: dict[str, Any], seen: dict[str, int], given: dict[str, list[str]]) -> dict[str, Any]:
    if block.get("type") == "tool_use":
        old = str(block.get("id"))
        plain = _NOT_ID.sub("_", old) or "call"
        new = plain
        while new in seen:
            seen[plain] += 1
            new = f"{plain}_{seen[plain]}"
        seen[new] = seen.get(new, 1)
        given.setdefault(old, []).append(new)
        name = _NOT_ID.sub("_", str(block.get("name")))[:128] or "unknown"  # models do make up names
        return {**block, "id": new, "name": name}
    if block.get("type") == "tool_result":
        old = str(block.get("tool_use_id"))
        waiting = given.get(old)
        new = waiting.pop(0) if waiting else _NOT_ID.sub("_", old) or "call"
        return block if new == old else {**block, "tool_use_id": new}
    return block


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)  # already in this API's format, or a tool of the server
    made = {"name": function["name"], "description": function.get("description") or ""}
    made["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if "cache_control" in tool:
        made["cache_control"] = tool["cache_control"]
    return made


# -- answers --------------------------------------------------------------------------------------------------------


def anthropic_reply(answer: Mapping[str, Any], provider: str) -> Reply:
    """Return the reply that an answer of the API stands for."""
    message = from_assistant({"role": "assistant", "content": list(answer.get("content") or [])})
    content = message.get("content")
    if isinstance(content, list) and all(_is_plain(part) for part in content):
        message["content"] = "".join(str(part.get("text")) for part in content)
    return Reply(
        message=message,
        usage=anthropic_usage(answer.get("usage")),
        stop=_STOPS.get(str(answer.get("stop_reason")), "end"),
        model=str(answer.get("model") or ""),
        provider=provider,
        id=answer.get("id"),
        raw=answer,
    )


def _is_plain(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and part.keys() <= {"type", "text", "citations"} and not part.get("citations")


def anthropic_usage(usage: Any) -> Usage:
    """Return the usage of an answer, summed over the server's steps."""
    steps = usage.get("iterations") if isinstance(usage, Mapping) else None
    if isinstance(steps, list) and steps:
        told = (step for step in steps if isinstance(step, Mapping))
        return sum((anthropic_usage({**step, "iterations": None}) for step in told), Usage())
    return Usage(
        input_tokens=tokens_in(usage, "input_tokens"),
        output_tokens=tokens_in(usage, "output_tokens"),
        cache_read_tokens=tokens_in(usage, "cache_read_input_tokens"),
        cache_write_tokens=tokens_in(usage, "cache_creation_input_tokens"),
        cache_write_1h_tokens=tokens_in(usage, "cache_creation", "ephemeral_1h_input_tokens"),
        reasoning_tokens=tokens_in(usage, "output_tokens_details", "thinking_tokens"),
    )


# -- streams --------------------------------------------------------------------------------------------------------


class AnthropicAssembler(StreamAssembler):
    """Assembles a message from the events of a stream."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._is_complete = False
        self._pieces: dict[tuple[int, str], list[str]] = {}
        """The pieces of texts, thoughts and arguments that are not in their blocks yet."""

    def take(self, event: Mapping[str, Any]) -> Iterator[Event]:
        kind = event.get("type")
        if kind == "content_block_delta":
            yield from self._add(int(event["index"]), event["delta"])
            return
        self.weight += weigh(event)
        if kind == "message_start":
            self._message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            self._message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_stop":
            yield from self._finish(int(event["index"]))
        elif kind == "message_delta":
            self._message.update({name: value for name, value in event["delta"].items() if value is not None})
            # Figures are totals so far; those that are not repeated stay.
            known = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **known}
        elif kind == "message_stop":
            self._is_complete = True

    def whole(self) -> dict[str, Any] | None:
        self._put_texts()
        return self._message if self._is_complete else None

    def so_far(self) -> dict[str, Any] | None:
        self._put_texts()
        for index in [index for index, name in self._pieces if name == _ARGUMENTS]:
            for _ in self._finish(index):  # an unfinished call keeps the arguments that have come
                pass
        return self._message if self._message.get("content") else None

    def _add(self, index: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        block = self._message["content"][index]
        kind = delta.get("type")
        if kind == "text_delta":
            self._keep(index, "text", delta["text"])
            yield TextDelta(delta["text"])
        elif kind == "thinking_delta":
            self._keep(index, "thinking", delta["thinking"])
            yield ThinkingDelta(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "input_json_delta":
            self._keep(index, _ARGUMENTS, delta["partial_json"])
        elif kind == "citations_delta":
            block["citations"] = block.get("citations") or []
            block["citations"].append(delta["citation"])
            self.weight += weigh(delta["citation"])

    def _keep(self, index: int, name: str, text: str) -> None:
        self._pieces.setdefault((index, name), []).append(text)
        self.weight += len(text)

    def _put_texts(self) -> None:
        """Put the pieces of texts and thoughts into their blocks."""
        for index, name in [key for key in self._pieces if key[1] != _ARGUMENTS]:
            block = self._message["content"][index]
            block[name] = block.get(name, "") + "".join(self._pieces.pop((index, name)))

    def _finish(self, index: int) -> Iterator[Event]:
        block = self._message["content"][index]
        text = "".join(self._pieces.pop((index, _ARGUMENTS), []))
        if text:
            try:
                block["input"] = _parsed(text)
            except (ValueError, RecursionError):  # cut off, or no JSON; the caller of the tool tells the model
                block["input"] = {INVALID: text}
        if block.get("type") == "tool_use":
            arguments = text or json.dumps(block.get("input") or {}, ensure_ascii=False)
            yield ToolCallMade(ToolCall(str(block["id"]), str(block["name"]), arguments))


_ARGUMENTS = "input"
_MOST_VALUES = 30_000
"""Values in the arguments of one call; parsing more at once would hold up other threads."""


def _parsed(arguments: str) -> Any:
    if len(arguments) > _MOST_VALUES and structure(arguments.encode(), 0, _MOST_VALUES)[0] > _MOST_VALUES:
        raise ValueError("there are too many values in the arguments")
    return json.loads(arguments)
