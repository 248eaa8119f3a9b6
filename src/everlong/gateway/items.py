"""The Responses API: what its items say as messages of the store, and what its answers and streams add up to.

Nothing is written in this format: requests and answers pass as they are. Sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from everlong.gateway.raw import Broken, dumped, meant
from everlong.model import Message
from everlong.providers.base import Event, Reply, StopReason, Usage, tokens_in
from everlong.providers.client import Gathering

__all__ = ["RESPONSES", "Asked", "asked", "messages_of"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says."""

    model: str
    system: list[Message]
    """Its instructions, which hold for this request only."""
    messages: list[Message]
    tools: list[Any] | None
    follows: tuple[str, ...]
    """Names of what it goes on from, which the upstream knows: a response, a conversation."""
    conversation: str | None

    @property
    def is_answered(self) -> bool:
        """Whether a model has spoken before it."""
        return bool(self.follows) or any(message["role"] == "assistant" for message in self.messages)

    def written(self, clean: Callable[[Message], Message]) -> str:
        """The same as a text, with messages as they may be kept."""
        said = (list(map(clean, self.system)), list(map(clean, self.messages)))
        return dumped([self.model, *said, self.tools, self.follows, self.conversation]).decode()

    @classmethod
    def read(cls, text: str) -> Asked:
        """What such a text says."""
        model, system, messages, tools, follows, conversation = meant(text.encode())
        return cls(model, system, messages, tools, tuple(follows), conversation)


def asked(body: Any) -> Asked:
    """Read a request; `Broken` where it is none."""
    if not isinstance(body, dict):
        raise Broken("the body is no JSON object")
    given, instructions, tools = body.get("input"), body.get("instructions"), body.get("tools")
    said: list[Message] = [{"role": "user", "content": given}] if isinstance(given, str) else messages_of(given or [])
    system: list[Message] = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    talk = body.get("conversation")
    conversation = talk.get("id") if isinstance(talk, dict) else talk
    named = [name for name in (body.get("previous_response_id"), conversation) if isinstance(name, str) and name]
    return Asked(
        str(body.get("model") or ""),
        system,
        said,
        tools if isinstance(tools, list) else None,
        tuple(named),
        conversation if isinstance(conversation, str) else None,
    )


def messages_of(items: Any) -> list[Message]:
    """Items of a request or an answer as messages; `Broken` where they are none."""
    if not isinstance(items, list):
        raise Broken("the items are no list")
    return [_message(item) for item in items]


def _message(item: Any) -> Message:
    if not isinstance(item, dict):
        raise Broken("an item is no object")
    kind = item.get("type", "message")
    if kind == "message":
        if not isinstance(item.get("role"), str):
            raise Broken("a message has no role")
        return {"role": item["role"], "content": _content(item.get("content"))}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))}
    return {"role": "user" if str(kind).endswith("_output") else "assistant", "content": [item]}


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in {"input_text", "output_text"}:
        rest = {name: value for name, value in part.items() if name not in {"type", "text"} and value}
        return {"type": "text", "text": part.get("text"), **rest}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return part


def _merged(messages: Sequence[Message]) -> Message:
    """The messages of one answer as one: its text and thinking, then its calls."""
    parts: list[Any] = []
    calls: list[Any] = []
    for message in messages:
        content = message.get("content")
        parts += content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        calls += message.get("tool_calls") or []
    is_plain = len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text"
    content = parts[0]["text"] if is_plain else parts or None
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


class _Responses:
    """What a tap needs to know of the API."""

    name: ClassVar[str] = "openai"
    last_event = re.compile(rb"[\r\n](?:event: ?|data: ?\{ ?\"type\": ?\")response\.(?:completed|incomplete|failed)")

    def gathering(self) -> Gathering:
        """Takes the answer out of a stream, which has it whole in its last event."""
        return _Last()

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """What a whole answer says; None where it says nothing."""
        output = answer.get("output")
        if not isinstance(output, list) or answer.get("status") not in {None, "completed", "incomplete"}:
            return None
        message = _merged(messages_of(output))
        stop: StopReason = "tool_calls" if message.get("tool_calls") else "end"
        if answer.get("status") == "incomplete":
            stop = "length"
        usage, model = _usage(answer.get("usage")), str(answer.get("model") or "")
        return Reply(message, usage, stop, model, self.name, answer.get("id"), answer)


class _Last(Gathering):
    def __init__(self) -> None:
        self._answer: dict[str, Any] | None = None
        self._words: list[str] = []

    def take(self, piece: Mapping[str, Any]) -> Iterator[Event]:
        if piece.get("type") in {"response.completed", "response.incomplete"}:
            self._answer = piece["response"]
        elif piece.get("type") == "response.output_text.delta":
            self._words.append(str(piece.get("delta") or ""))
        return iter(())

    def whole(self) -> dict[str, Any] | None:
        return self._answer

    def so_far(self) -> dict[str, Any] | None:
        text = "".join(self._words)
        content = [{"type": "output_text", "text": text}]
        said = {"type": "message", "role": "assistant", "content": content}
        return {"status": "incomplete", "output": [said]} if text else None


def _usage(usage: Any) -> Usage:
    cached = tokens_in(usage, "input_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=max(0, tokens_in(usage, "input_tokens") - cached),
        output_tokens=tokens_in(usage, "output_tokens"),
        cache_read_tokens=cached,
        reasoning_tokens=tokens_in(usage, "output_tokens_details", "reasoning_tokens"),
    )


RESPONSES = _Responses()
