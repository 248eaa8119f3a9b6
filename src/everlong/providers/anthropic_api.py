"""Claude through Anthropic's official client, whole and as a stream.

The client is imported when the first provider is made, and its own retries are off. What a request looks like is the
business of `anthropic_request`, what a failure means that of `failures`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError, MalformedReply
from everlong.model import Message
from everlong.model.message import ToolCall
from everlong.providers.anthropic_request import anthropic_body, anthropic_reply
from everlong.providers.base import Done, Event, Reply, TextDelta, ThinkingDelta, ToolCallMade, UsageReported
from everlong.providers.failures import classify
from everlong.wire.blocks import INVALID

if TYPE_CHECKING:
    import anthropic

__all__ = ["AnthropicProvider"]

DEFAULT_MAX_TOKENS = 8_192
"""The most that an answer may have where the caller does not say; the API wants a number."""


class AnthropicProvider:
    """One model of the Anthropic Messages API, or of any endpoint that speaks it."""

    takes_markers = True

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        name: str = "anthropic",
        timeout: float = 600.0,
    ) -> None:
        self.name = name
        self.model = model
        self._client = _client(api_key, base_url, timeout)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Reply:
        """The model's answer."""
        body = self._body(messages, tools, max_tokens, options)
        try:
            answer = self._create(body, stream=False)
            whole = answer.to_dict(mode="json") if hasattr(answer, "to_dict") else None
        except Exception as error:
            raise classify(error, self.name, self.model) from error
        if not isinstance(whole, dict) or not isinstance(whole.get("content"), list):
            raise self._malformed("no content")
        return anthropic_reply(whole, self.name)

    def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Iterator[Event]:
        """The model's answer as it comes."""
        whole = _Whole()
        body = self._body(messages, tools, max_tokens, options)
        try:
            with self._create(body, stream=True) as events:
                for event in events:
                    yield from whole.take(event.to_dict(mode="json"))
        except Exception as error:
            raise classify(error, self.name, self.model) from error
        if not whole.complete:
            raise self._malformed("the stream ended before the message did")
        reply = anthropic_reply(whole.message, self.name)
        yield UsageReported(reply.usage)
        yield Done(reply)

    def _body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        max_tokens: int | None,
        options: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        most = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
        return anthropic_body(messages, self.model, tools=tools, max_tokens=most, options=options)

    def _create(self, body: dict[str, Any], *, stream: bool) -> Any:
        first = {name: body.pop(name) for name in ("model", "max_tokens", "messages")}
        # The rest goes past the client's own types, so that a field newer than the client is sent as it is.
        create: Any = self._client.messages.create
        return create(**first, stream=stream, extra_body=body)

    def _malformed(self, what: str) -> MalformedReply:
        return MalformedReply(
            f"{self.name}:{self.model} sent an answer that cannot be read: {what}", provider=self.name, model=self.model
        )

    def served_context_length(self) -> int | None:
        """The model's window as the API lists it."""
        try:
            found = self._client.models.retrieve(self.model)
        except Exception as error:
            raise classify(error, self.name, self.model) from error
        return found.max_input_tokens

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


class _Whole:
    """Adds up the events of a stream to the message they make, and tells what is new in each."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.complete = False
        self._arguments: dict[int, list[str]] = {}

    def take(self, event: Mapping[str, Any]) -> Iterator[Event]:
        kind = event.get("type")
        if kind == "message_start":
            self.message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            self.message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            yield from self._add(int(event["index"]), event["delta"])
        elif kind == "content_block_stop":
            yield from self._finish(int(event["index"]))
        elif kind == "message_delta":
            self.message.update({name: value for name, value in event["delta"].items() if value is not None})
            # Figures are totals so far; those that are not repeated stay as they were.
            known = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
            self.message["usage"] = {**(self.message.get("usage") or {}), **known}
        elif kind == "message_stop":
            self.complete = True

    def _add(self, index: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        block = self.message["content"][index]
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
        block = self.message["content"][index]
        text = "".join(self._arguments.pop(index, []))
        if text:
            try:
                block["input"] = json.loads(text)
            except ValueError:  # the model was cut off, or wrote no JSON; whoever runs the tool tells it so
                block["input"] = {INVALID: text}
        if block.get("type") == "tool_use":
            arguments = text or json.dumps(block.get("input") or {}, ensure_ascii=False)
            yield ToolCallMade(ToolCall(str(block["id"]), str(block["name"]), arguments))


def _client(api_key: str, base_url: str | None, timeout: float) -> anthropic.Anthropic:
    try:
        import anthropic  # noqa: PLC0415 - an optional package, and slow to load
    except ImportError as error:
        raise ConfigError(
            "Claude needs the package anthropic; install it with: pip install 'everlong[anthropic]'", key="provider"
        ) from error
    return anthropic.Anthropic(api_key=api_key, base_url=base_url, max_retries=0, timeout=timeout)
