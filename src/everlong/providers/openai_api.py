"""OpenAI, and every endpoint that speaks its chat completions, through the official client.

The client is imported when the first provider is made, and its own retries are off. What a request looks like is the
business of `openai_request`, what a failure means that of `failures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError, MalformedReply
from everlong.model import Message, calls_of
from everlong.providers.base import Done, Event, Reply, TextDelta, ThinkingDelta, ToolCallMade, UsageReported
from everlong.providers.failures import classify
from everlong.providers.openai_request import openai_body, openai_reply

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAIProvider"]

_WINDOW_NAMES = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens", "n_ctx")
"""Where servers of different makers list a model's window."""


class OpenAIProvider:
    """One model of the chat completions API.

    ``strict`` sends only what OpenAI itself takes; it is off for other servers by default, which read cache markers
    and reasoning too.
    """

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
        self.name = name
        self.model = model
        self.takes_markers = takes_markers
        self._strict = name == "openai" if strict is None else strict
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
            whole = answer.to_dict(mode="json") if hasattr(answer, "to_dict") else {}
        except Exception as error:
            raise classify(error, self.name, self.model) from error
        return self._reply(whole)

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
        body = {"stream_options": {"include_usage": True}, **self._body(messages, tools, max_tokens, options)}
        try:
            with self._create(body, stream=True) as chunks:
                for chunk in chunks:
                    yield from whole.take(chunk.to_dict(mode="json"))
        except Exception as error:
            raise classify(error, self.name, self.model) from error
        if whole.finish is None:
            raise self._malformed("the stream ended before the answer did")
        reply = self._reply(whole.completion())
        for call in calls_of(reply.message):
            yield ToolCallMade(call)
        yield UsageReported(reply.usage)
        yield Done(reply)

    def _body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        max_tokens: int | None,
        options: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        return openai_body(
            messages, self.model, tools=tools, max_tokens=max_tokens, strict=self._strict, options=options
        )

    def _create(self, body: dict[str, Any], *, stream: bool) -> Any:
        first = {name: body.pop(name) for name in ("model", "messages")}
        # The rest goes past the client's own types, so that a field newer than the client is sent as it is.
        create: Any = self._client.chat.completions.create
        return create(**first, stream=stream, extra_body=body)

    def _reply(self, whole: Any) -> Reply:
        reply = openai_reply(whole, self.name) if isinstance(whole, dict) else None
        if reply is None:
            raise self._malformed("no message")
        return reply

    def _malformed(self, what: str) -> MalformedReply:
        return MalformedReply(
            f"{self.name}:{self.model} sent an answer that cannot be read: {what}", provider=self.name, model=self.model
        )

    def served_models(self) -> list[dict[str, Any]]:
        """The models that the server lists, as it lists them."""
        try:
            listed = self._client.models.list()
            return [model.to_dict(mode="json") for model in listed.data]
        except Exception as error:
            raise classify(error, self.name, self.model) from error

    def served_context_length(self) -> int | None:
        """The model's window as the server lists it, under whichever name."""
        models = self.served_models()
        named = [entry for entry in models if entry.get("id") == self.model]
        # A server of one model often lists it by its file, and takes any name.
        chosen = named or (models if len(models) == 1 else [])
        for entry in chosen:
            meta = entry.get("meta")
            for source in (entry, meta if isinstance(meta, dict) else {}):
                for name in _WINDOW_NAMES:
                    value = source.get(name)
                    if isinstance(value, int) and value > 0:
                        return value
        return None

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


class _Whole:
    """Adds up the chunks of a stream to the completion they make, and tells what is new in each."""

    def __init__(self) -> None:
        self.finish: str | None = None
        self._frame: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}

    def take(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        self._frame.update({name: chunk[name] for name in ("id", "model") if chunk.get(name)})
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for choice in chunk.get("choices") or []:
            self.finish = choice.get("finish_reason") or self.finish
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

    def completion(self) -> dict[str, Any]:
        """The whole answer."""
        message = {**self._message}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {**self._frame, "choices": [choice], "usage": self._usage}


def _client(api_key: str, base_url: str | None, timeout: float) -> openai.OpenAI:
    try:
        import openai  # noqa: PLC0415 - an optional package, and slow to load
    except ImportError as error:
        raise ConfigError(
            "this provider needs the package openai; install it with: pip install 'everlong[openai]'", key="provider"
        ) from error
    return openai.OpenAI(api_key=api_key, base_url=base_url, max_retries=0, timeout=timeout)
