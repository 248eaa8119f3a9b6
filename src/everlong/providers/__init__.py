"""Models behind APIs: Anthropic and OpenAI through their official clients, and all who speak their formats.

Clients are imported when first used. Knows neither stores nor agents.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.providers.anthropic_api import AnthropicProvider as AnthropicProvider
    from everlong.providers.auxiliary import (
        ProviderSummarizer as ProviderSummarizer,
        completer as completer,
        summarizer_for as summarizer_for,
    )
    from everlong.providers.base import (
        CallOptions as CallOptions,
        Done as Done,
        Event as Event,
        Provider as Provider,
        Reply as Reply,
        TextDelta as TextDelta,
        ThinkingDelta as ThinkingDelta,
        ToolCallMade as ToolCallMade,
        Usage as Usage,
        UsageReported as UsageReported,
    )
    from everlong.providers.catalogue import Catalogue as Catalogue, ModelInfo as ModelInfo, Rates as Rates
    from everlong.providers.connection import (
        Connection as Connection,
        Retrying as Retrying,
        RetryPolicy as RetryPolicy,
        connect as connect,
    )
    from everlong.providers.endpoints import ModelName as ModelName, parse_model_name as parse_model_name
    from everlong.providers.openai_api import OpenAIProvider as OpenAIProvider

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "anthropic_api": "AnthropicProvider",
        "auxiliary": "ProviderSummarizer completer summarizer_for",
        "base": "CallOptions Done Event Provider Reply TextDelta ThinkingDelta ToolCallMade Usage UsageReported",
        "catalogue": "Catalogue ModelInfo Rates",
        "connection": "Connection RetryPolicy Retrying connect",
        "endpoints": "ModelName parse_model_name",
        "openai_api": "OpenAIProvider",
    },
)
