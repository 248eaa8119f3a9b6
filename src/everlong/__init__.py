"""Everlong keeps LLM agents going past the end of their context window.

from everlong import ContextCompressor

engine = ContextCompressor(context_length=128_000)
if engine.should_compress_preflight(messages):
    messages = engine.compress(messages)
"""

from typing import TYPE_CHECKING, Any

from everlong.caching import (
    PromptCache,
    apply_anthropic_cache_control,
    choose_strategy,
    estimate_messages_tokens_rough,
)
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
    ConfigError,
    EverlongError,
    MessageError,
    SummarizerError,
    TargetUnreachable,
    TranscriptError,
)
from everlong.model import HashChain, Message
from everlong.tokens import MessageCounter, TokenCounter, counter_for

if TYPE_CHECKING:
    from everlong.config import CompressionSettings

__all__ = [
    "Boundaries",
    "CompactionReport",
    "Complete",
    "CompletionSummarizer",
    "CompressionSettings",
    "ConfigError",
    "ContextCompressor",
    "ContextEngine",
    "EverlongError",
    "ExtractiveSummarizer",
    "HashChain",
    "MendingSummarizer",
    "Message",
    "MessageCounter",
    "MessageError",
    "PromptCache",
    "Quality",
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
    "apply_anthropic_cache_control",
    "choose_strategy",
    "counter_for",
    "estimate_messages_tokens_rough",
]


def __getattr__(name: str) -> Any:
    if name == "CompressionSettings":  # its checks are costly to load, and the defaults do not need them
        from everlong.config import CompressionSettings  # noqa: PLC0415 - see above

        return CompressionSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
