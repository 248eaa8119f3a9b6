"""Models behind APIs: Anthropic and OpenAI through their official clients, and all who speak their formats.

Nothing is imported until it is used. This package knows neither stores nor agents; errors are those of
`everlong.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.providers.anthropic_api import AnthropicProvider
    from everlong.providers.auxiliary import ProviderSummarizer, completer, summarizer_for
    from everlong.providers.base import (
        CallOptions,
        Done,
        Event,
        Provider,
        Reply,
        TextDelta,
        ThinkingDelta,
        ToolCallMade,
        Usage,
        UsageReported,
    )
    from everlong.providers.catalogue import Catalogue, ModelInfo, ModelPrices
    from everlong.providers.connection import Connection, connect
    from everlong.providers.names import ModelName, parse_model_name
    from everlong.providers.openai_api import OpenAIProvider
    from everlong.providers.retry import Retrying, RetryPolicy

__all__ = [
    "AnthropicProvider",
    "CallOptions",
    "Catalogue",
    "Connection",
    "Done",
    "Event",
    "ModelInfo",
    "ModelName",
    "ModelPrices",
    "OpenAIProvider",
    "Provider",
    "ProviderSummarizer",
    "Reply",
    "RetryPolicy",
    "Retrying",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallMade",
    "Usage",
    "UsageReported",
    "completer",
    "connect",
    "parse_model_name",
    "summarizer_for",
]

_HOMES = {
    "anthropic_api": ["AnthropicProvider"],
    "openai_api": ["OpenAIProvider"],
    "auxiliary": ["ProviderSummarizer", "completer", "summarizer_for"],
    "catalogue": ["Catalogue", "ModelInfo", "ModelPrices"],
    "connection": ["Connection", "connect"],
    "names": ["ModelName", "parse_model_name"],
    "retry": ["RetryPolicy", "Retrying"],
}
_LATER = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    value = getattr(import_module(f"{__name__}.{_LATER.get(name, 'base')}"), name)
    globals()[name] = value  # from now on found without this function
    return value
