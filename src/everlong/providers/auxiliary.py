"""Models that write summaries: those that ``auxiliary.compression`` names or that are picked, then the main one.

Puts providers behind the summarizers of `everlong.context`. If all of them fail, the compressor itself falls back to
the built-in summary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, Unpack

from everlong.context import (
    Complete,
    CompletionSummarizer,
    Summarizer,
    SummarizerChain,
    SummaryRequest,
    WarmPrefixSummarizer,
)
from everlong.context.model_summary import LEAST_WINDOW
from everlong.errors import ConfigError, ContextOverflow, ProviderError, SummarizerError
from everlong.model import Message
from everlong.providers.base import CallOptions, Provider, Reply
from everlong.providers.catalogue import Catalogue, Rates
from everlong.providers.connection import Connection, connect
from everlong.providers.endpoints import ModelName, endpoint_for, key_source, parse_model_name

if TYPE_CHECKING:
    from everlong.config import Settings

__all__ = [
    "CHEAPER",
    "USUAL",
    "AskModel",
    "ProviderSummarizer",
    "ask_plainly",
    "auxiliary_connection",
    "completer",
    "summarizer_for",
]

CHEAPER: dict[str, str] = {
    "anthropic": "claude-haiku-5-5",
    "openai": "gpt-6-luna",
    "openrouter": "anthropic/claude-haiku-5.5",
}
"""The model that ``auto`` picks of each provider, in the order in which providers are tried. As of November 2026."""

USUAL: dict[str, str] = {**CHEAPER, "nous": "Hermes-4-70B"}
"""The model of a provider that the settings name without one. ``auto`` picks only from `CHEAPER`."""


AskModel: TypeAlias = Callable[[Provider, Sequence[Message], CallOptions], Reply]
"""A function that asks a provider; callers that count, watch or stop calls pass their own."""


def ask_plainly(provider: Provider, messages: Sequence[Message], call: CallOptions) -> Reply:
    """Ask a provider, and do nothing besides."""
    return provider.complete(messages, **call)


def completer(provider: Provider, ask: AskModel = ask_plainly, **call: Unpack[CallOptions]) -> Complete:
    """Return a function that completes a chat with a provider, in the form that summarizers take.

    For `WarmPrefixSummarizer` pass the arguments of the conversation's own calls (``tools``, ``options``,
    ``prepare``), or its cache is cold.
    """

    def complete(messages: Sequence[Message], max_tokens: int) -> str:
        reply = ask(provider, messages, {**call, "max_tokens": max_tokens})
        if reply.stop == "refusal":
            raise SummarizerError(f"{provider.name}:{provider.model} declined to write the summary")
        return reply.text

    return complete


class ProviderSummarizer:
    """A summarizer that sends a transcript to a model; it learns the model's real window from overflow errors."""

    def __init__(
        self,
        connection: Connection,
        ask: AskModel = ask_plainly,
    ) -> None:
        self._connection = connection
        self._ask = ask
        self._made: tuple[int, CompletionSummarizer] | None = None

    @property
    def name(self) -> str:
        """The summarizer's name in reports."""
        return str(self._connection.model_name)

    def summarize(self, request: SummaryRequest) -> str:
        """Return the model's summary."""
        return self._summarizer().summarize(request)

    def complete(self, messages: list[Message], max_tokens: int) -> str:
        """Return the model's answer to any prompt; what a refusal says of the window is learned."""
        try:
            return completer(self._connection, self._ask)(messages, max_tokens)
        except ContextOverflow as error:
            self._connection.catalogue.learn(self._connection.model_name, error.limit)
            raise

    def _summarizer(self) -> CompletionSummarizer:
        info = self._connection.info
        window = max(LEAST_WINDOW, min(info.context_length, info.price_step or info.context_length))
        if self._made is None or self._made[0] != window:
            made = CompletionSummarizer(self.complete, window=window, name=self.name)
            self._made = (window, made)
        return self._made[1]


def summarizer_for(
    settings: Settings,
    main: Connection | None = None,
    *,
    main_complete: Complete | None = None,
    catalogue: Catalogue | None = None,
    env: Mapping[str, str] | None = None,
    ask: AskModel = ask_plainly,
) -> Summarizer | None:
    """Return the summarizer that the settings ask for: the auxiliary models, then the main one; None without either.

    A main model of fewer than a billion parameters is not asked. ``main_complete`` sends what the conversation itself
    sends (same tools and settings), so that the main model reads from its cache; see `completer`. All models are asked
    through ``ask``.

    Raises:
        ConfigError: the settings name a provider or a model that cannot be found.
        AuthenticationFailed: the provider that the settings name has no key.
    """
    catalogue = catalogue or (main.catalogue if main is not None else Catalogue(settings.models, settings.providers))
    chosen, cooldown = settings.auxiliary.compression, settings.compression.failure_cooldown_seconds
    members: list[Summarizer] = []
    if chosen.models:
        named = [_connect_named(name, settings, main, catalogue, env) for name in chosen.names]
        asked = [ProviderSummarizer(connection, ask) for connection in named]
        # Only the named models compete for the best summary; the main model is asked if all of them fail.
        members = [SummarizerChain(asked, "best", cooldown_seconds=cooldown)] if chosen.choose == "best" else [*asked]
    else:
        picked = auxiliary_connection(settings, main, catalogue=catalogue, env=env)
        members = [] if picked is None else [ProviderSummarizer(picked, ask)]
    if main is not None and not main.is_small:  # a small model's summary is worse than the built-in one
        warm = WarmPrefixSummarizer(
            main_complete or completer(main, ask), window=main.info.context_length, name=str(main.model_name)
        )
        members += [warm, ProviderSummarizer(main, ask)]
    return SummarizerChain(members, cooldown_seconds=cooldown) if members else None


def auxiliary_connection(
    settings: Settings,
    main: Connection | None = None,
    *,
    catalogue: Catalogue | None = None,
    env: Mapping[str, str] | None = None,
) -> Connection | None:
    """Return the model that ``auxiliary.compression`` names or that is picked; None for the main one.

    Raises:
        ConfigError: the settings name a provider or a model that cannot be found.
        AuthenticationFailed: the provider that the settings name has no key.
    """
    chosen = settings.auxiliary.compression
    catalogue = catalogue or (main.catalogue if main is not None else Catalogue(settings.models, settings.providers))
    if chosen.models:
        return _connect_named(chosen.names[0], settings, main, catalogue, env)
    if chosen.base_url is not None:
        only = chosen.model or _only_model(chosen.base_url)
        return _connect_named(only, settings, main, catalogue, env)
    if chosen.provider == "auto":
        return _connect_cheaper(settings, main, catalogue, env)
    if chosen.provider == "main":
        return None
    model = chosen.model or USUAL.get(chosen.provider)
    if model is None:
        endpoint_for(chosen.provider, settings.providers)
        raise ConfigError(
            f"auxiliary.compression.model is null, and there is no usual model of {chosen.provider}; name one",
            key="auxiliary.compression.model",
        )
    return connect(str(ModelName(chosen.provider, model)), settings, catalogue=catalogue, env=env)


def _connect_named(
    name: str, settings: Settings, main: Connection | None, catalogue: Catalogue, env: Mapping[str, str] | None
) -> Connection:
    """Connect to a model: at the address or provider that the settings name, else by the model's own name."""
    chosen = settings.auxiliary.compression
    if chosen.provider not in {"auto", "main"}:
        name = str(ModelName(chosen.provider, name))
    elif chosen.base_url is None:
        name = _full_name(name, settings, main)
    return connect(name, settings, base_url=chosen.base_url, catalogue=catalogue, env=env)


def _only_model(base_url: str) -> str:
    from everlong.providers.openai_api import OpenAIProvider  # noqa: PLC0415 - only what is used is loaded

    provider = OpenAIProvider("", api_key="no-key", base_url=base_url, name="custom", timeout=10.0)
    try:
        names = [str(entry.get("id")) for entry in provider.served_models()]
    except ProviderError as error:
        raise ConfigError(
            f"auxiliary.compression.model is null, and {base_url} does not list its models ({error}); name one",
            key="auxiliary.compression.model",
        ) from error
    finally:
        provider.close()
    if len(names) != 1:
        raise ConfigError(
            f"auxiliary.compression.model is null, and {base_url} serves {', '.join(names) or 'no model'}; name one",
            key="auxiliary.compression.model",
        )
    return names[0]


def _connect_cheaper(
    settings: Settings, main: Connection | None, catalogue: Catalogue, env: Mapping[str, str] | None
) -> Connection | None:
    """Connect to a cheaper model of a provider whose key exists, the main provider first; None without one."""
    chosen = settings.auxiliary.compression
    if chosen.model is not None:
        return connect(_full_name(chosen.model, settings, main), settings, catalogue=catalogue, env=env)
    if main is not None and main.info.prices is None:
        return None  # none is known to be cheaper
    order = list(CHEAPER)
    if main is not None and main.endpoint.name in order:
        order.sort(key=lambda name: name != main.endpoint.name)
    for provider in order:
        endpoint = endpoint_for(provider, settings.providers)
        name = ModelName(provider, CHEAPER[provider])
        if main is not None and not _is_cheaper(catalogue.info(name, endpoint).prices, main.info.prices):
            continue
        if key_source(endpoint, env) is None:
            continue
        return connect(str(name), settings, catalogue=catalogue, env=env)
    return None


def _full_name(model: str, settings: Settings, main: Connection | None) -> str:
    """Return a model's name with its provider; a bare name that shows none belongs to the main provider."""
    if main is None:
        return model
    try:
        return str(parse_model_name(model, settings.providers))
    except ConfigError:
        return str(ModelName(main.endpoint.name, model))


def _is_cheaper(one: Rates | None, other: Rates | None) -> bool:
    """Return whether a model is known to be cheaper than another."""
    if one is None or other is None:
        return False
    return one.input + one.output / 5 < other.input + other.output / 5
