"""The base class of `AnthropicProvider` and `OpenAIProvider`: body, call, stream and failures around a client.

The subclasses know the wire formats. `connection` tries again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Unpack
from weakref import finalize

from everlong.errors import ConfigError, MalformedReply
from everlong.extras import install_command
from everlong.model import EPHEMERAL, Message
from everlong.providers.base import CallOptions, Done, Event, Reply, UsageReported
from everlong.providers.failures import classify

__all__ = ["ClientProvider", "StreamAssembler", "listed_window", "need", "official_client"]

_SPOKEN = ("system", "messages")
_HERE = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@lru_cache(maxsize=64)
def official_client(name: Literal["Anthropic", "OpenAI"], key: str, base_url: str | None, timeout: float) -> Any:
    """Return an API's official client; it follows no redirect, and no proxy hears what stays on this machine.

    The headers that the environment names, often keys, go to no address but the client's own.
    """
    library = import_module(name.lower())  # optional, and slow to load
    web = library.DefaultHttpxClient(timeout=timeout, follow_redirects=False, mounts=dict.fromkeys(_HERE))
    client = getattr(library, name)(api_key=key, base_url=base_url, max_retries=0, timeout=timeout, http_client=web)
    finalize(client, web.close)
    if base_url is not None:
        absent = library.Omit()
        client._custom_headers = {"OpenAI-Organization": absent, "OpenAI-Project": absent}  # noqa: SLF001
    return client


class StreamAssembler(ABC):
    """Assembles an answer from the pieces of a stream."""

    weight = 0
    """The weight of what it has kept so far, by `weigh`."""

    @abstractmethod
    def take(self, piece: Mapping[str, Any]) -> Iterator[Event]:
        """Add a piece; yield its new events."""

    def end(self) -> Iterator[Event]:
        """Yield the events that need all pieces."""
        return iter(())

    @abstractmethod
    def whole(self) -> dict[str, Any] | None:
        """Return the answer; None if the stream ended too early."""

    def so_far(self) -> dict[str, Any] | None:
        """Return the part of an incomplete answer that has come; None if nothing readable has."""
        return None


class ClientProvider(ABC):
    """One model behind an official client."""

    _required: ClassVar[tuple[str, ...]]
    """The fields that the client takes as separate arguments."""
    _streaming: ClassVar[dict[str, Any]] = {}
    """Extra fields of the body of a streamed request."""

    def __init__(self, model: str, name: str, take_client: Callable[[], Any], assembler: type[StreamAssembler]) -> None:
        """Prepare a provider.

        Args:
            model: the model's name.
            name: the provider's name.
            take_client: returns its client, which providers of one endpoint share: a client reads every certificate of
                the system, and hundreds of agents of one process would each pay for that again.
            assembler: assembles the answer of one stream.
        """
        self.name = name
        self.model = model
        self._client = take_client
        self._assembler = assembler

    def load(self) -> None:
        """Load the client's package, which takes a while, so that the first call does not wait for it."""
        self._client()

    @property
    def address(self) -> str:
        """The address that requests go to."""
        return str(self._client().base_url)

    def complete(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Reply:
        """Return the model's answer."""
        body = self._prepare_body(messages, call)
        with self._failures():
            answer = self._send(body, call, stream=False)
            whole = answer.to_dict(mode="json") if hasattr(answer, "to_dict") else None
        return self._reply(whole)

    def stream(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Iterator[Event]:
        """Yield the model's answer as it comes."""
        body = self._prepare_body(messages, call)
        answer = self._assembler()
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

    def close(self) -> None:  # noqa: B027 - there is nothing to close
        """Do nothing: other providers may use the client, whose idle connections end by themselves."""

    def _prepare_body(self, messages: Sequence[Message], call: CallOptions) -> dict[str, Any]:
        """Return the body to send. Runs ``prepare`` outside of the call: its exceptions are no failures of the API."""
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
        """Raise every failure of the API as an error of this package."""
        try:
            yield
        except Exception as error:
            raise classify(error, self.name, self.model) from error

    def _malformed(self, what: str) -> MalformedReply:
        return MalformedReply(
            f"{self.name}:{self.model} sent an answer that cannot be read: {what}", provider=self.name, model=self.model
        )

    # -- for each API's own class ------------------------------------------------------------------------------------

    @abstractmethod
    def _body(self, messages: Sequence[Message], call: CallOptions) -> dict[str, Any]:
        """Return the body of a request."""

    @property
    @abstractmethod
    def _create(self) -> Any:
        """The client's function that sends a body."""

    @abstractmethod
    def _reply(self, whole: Any) -> Reply:
        """Return the reply that an answer stands for."""


def _public(value: Any) -> Any:
    """Return a message or part without the private key that only ``prepare`` reads and an API would refuse."""
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and EPHEMERAL in part for part in content):
        value = {**value, "content": [_public(part) for part in content]}
    return {name: item for name, item in value.items() if name != EPHEMERAL} if EPHEMERAL in value else value


def need(package: str, who: str) -> None:
    """Raise `ConfigError` if a client's package is missing; do not load it."""
    if find_spec(package) is None:
        raise ConfigError(
            f"{who} needs the package {package}; install it with: {install_command(package)}", key="provider"
        )


_WINDOW_NAMES = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens", "n_ctx")
"""The field with a model's window, by different servers."""


def listed_window(models: Sequence[Mapping[str, Any]], model: str) -> int | None:
    """Return a model's window by a server's list of models; None if the list does not name it."""
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
