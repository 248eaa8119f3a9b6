"""Everlong keeps LLM agents going past the end of their context window.

from everlong import ContextCompressor

engine = ContextCompressor(context_length=128_000)
if engine.should_compress_preflight(messages):
    messages = engine.compress(messages)
"""

# Nothing is loaded before it is asked for: who imports one name, or starts the program, waits for nothing else.
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.caching import (
        PromptCache,
        apply_anthropic_cache_control,
        choose_strategy,
        estimate_messages_tokens_rough,
    )
    from everlong.config import CompressionSettings
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
        AmbiguousName,
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
        TranscriptError,
    )
    from everlong.model import HashChain, Message
    from everlong.store import Branch, Compacted, Compaction, Occasion, Session, Store, Turn, open_store
    from everlong.tokens import MessageCounter, TokenCounter, counter_for

_HOMES = {
    "caching": ["PromptCache", "apply_anthropic_cache_control", "choose_strategy", "estimate_messages_tokens_rough"],
    "config": ["CompressionSettings"],
    "context": [
        "Boundaries",
        "CompactionReport",
        "Complete",
        "CompletionSummarizer",
        "ContextCompressor",
        "ContextEngine",
        "ExplainedLine",
        "Explanation",
        "ExtractiveSummarizer",
        "MendingSummarizer",
        "Quality",
        "Summarizer",
        "SummarizerChain",
        "SummarizerInput",
        "SummaryProgress",
        "SummaryRequest",
        "Verdict",
        "WarmPrefixSummarizer",
        "Weakness",
        "repair_messages",
    ],
    "errors": [
        "AuthenticationFailed",
        "ConfigError",
        "ContextOverflow",
        "EverlongError",
        "MalformedReply",
        "MessageError",
        "NetworkFailure",
        "NotStored",
        "Overloaded",
        "ProviderError",
        "QuotaExhausted",
        "RateLimited",
        "RequestRefused",
        "RequestTooLarge",
        "SchemaMismatch",
        "StoreBusy",
        "StoreDamaged",
        "StoreError",
        "StoreFull",
        "StoreUnavailable",
        "SummarizerError",
        "TargetUnreachable",
        "AmbiguousName",
        "TranscriptError",
    ],
    "model": ["HashChain", "Message"],
    "store": ["Branch", "Compacted", "Compaction", "Occasion", "Session", "Store", "Turn", "open_store"],
    "tokens": ["MessageCounter", "TokenCounter", "counter_for"],
}
_LATER = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AmbiguousName",
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


def __getattr__(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415 - only needed here

    if name in _LATER:
        value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    elif name in _HOMES:  # ``import everlong`` is enough to say ``everlong.context``
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # from now on found without this function
    return value
