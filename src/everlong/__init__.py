"""Everlong keeps LLM agents going past the end of their context window.

from everlong import ContextCompressor

engine = ContextCompressor(context_length=128_000)
if engine.should_compress_preflight(messages):
    messages = engine.compress(messages)
"""

from typing import TYPE_CHECKING, Any

from everlong.context import (
    Boundaries,
    CompactionReport,
    Complete,
    CompletionSummarizer,
    ContextCompressor,
    ContextEngine,
    ExtractiveSummarizer,
    MendingSummarizer,
    Quality,
    Summarizer,
    SummarizerChain,
    SummarizerInput,
    SummaryProgress,
    SummaryRequest,
    WarmPrefixSummarizer,
    Weakness,
)
from everlong.errors import (
    AuthenticationFailed,
    ConfigError,
    ContextOverflow,
    EverlongError,
    MalformedReply,
    MessageError,
    NetworkFailure,
    Overloaded,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    SummarizerError,
    TargetUnreachable,
    TranscriptError,
)
from everlong.model import HashChain, Message
from everlong.tokens import MessageCounter, TokenCounter, counter_for

if TYPE_CHECKING:
    from everlong.config import CompressionSettings

__all__ = [
    "AuthenticationFailed",
    "Boundaries",
    "CompactionReport",
    "Complete",
    "CompletionSummarizer",
    "CompressionSettings",
    "ConfigError",
    "ContextCompressor",
    "ContextEngine",
    "ContextOverflow",
    "EverlongError",
    "ExtractiveSummarizer",
    "HashChain",
    "MalformedReply",
    "MendingSummarizer",
    "Message",
    "MessageCounter",
    "MessageError",
    "NetworkFailure",
    "Overloaded",
    "ProviderError",
    "Quality",
    "QuotaExhausted",
    "RateLimited",
    "RequestRefused",
    "RequestTooLarge",
    "Summarizer",
    "SummarizerChain",
    "SummarizerError",
    "SummarizerInput",
    "SummaryProgress",
    "SummaryRequest",
    "TargetUnreachable",
    "TokenCounter",
    "TranscriptError",
    "WarmPrefixSummarizer",
    "Weakness",
    "counter_for",
]


def __getattr__(name: str) -> Any:
    if name == "CompressionSettings":  # its checks are costly to load, and the defaults do not need them
        from everlong.config import CompressionSettings  # noqa: PLC0415 - see above

        return CompressionSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
