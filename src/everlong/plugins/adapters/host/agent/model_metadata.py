"""Windows of models and rough token counts, by the names that engines know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everlong.caching import estimate_messages_tokens_rough
from everlong.errors import ConfigError
from everlong.plugins.adapters.host_state import current_host
from everlong.tokens.estimate import CHARS_PER_TOKEN, rough_tokens

__all__ = [
    "CHARS_PER_TOKEN",
    "DEFAULT_FALLBACK_CONTEXT",
    "MINIMUM_CONTEXT_LENGTH",
    "estimate_messages_tokens_rough",
    "estimate_request_tokens_rough",
    "estimate_tokens_rough",
    "get_model_context_length",
]

MINIMUM_CONTEXT_LENGTH = 64_000
DEFAULT_FALLBACK_CONTEXT = 200_000


def estimate_tokens_rough(text: str | None) -> int:
    """Estimate the tokens of a text: four characters each, rounded up."""
    return rough_tokens(len(text)) if text else 0


def estimate_request_tokens_rough(
    messages: Sequence[dict[str, Any]], *, system_prompt: str = "", tools: Sequence[dict[str, Any]] | None = None
) -> int:
    """Estimate the tokens of a whole request: system prompt, messages and tools."""
    more = estimate_tokens_rough(system_prompt) + (estimate_tokens_rough(str(list(tools))) if tools else 0)
    return estimate_messages_tokens_rough(messages) + more


def get_model_context_length(
    model: str,
    base_url: str = "",
    api_key: str = "",
    config_context_length: int | None = None,
    provider: str = "",
    **ignored: Any,
) -> int:
    """Return a model's window: the given one, else that of the settings or the catalogue, else a usual one."""
    del base_url, api_key, ignored
    if config_context_length:
        return int(config_context_length)
    from everlong.providers.catalogue import Catalogue  # noqa: PLC0415 - only where somebody asks
    from everlong.providers.endpoints import endpoint_for, parse_model_name  # noqa: PLC0415

    host = current_host()
    own = host.settings.providers
    try:
        name = parse_model_name(f"{provider}:{model}" if provider else model, own)
        return Catalogue(host.settings.models).info(name, endpoint_for(name.provider, own)).context_length
    except ConfigError:
        main = host.main()
        return main.info.context_length if main is not None else DEFAULT_FALLBACK_CONTEXT
