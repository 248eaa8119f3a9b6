"""Connections to models: from a name to a provider with its endpoint, key, client, retries, window and prices."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from everlong.errors import ProviderError
from everlong.model import Message
from everlong.providers.base import CallOptions, Event, Provider, Reply, Usage
from everlong.providers.catalogue import Catalogue, ModelInfo
from everlong.providers.endpoints import (
    ENDPOINTS,
    NO_KEY,
    SMALL,
    Endpoint,
    ModelName,
    endpoint_for,
    find_key,
    parameters_in,
    parse_model_name,
)

if TYPE_CHECKING:
    from everlong.config import ProviderSettings, Settings

__all__ = ["Connection", "RetryPolicy", "Retrying", "connect"]

_CLAUDE = re.compile(r"claude", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts and the waits between them.

    Waits grow and are scattered, so that many clients do not come back at the same moment; the API's ``retry-after`` is
    obeyed.
    """

    attempts: int = 4
    """Calls in all, the first included."""
    first_delay: float = 0.5
    longest_delay: float = 20.0
    """The longest wait without a ``retry-after``; each is about twice the one before."""
    patience: float = 120.0
    """The longest ``retry-after`` in seconds that is waited for; a longer one raises the error at once."""

    def delay(self, attempt: int, error: ProviderError, dice: Callable[[], float]) -> float | None:
        """Return the seconds to wait after an attempt; None to give up."""
        if not error.may_retry or attempt >= self.attempts:
            return None
        scattered: float = min(self.longest_delay, self.first_delay * 2 ** (attempt - 1)) * (0.5 + dice() / 2)
        if error.retry_after is None:
            return scattered
        if error.retry_after > self.patience:
            return None
        # A little more than asked, so that clients that were told the same moment do not all come back at it.
        return error.retry_after + min(scattered, 0.25 * error.retry_after)


class Retrying:
    """A provider that tries again. A stream is tried again only until its first event."""

    def __init__(
        self,
        inner: Provider,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.inner = inner
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._dice = dice

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.inner.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self.inner.model

    @property
    def takes_markers(self) -> bool:
        """True if cache markers reach the model's cache."""
        return self.inner.takes_markers

    def complete(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Reply:
        """Return the model's answer, after as many attempts as the policy allows."""
        attempt = 1
        while True:
            try:
                return self.inner.complete(messages, **call)
            except ProviderError as error:
                self._wait(attempt, error)
            attempt += 1

    def stream(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Iterator[Event]:
        """Yield the model's answer as it comes; a failure after the first event is raised, not tried again."""
        attempt = 1
        while True:
            has_begun = False
            try:
                for event in self.inner.stream(messages, **call):
                    has_begun = True
                    yield event
            except ProviderError as error:
                if has_begun:
                    raise
                self._wait(attempt, error)
            else:
                return
            attempt += 1

    def _wait(self, attempt: int, error: ProviderError) -> None:
        delay = self._policy.delay(attempt, error, self._dice)
        if delay is None:
            raise error
        self._sleep(delay)

    def served_context_length(self) -> int | None:
        """Return the model's window by the server's own account."""
        return self.inner.served_context_length()

    def load(self) -> None:
        """Load what the first call would load, if anything."""
        load = getattr(self.inner, "load", None)
        if load is not None:
            load()

    def close(self) -> None:
        """Close connections."""
        self.inner.close()


class Connection(Retrying):
    """A provider with retries that knows its own name, endpoint, window and prices."""

    def __init__(
        self,
        inner: Provider,
        model_name: ModelName,
        endpoint: Endpoint,
        catalogue: Catalogue,
        policy: RetryPolicy | None = None,
    ) -> None:
        super().__init__(inner, policy)
        self.model_name = model_name
        self.endpoint = endpoint
        self.catalogue = catalogue
        self.parameters = parameters_in(model_name.model)
        """The number of parameters in the model's name, if any; `LocalServer`'s callers set the number of the file."""

    @property
    def info(self) -> ModelInfo:
        """Window and prices of the model; may ask its server, once."""
        return self.catalogue.info(self.model_name, self.endpoint, self.served_context_length)

    @property
    def place(self) -> str:
        """The model and the address where it is served, as a store remembers its window."""
        return f"{self.model_name} {self.endpoint.base_url or ''}".strip()

    @property
    def is_small(self) -> bool:
        """True if the model is known to be too small to write summaries."""
        return self.parameters is not None and self.parameters < SMALL

    def cost(self, usage: Usage) -> float | None:
        """Return the US dollars that a call costs, as `everlong usage` has it; None if prices are not known."""
        return self.catalogue.cost(str(self.model_name), usage)


def connect(  # noqa: PLR0913 - each is one thing a caller may want otherwise
    name: str,
    settings: Settings | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    catalogue: Catalogue | None = None,
    policy: RetryPolicy | None = None,
    timeout: float = 600.0,
    env: Mapping[str, str] | None = None,
) -> Connection:
    """Return the model of a name (``provider:model``), ready to be called.

    Args:
        name: ``anthropic:claude-…``, ``openai:gpt-…``, ``openrouter:vendor/model``, or with an endpoint of your own.
        settings: the configuration, for ``providers`` and ``models``.
        base_url: another address for the provider; with a bare model name, an OpenAI-compatible endpoint.
        api_key: the key, if it does not come from the environment.
        catalogue: windows and prices of models, to share them between connections.
        policy: how often and how patiently calls are tried again.
        timeout: seconds of silence after which a call has failed.
        env: environment variables, instead of the process's own.

    Raises:
        ConfigError: the name cannot be understood, or the client's package is not installed.
        AuthenticationFailed: a key is needed and there is none.
    """
    own = settings.providers if settings is not None else {}
    if catalogue is None:
        catalogue = Catalogue(settings.models if settings is not None else None, own)
    endpoint, parsed = _resolved(name, base_url, own)
    key = api_key or find_key(endpoint, env)
    provider = _provider(endpoint, parsed.model, key, timeout)
    return Connection(provider, parsed, endpoint, catalogue, policy)


def _resolved(name: str, base_url: str | None, own: Mapping[str, ProviderSettings]) -> tuple[Endpoint, ModelName]:
    provider = name.partition(":")[0]
    if base_url is None or provider in {*ENDPOINTS, *own}:
        parsed = parse_model_name(name, own)
        known = endpoint_for(parsed.provider, own)
    else:
        parsed, known = ModelName("custom", name), Endpoint("custom")
    if base_url is None:
        return known, parsed
    # A key goes only to its own address: who names another one must name its key, too.
    return replace(known, base_url=base_url, catalogue=None, key_variables=(), needs_key=False), parsed


def _provider(endpoint: Endpoint, model: str, key: str, timeout: float) -> Provider:
    if endpoint.api == "anthropic":
        from everlong.providers.anthropic_api import AnthropicProvider  # noqa: PLC0415 - only what is used is loaded

        return AnthropicProvider(model, api_key=key, base_url=endpoint.base_url, name=endpoint.name, timeout=timeout)
    from everlong.providers.openai_api import OpenAIProvider  # noqa: PLC0415 - as above

    return OpenAIProvider(
        model,
        api_key=key or NO_KEY,
        base_url=endpoint.base_url,
        name=endpoint.name,
        strict=endpoint.name == "openai",
        takes_markers=endpoint.name == "openrouter" and bool(_CLAUDE.search(model)),
        timeout=timeout,
    )
