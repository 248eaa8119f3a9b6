"""Answers of OpenAI's Responses API: the reply in a whole one, and a whole one from the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everlong.providers.base import Event, Reply, StopReason, Usage, tokens_in
from everlong.providers.client import StreamAssembler, weigh
from everlong.wire import message_of_answer

__all__ = ["ResponsesAssembler", "responses_reply"]


def responses_reply(answer: Mapping[str, Any], provider: str) -> Reply | None:
    """Return the reply in a whole answer; None if there is none."""
    output = answer.get("output")
    if not isinstance(output, list) or answer.get("status") not in {None, "completed", "incomplete"}:
        return None
    message = message_of_answer(output)
    stop: StopReason = "tool_calls" if message.get("tool_calls") else "end"
    if answer.get("status") == "incomplete":
        stop = "length"
    usage, model = _usage(answer.get("usage")), str(answer.get("model") or "")
    return Reply(message, usage, stop, model, provider, answer.get("id"), answer)


def _usage(usage: Any) -> Usage:
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
