"""Connections to models: from a name to a provider with its endpoint, key, client, retries, window and prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from everlong.errors import ProviderError
from everlong.providers.base import Provider, Usage
from everlong.providers.catalogue import Catalogue, ModelInfo
from everlong.providers.endpoints import (
    ENDPOINTS,
    SMALL,
    Endpoint,
    ModelName,
    endpoint_for,
    parameters_in,
    parse_model_name,
)
from everlong.providers.keys import NO_KEY, find_key
from everlong.providers.retry import Retrying, RetryPolicy

if TYPE_CHECKING:
    from everlong.config import ProviderSettings, Settings

__all__ = ["Connection", "connect"]

_CLAUDE = re.compile(r"claude", re.IGNORECASE)


class Connection(Retrying):
    """A provider with retries that knows its own name, endpoint, window and prices."""

    def __init__(
        self,
        inner: Provider,
        model_name: ModelName,
        endpoint: Endpoint,
        catalogue: Catalogue,
        policy: RetryPolicy | None = None,
        on_retry: Callable[[ProviderError, int, float], None] | None = None,
    ) -> None:
        super().__init__(inner, policy, on_retry=on_retry)
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
    def is_small(self) -> bool:
        """True if the model is known to be too small to write summaries."""
        return self.parameters is not None and self.parameters < SMALL

    def cost(self, usage: Usage) -> float | None:
        """Return the US dollars that a call costs; None if prices are not known."""
        return self.catalogue.cost(self.model_name, self.endpoint, usage)


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
    on_retry: Callable[[ProviderError, int, float], None] | None = None,
) -> Connection:
    """Return the model of a name (``provider:model``), ready to be called.

    Args:
        name: ``anthropic:claude-…``, ``openai:gpt-…``, ``openrouter:vendor/model``, or with an endpoint of your own.
        settings: the configuration, for ``providers`` and ``models``.
        base_url: another address for the provider; with a bare model name, an OpenAI-compatible endpoint.
        api_key: the key, if it does not come from the environment or the keyring.
        catalogue: windows and prices of models, to share them between connections.
        policy: how often and how patiently calls are tried again.
        timeout: seconds of silence after which a call has failed.
        env: environment variables, instead of the process's own.
        on_retry: called before each retry with the error, the number of the attempt and the wait.

    Raises:
        ConfigError: the name cannot be understood, or the client's package is not installed.
        AuthenticationFailed: a key is needed and there is none.
    """
    own = settings.providers if settings is not None else {}
    if catalogue is None:
        catalogue = Catalogue(settings.models if settings is not None else None)
    endpoint, parsed = _resolved(name, base_url, own)
    key = api_key or find_key(endpoint, env)
    return Connection(_provider(endpoint, parsed.model, key, timeout), parsed, endpoint, catalogue, policy, on_retry)


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
    return replace(known, base_url=base_url, catalogue=None, key_variables=(), needs_key=False, keyring=False), parsed


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
