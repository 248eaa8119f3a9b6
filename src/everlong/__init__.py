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
    ExplainedLine,
    Explanation,
    ExtractiveSummarizer,
    MendingSummarizer,
    Quality,
    Summarizer,
    SummarizerChain,
    SummarizerInput,
    SummaryProgress,
    SummaryRequest,
    Verdict,
    WarmPrefixSummarizer,
    Weakness,
    repair_messages,
)
from everlong.errors import (
    AuthenticationFailed,
    ConfigError,
    ContextOverflow,
    EverlongError,
    MalformedReply,
    MessageError,
    NetworkFailure,
    NotStored,
    Overloaded,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnavailable,
    SummarizerError,
    TargetUnreachable,
    TitleTaken,
    TranscriptError,
)
from everlong.model import HashChain, Message
from everlong.tokens import MessageCounter, TokenCounter, counter_for

if TYPE_CHECKING:
    from everlong.config import CompressionSettings
    from everlong.store import Branch, Compacted, Compaction, Occasion, Session, Store, Turn, open_store

__all__ = [
    "AuthenticationFailed",
    "Boundaries",
    "Branch",
    "Compacted",
    "Compaction",
    "CompactionReport",
    "Complete",
    "CompletionSummarizer",
    "CompressionSettings",
    "ConfigError",
    "ContextCompressor",
    "ContextEngine",
    "ContextOverflow",
    "EverlongError",
    "ExplainedLine",
    "Explanation",
    "ExtractiveSummarizer",
    "HashChain",
    "MalformedReply",
    "MendingSummarizer",
    "Message",
    "MessageCounter",
    "MessageError",
    "NetworkFailure",
    "NotStored",
    "Occasion",
    "Overloaded",
    "PromptCache",
    "ProviderError",
    "Quality",
    "QuotaExhausted",
    "RateLimited",
    "RequestRefused",
    "RequestTooLarge",
    "SchemaMismatch",
    "Session",
    "Store",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "Summarizer",
    "SummarizerChain",
    "SummarizerError",
    "SummarizerInput",
    "SummaryProgress",
    "SummaryRequest",
    "TargetUnreachable",
    "TitleTaken",
    "TokenCounter",
    "TranscriptError",
    "Turn",
    "Verdict",
    "WarmPrefixSummarizer",
    "Weakness",
    "apply_anthropic_cache_control",
    "choose_strategy",
    "counter_for",
    "estimate_messages_tokens_rough",
    "open_store",
    "repair_messages",
]


_LATER = {
    "CompressionSettings": "everlong.config",  # its checks are costly to load, and the defaults do not need them
    **dict.fromkeys(
        ("Branch", "Compacted", "Compaction", "Occasion", "Session", "Store", "Turn", "open_store"), "everlong.store"
    ),
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module  # noqa: PLC0415 - only needed here

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
