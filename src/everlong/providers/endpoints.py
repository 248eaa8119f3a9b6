"""Names of models, ``provider:model``, and the format, address and key of each provider.

Endpoints of the user's own come from the ``providers`` section of the configuration. Keys come from the usual
environment variables, never from the command line or a file. No error and no log contains a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from everlong.errors import AuthenticationFailed, ConfigError

if TYPE_CHECKING:
    from everlong.config import ProviderSettings

__all__ = [
    "ENDPOINTS",
    "NO_KEY",
    "SMALL",
    "Endpoint",
    "ModelName",
    "endpoint_for",
    "find_key",
    "is_model_file",
    "key_source",
    "parameters_in",
    "parse_model_name",
    "priced_as",
]

SMALL = 1_000_000_000
"""Parameters below which models call no tools reliably and write worse summaries than the built-in one."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider's address, API format and key."""

    name: str
    api: Literal["openai", "anthropic"] = "openai"
    base_url: str | None = None
    """None for the official client's own address, which its environment variable may change."""
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    catalogue: str | None = None
    """The provider's name in the catalogue of prices; None if anything may be served there."""


ENDPOINTS: dict[str, Endpoint] = {
    endpoint.name: endpoint
    for endpoint in (
        Endpoint("anthropic", "anthropic", None, ("ANTHROPIC_API_KEY",), catalogue="anthropic"),
        Endpoint("openai", "openai", None, ("OPENAI_API_KEY",), catalogue="openai"),
        Endpoint(
            "openrouter", "openai", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), catalogue="openrouter"
        ),
        Endpoint("nous", "openai", "https://inference-api.nousresearch.com/v1", ("NOUS_API_KEY",)),
        Endpoint("deepseek", "openai", "https://api.deepseek.com", ("DEEPSEEK_API_KEY",), catalogue="deepseek"),
        Endpoint("groq", "openai", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), catalogue="groq"),
        Endpoint("mistral", "openai", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), catalogue="mistral"),
        Endpoint("xai", "openai", "https://api.x.ai/v1", ("XAI_API_KEY",), catalogue="x-ai"),
        Endpoint(
            "gemini",
            "openai",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            catalogue="google",
        ),
        Endpoint("ollama", "openai", "http://localhost:11434/v1", needs_key=False),
        Endpoint("llamacpp", "openai", "http://localhost:8080/v1", needs_key=False),
        Endpoint("lmstudio", "openai", "http://localhost:1234/v1", needs_key=False),
        Endpoint("vllm", "openai", "http://localhost:8000/v1", needs_key=False),
    )
}

_BARE = (
    (re.compile(r"claude-", re.IGNORECASE), "anthropic"),
    (re.compile(r"(gpt-|chatgpt-|codex-|o\d(-|$))", re.IGNORECASE), "openai"),
    (re.compile(r"[\w.-]+/[\w.:-]+$"), "openrouter"),
)
_PARAMETERS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", re.IGNORECASE)
_MILLIONS_OF_TOKENS = 10
"""Up to this number, an ``m`` in a name means millions of tokens of the window, as in ``claude-…[1m]``."""


def is_model_file(name: str | None) -> bool:
    """Return whether a model is named by its file, which `LocalServer` serves."""
    return name is not None and name.lower().endswith(".gguf")


class ModelName(NamedTuple):
    """A model and who serves it."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model_name(name: str, own: Mapping[str, ProviderSettings] | None = None) -> ModelName:
    """Return the provider and the model that a name means; a bare name must show whose it is."""
    known = {*ENDPOINTS, *(own or {})}
    provider, colon, model = name.strip().partition(":")
    if colon and provider in known:
        if model:
            return ModelName(provider, model)
        raise ConfigError(f"{name!r} names no model; write {provider}:MODEL", key="model")
    for pattern, whose in _BARE:
        if pattern.match(name.strip()):
            return ModelName(whose, name.strip())
    raise ConfigError(
        f"{name!r} does not say who serves it; write PROVIDER:MODEL with one of {', '.join(sorted(known))}, or add an "
        "endpoint of your own (providers.NAME.base_url)",
        key="model",
    )


def priced_as(name: str, own: Mapping[str, ProviderSettings] | None = None) -> tuple[ModelName, Endpoint]:
    """Return the model whose price holds for a name as it was stored, and its endpoint."""
    try:
        parsed = parse_model_name(name, own)
        return parsed, endpoint_for(parsed.provider, own)
    except ConfigError:  # the settings may have prices for a model of an unknown provider
        provider, colon, model = name.partition(":")
        bare = ModelName(provider, model) if colon else ModelName("custom", name)
        return bare, Endpoint(bare.provider)


def parameters_in(model: str) -> int | None:
    """Return the number of parameters in a model's name, as in ``SmolLM2-135M`` or ``qwen3:0.6b``; None without one."""
    said = [(float(number), unit.lower()) for number, unit in _PARAMETERS.findall(model)]
    sizes = [
        number * (1e9 if unit == "b" else 1e6) for number, unit in said if unit == "b" or number > _MILLIONS_OF_TOKENS
    ]
    return round(max(sizes)) if sizes else None


def endpoint_for(provider: str, own: Mapping[str, ProviderSettings] | None = None) -> Endpoint:
    """Return a provider's endpoint, with the user's own settings applied."""
    mine = (own or {}).get(provider)
    known = ENDPOINTS.get(provider)
    if mine is None:
        if known is None:
            names = ", ".join(sorted({*ENDPOINTS, *(own or {})}))
            raise ConfigError(
                f"{provider!r} is not a known provider; use one of {names}, or set providers.{provider}.base_url",
                key="provider",
            )
        return known
    if known is None and mine.base_url is None:
        raise ConfigError(
            f"providers.{provider} has no base_url; set providers.{provider}.base_url to its address",
            key=f"providers.{provider}.base_url",
        )
    variables: tuple[str, ...] = ()
    if mine.key_variable:
        variables = (mine.key_variable,)
    elif known is not None and mine.base_url is None:  # a known key goes to the known address only
        variables = known.key_variables
    base = known or Endpoint(provider)
    return replace(
        base,
        api=mine.api or base.api,
        base_url=mine.base_url or base.base_url,
        key_variables=variables,
        needs_key=bool(variables),
        # At another address, anything may be served under a known name.
        catalogue=None if mine.base_url else base.catalogue,
    )


# -- keys -----------------------------------------------------------------------------------------------------------

NO_KEY = "no-key"
"""Sent to servers that need no key, because the clients insist on one."""


def find_key(endpoint: Endpoint, env: Mapping[str, str] | None = None) -> str:
    """Return the key for an endpoint; raise `AuthenticationFailed` if one is needed and there is none."""
    values = os.environ if env is None else env
    key = next((found for name in endpoint.key_variables if (found := values.get(name, "").strip())), None)
    if key:
        return key
    if not endpoint.needs_key:
        return NO_KEY
    raise AuthenticationFailed(
        f"there is no key for {endpoint.name}; set {endpoint.key_variables[0]}", provider=endpoint.name
    )


def key_source(endpoint: Endpoint, env: Mapping[str, str] | None = None) -> str | None:
    """Return the environment variable that has an endpoint's key; None without one."""
    values = os.environ if env is None else env
    return next((name for name in endpoint.key_variables if values.get(name, "").strip()), None)
