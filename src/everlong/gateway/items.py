"""The Responses API: its requests as a dialect of their own, and what else of it is only passed on and stored.

A request that brings its whole conversation is kept inside the window like those of the other APIs; its list is
``input``, and its entries are items. A conversation that the upstream keeps or compacts is left to the upstream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everlong.errors import TranscriptError
from everlong.gateway.dialects import OPENAI, Dialect, whole_number
from everlong.gateway.raw import Broken, Change, Read, dumped, meant
from everlong.model import Message
from everlong.providers.base import Event, Reply, StopReason, Usage, tokens_in
from everlong.providers.client import Gathering
from everlong.wire import from_items, message_of_answer, to_items

__all__ = ["RESPONSES", "Asked", "asked", "is_stateless", "messages_of"]

_OPAQUE = frozenset({"compaction", "compaction_summary", "context_compaction", "item_reference"})
"""Items that stand for something that only the upstream knows."""
_NAMED = ("previous_response_id", "conversation", "context_management", "background")
"""Fields of requests whose conversation the upstream keeps, compacts, or answers later."""
_MARKS = tuple(f'"{name}"'.encode() for name in (*_NAMED, *_OPAQUE))
_TEXT_INPUT = re.compile(rb'"input"\s*:\s*"')


def is_stateless(body: bytes) -> bool:
    """Return whether a request brings its whole conversation, all of which can be read here."""
    if not any(mark in body for mark in _MARKS) and not _TEXT_INPUT.search(body):
        return True
    try:
        request = meant(body)
    except Broken:
        return True
    if not isinstance(request, dict) or any(request.get(name) for name in _NAMED):
        return False
    items = request.get("input")
    return isinstance(items, list) and not any(isinstance(one, dict) and one.get("type") in _OPAQUE for one in items)


# -- conversations that the upstream keeps -----------------------------------------------------------------------------


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
    given, tools = body.get("input"), body.get("tools")
    said: list[Message] = [{"role": "user", "content": given}] if isinstance(given, str) else messages_of(given or [])
    talk = body.get("conversation")
    conversation = talk.get("id") if isinstance(talk, dict) else talk
    named = [name for name in (body.get("previous_response_id"), conversation) if isinstance(name, str) and name]
    return Asked(
        str(body.get("model") or ""),
        _instructed(body.get("instructions")),
        said,
        tools if isinstance(tools, list) else None,
        tuple(named),
        conversation if isinstance(conversation, str) else None,
    )


def messages_of(items: Any) -> list[Message]:
    """Items of a request or an answer as messages; `Broken` where they are none."""
    if not isinstance(items, list):
        raise Broken("the items are no list")
    return [message for said in _said(items) for message in said]


def _said(items: Sequence[Any]) -> list[list[Message]]:
    try:
        return from_items(items)
    except TranscriptError as error:
        raise Broken(str(error)) from error


def _instructed(instructions: Any) -> list[Message]:
    return [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []


# -- conversations that the client keeps -------------------------------------------------------------------------------


class _Responses(Dialect):
    name = "openai-responses"
    api = "openai"
    list_name = "input"
    takes_markers = False
    binds_thinking = False
    path = "/v1/responses"
    last_event = re.compile(rb"[\r\n](?:event: ?|data: ?\{ ?\"type\": ?\")response\.(?:completed|incomplete|failed)")

    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        del before
        return _said([entry])[0]

    def said(self, entries: Sequence[Any], before: Message | None) -> list[list[Message]]:
        del before
        return _said(entries)

    def is_said(self, entry: Any) -> bool:
        kind = str(entry.get("type")) if isinstance(entry, dict) else ""
        return kind == "reasoning" or kind.endswith("_call") or super().is_said(entry)

    def system_of(self, read: Read) -> list[Message]:
        return _instructed(read.field("instructions"))

    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        return to_items(messages)

    def noted(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        del body
        if leading:
            content = leading[-1].get("content")
            parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else list(content or [])
            last = {**leading[-1], "content": [*parts, {"type": "input_text", "text": note}]}
            return [*leading[:-1], last], None
        place, value = read.place("instructions"), read.field("instructions")
        if place is None or not isinstance(value, str) or not value:
            return None, None
        return None, (*place, dumped(f"{value}\n\n{note}"))

    def answer_tokens(self, read: Read) -> int:
        return whole_number(read.field("max_output_tokens"))

    def gathering(self) -> Gathering:
        return _Items()

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        output = answer.get("output")
        if not isinstance(output, list) or answer.get("status") not in {None, "completed", "incomplete"}:
            return None
        message = message_of_answer(output)
        stop: StopReason = "tool_calls" if message.get("tool_calls") else "end"
        if answer.get("status") == "incomplete":
            stop = "length"
        usage, model = _usage(answer.get("usage")), str(answer.get("model") or "")
        return Reply(message, usage, stop, model, self.api, answer.get("id"), answer)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return OPENAI.error(status, message)


class _Items(Gathering):
    """Takes the answer out of a stream: its last event has it whole, or the events before it have its items."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] | None = None
        self._done: list[Any] = []
        self._words: list[str] = []

    def take(self, piece: Mapping[str, Any]) -> Iterator[Event]:
        kind = piece.get("type")
        if kind in {"response.completed", "response.incomplete"}:
            self._answer = piece["response"]
        elif kind == "response.output_item.done":
            self._done.append(piece["item"])
            self._words = []
        elif kind == "response.output_text.delta":
            self._words.append(str(piece.get("delta") or ""))
        return iter(())

    def whole(self) -> dict[str, Any] | None:
        answer = self._answer
        return {**answer, "output": self._done} if answer is not None and not answer.get("output") else answer

    def so_far(self) -> dict[str, Any] | None:
        text = "".join(self._words)
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        output = [*self._done, said] if text else self._done
        return {"status": "incomplete", "output": output} if output else None


def _usage(usage: Any) -> Usage:
    cached = tokens_in(usage, "input_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=max(0, tokens_in(usage, "input_tokens") - cached),
        output_tokens=tokens_in(usage, "output_tokens"),
        cache_read_tokens=cached,
        reasoning_tokens=tokens_in(usage, "output_tokens_details", "reasoning_tokens"),
    )


RESPONSES: Dialect = _Responses()
