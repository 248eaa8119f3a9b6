"""OpenAI, and every endpoint that speaks its chat completions, through the official client.

The client is imported when the first provider is made, and its own retries are off. What a request looks like is the
business of `openai_request`; how a call goes is the same for all and stands in `client`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from everlong.model import Message, calls_of
from everlong.providers.base import CallOptions, Event, Reply, TextDelta, ThinkingDelta, ToolCallMade
from everlong.providers.client import ClientProvider, Gathering, need
from everlong.providers.openai_request import openai_body, openai_reply
from everlong.providers.served import listed_window

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["OpenAIProvider"]


class OpenAIProvider(ClientProvider):
    """One model of the chat completions API.

    ``strict`` sends only what OpenAI itself takes; it is off for other servers by default, which read cache markers
    and reasoning too.
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

        def client() -> OpenAI:
            import openai  # noqa: PLC0415 - an optional package, and slow to load

            return openai.OpenAI(api_key=api_key, base_url=base_url, max_retries=0, timeout=timeout)

        super().__init__(model, name, client)
        self.takes_markers = takes_markers
        self._strict = name == "openai" if strict is None else strict

    def served_models(self) -> list[dict[str, Any]]:
        """The models that the server lists, as it lists them."""
        with self._failures():
            return [model.to_dict(mode="json") for model in self._client.models.list().data]

    def served_context_length(self) -> int | None:
        """The model's window as the server lists it, under whichever name."""
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
        return self._client.chat.completions.create

    def _reply(self, whole: Any) -> Reply:
        reply = openai_reply(whole, self.name) if isinstance(whole, dict) else None
        if reply is None:
            raise self._malformed("no message")
        return reply

    def _gathering(self) -> Gathering:
        return OpenAIGathering()


class OpenAIGathering(Gathering):
    """Adds up the chunks of a stream to the completion they make, and tells what is new in each."""

    def __init__(self) -> None:
        self._finish: str | None = None
        self._frame: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
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
                self._message[name] = (self._message.get(name) or "") + text
                yield ThinkingDelta(text) if name.startswith("reasoning") else TextDelta(text)
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self._message["reasoning_details"] = [*self._message.get("reasoning_details", []), *details]
        for fragment in delta.get("tool_calls") or []:
            empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            call = self._calls.setdefault(int(fragment.get("index", len(self._calls))), empty)
            call["id"] = call["id"] or fragment.get("id") or ""
            function = fragment.get("function") or {}
            call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
            call["function"]["arguments"] += function.get("arguments") or ""

    def end(self) -> Iterator[Event]:
        # A call's pieces may come in any order, so none is known to be complete before all are.
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
        calls = [self._calls[index] for index in sorted(self._calls)]
        return {**self._message, "tool_calls": calls} if calls else {**self._message}
