"""What the providers of both APIs share: body, call, stream and failures in their order, around an official client.

What a body, an answer and the pieces of a stream look like is said by each API's own class; nothing here knows a wire
format. Retries are the business of `retry`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar, Unpack

from everlong.errors import ConfigError, MalformedReply
from everlong.model import EPHEMERAL, Message
from everlong.providers.base import CallOptions, Done, Event, Reply, UsageReported
from everlong.providers.failures import classify

__all__ = ["ClientProvider", "Gathering", "listed_window", "need"]

_SPOKEN = ("system", "messages")


class Gathering(ABC):
    """Adds up the pieces of a stream to the answer that they make."""

    @abstractmethod
    def take(self, piece: Mapping[str, Any]) -> Iterator[Event]:
        """Add a piece; gives what is new in it."""

    def end(self) -> Iterator[Event]:
        """What can only be told when all pieces have come."""
        return iter(())

    @abstractmethod
    def whole(self) -> dict[str, Any] | None:
        """The answer; None where the stream ended before it did."""

    def so_far(self) -> dict[str, Any] | None:
        """Return what has come of an answer that is not complete; None where nothing has that could be read."""
        return None


class ClientProvider(ABC):
    """One model behind an official client."""

    _required: ClassVar[tuple[str, ...]]
    """The fields that the client wants as arguments of their own."""
    _streaming: ClassVar[dict[str, Any]] = {}
    """What a body has besides when its answer is streamed."""

    def __init__(self, model: str, name: str, make_client: Callable[[], Any]) -> None:
        self.name = name
        self.model = model
        self._make_client = make_client
        self._made: Any = None
        self._making = threading.Lock()  # parts of a summary are asked for several at a time

    @property
    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._make_client()
            return self._made

    def load(self) -> None:
        """Load the client's package, which takes a while, so that the first call need not wait for it."""
        _ = self._client

    @property
    def address(self) -> str:
        """Where requests go."""
        return str(self._client.base_url)

    def complete(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Reply:
        """The model's answer."""
        body = self._prepared(messages, call)
        with self._failures():
            answer = self._send(body, call, stream=False)
            whole = answer.to_dict(mode="json") if hasattr(answer, "to_dict") else None
        return self._reply(whole)

    def stream(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Iterator[Event]:
        """The model's answer as it comes."""
        body = self._prepared(messages, call)
        answer = self._gathering()
        with self._failures(), self._send({**self._streaming, **body}, call, stream=True) as pieces:
            for piece in pieces:
                yield from answer.take(piece.to_dict(mode="json"))
        whole = answer.whole()
        if whole is None:
            raise self._malformed("the stream ended before the answer did")
        reply = self._reply(whole)
        yield from answer.end()
        yield UsageReported(reply.usage)
        yield Done(reply)

    def close(self) -> None:
        """Let go of connections."""
        with self._making:
            if self._made is not None:
                self._made.close()

    def _prepared(self, messages: Sequence[Message], call: CallOptions) -> dict[str, Any]:
        """The body to send; what a ``prepare`` raises is no failure of the API, so it is asked outside of the call."""
        body = self._body(messages, call)
        prepare = call.get("prepare")
        if prepare is None:
            return body
        prepared = dict(prepare(body))
        missing = [name for name in self._required if name not in prepared]
        if missing:
            raise ValueError(f"prepare returned a body without {', '.join(missing)}; return the whole body to send")
        return prepared

    def _send(self, body: dict[str, Any], call: CallOptions, *, stream: bool) -> Any:
        said = {name: list(map(_public, body[name])) for name in _SPOKEN if isinstance(body.get(name), list)}
        body = {**body, **said}
        required = {name: body[name] for name in self._required} | {"messages": []}
        # The rest goes past the client's own types, so that a field newer than the client is sent as it is; and so do
        # the messages, because the client compares each part with every type, which costs more than all that we do.
        rest = {name: value for name, value in body.items() if name not in required or name == "messages"}
        return self._create(**required, stream=stream, extra_body=rest, extra_headers=call.get("headers"))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Whatever goes wrong with the API is raised as an error of this package."""
        try:
            yield
        except Exception as error:
            raise classify(error, self.name, self.model) from error

    def _malformed(self, what: str) -> MalformedReply:
        return MalformedReply(
            f"{self.name}:{self.model} sent an answer that cannot be read: {what}", provider=self.name, model=self.model
        )

    # -- what each API says for itself -------------------------------------------------------------------------------

    @abstractmethod
    def _body(self, messages: Sequence[Message], call: CallOptions) -> dict[str, Any]:
        """The body of a request."""

    @property
    @abstractmethod
    def _create(self) -> Any:
        """The client's function that sends a body."""

    @abstractmethod
    def _reply(self, whole: Any) -> Reply:
        """The reply that an answer stands for."""

    @abstractmethod
    def _gathering(self) -> Gathering:
        """A new one for each stream."""


def _public(value: Any) -> Any:
    """A message or part without the private key that only a ``prepare`` reads, and that an API would refuse."""
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and EPHEMERAL in part for part in content):
        value = {**value, "content": [_public(part) for part in content]}
    return {name: item for name, item in value.items() if name != EPHEMERAL} if EPHEMERAL in value else value


def need(package: str, who: str) -> None:
    """See that a client's package is there, without loading it; say how to get it where it is missing."""
    if find_spec(package) is None:
        raise ConfigError(
            f"{who} needs the package {package}; install it with: pip install 'everlong[{package}]'", key="provider"
        )


_WINDOW_NAMES = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens", "n_ctx")
"""Where servers of different makers list a model's window."""


def listed_window(models: Sequence[Mapping[str, Any]], model: str) -> int | None:
    """The window of a model by such a list, under whichever name; None where it does not say."""
    named = [entry for entry in models if entry.get("id") == model]
    # A server of one model often lists it by its file, and takes any name.
    for entry in named or (models if len(models) == 1 else []):
        meta = entry.get("meta")
        for source in (entry, meta if isinstance(meta, Mapping) else {}):
            for name in _WINDOW_NAMES:
                value = source.get(name)
                if isinstance(value, int) and value > 0:
                    return value
    return None
