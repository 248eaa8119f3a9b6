"""Claude through Anthropic's official client, whole and as a stream.

The client is imported when the first provider is made, and its own retries are off. What a request looks like is the
business of `anthropic_request`; how a call goes is the same for all and stands in `client`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everlong.errors import RequestRefused
from everlong.model import Message
from everlong.model.message import ToolCall
from everlong.providers.anthropic_request import anthropic_body, anthropic_reply
from everlong.providers.base import CallOptions, Event, Reply, TextDelta, ThinkingDelta, ToolCallMade
from everlong.providers.client import ClientProvider, Gathering, need
from everlong.providers.served import listed_window
from everlong.wire.blocks import INVALID

if TYPE_CHECKING:
    from anthropic import Anthropic

__all__ = ["AnthropicProvider"]

DEFAULT_MAX_TOKENS = 8_192
"""The most that an answer may have where the caller does not say; the API wants a number."""


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

        def client() -> Anthropic:
            import anthropic  # noqa: PLC0415 - an optional package, and slow to load

            return anthropic.Anthropic(api_key=api_key, base_url=base_url, max_retries=0, timeout=timeout)

        super().__init__(model, name, client)

    def served_context_length(self) -> int | None:
        """The model's window as the API lists it, or as a server of another maker that speaks this format does."""
        try:
            with self._failures():
                found: int | None = self._client.models.retrieve(self.model).max_input_tokens
        except RequestRefused as error:
            if error.status != 404:
                raise
            found = None
        if found is not None:
            return found
        with self._failures():
            listed = [model.to_dict(mode="json") for model in self._client.models.list().data]
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
        return self._client.messages.create

    def _reply(self, whole: Any) -> Reply:
        if not isinstance(whole, dict) or not isinstance(whole.get("content"), list):
            raise self._malformed("no content")
        return anthropic_reply(whole, self.name)

    def _gathering(self) -> Gathering:
        return AnthropicGathering()


class AnthropicGathering(Gathering):
    """Adds up the events of a stream to the message they make, and tells what is new in each."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._is_complete = False
        self._arguments: dict[int, list[str]] = {}

    def take(self, event: Mapping[str, Any]) -> Iterator[Event]:
        kind = event.get("type")
        if kind == "message_start":
            self._message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            self._message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            yield from self._add(int(event["index"]), event["delta"])
        elif kind == "content_block_stop":
            yield from self._finish(int(event["index"]))
        elif kind == "message_delta":
            self._message.update({name: value for name, value in event["delta"].items() if value is not None})
            # Figures are totals so far; those that are not repeated stay as they were.
            known = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **known}
        elif kind == "message_stop":
            self._is_complete = True

    def whole(self) -> dict[str, Any] | None:
        return self._message if self._is_complete else None

    def so_far(self) -> dict[str, Any] | None:
        for index in list(self._arguments):  # of a call that was under way, the arguments as far as they came
            for _ in self._finish(index):
                pass
        return self._message if self._message.get("content") else None

    def _add(self, index: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        block = self._message["content"][index]
        kind = delta.get("type")
        if kind == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
            yield TextDelta(delta["text"])
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
            yield ThinkingDelta(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "input_json_delta":
            self._arguments.setdefault(index, []).append(delta["partial_json"])
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]

    def _finish(self, index: int) -> Iterator[Event]:
        block = self._message["content"][index]
        text = "".join(self._arguments.pop(index, []))
        if text:
            try:
                block["input"] = json.loads(text)
            except ValueError:  # the model was cut off, or wrote no JSON; whoever runs the tool tells it so
                block["input"] = {INVALID: text}
        if block.get("type") == "tool_use":
            arguments = text or json.dumps(block.get("input") or {}, ensure_ascii=False)
            yield ToolCallMade(ToolCall(str(block["id"]), str(block["name"]), arguments))
