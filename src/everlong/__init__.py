"""Everlong keeps LLM agents going past the end of their context window.

from everlong import ContextCompressor

engine = ContextCompressor(context_length=128_000)
if engine.should_compress_preflight(messages):
    messages = engine.compress(messages)
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.caching import (
        PromptCache as PromptCache,
        apply_anthropic_cache_control as apply_anthropic_cache_control,
        choose_strategy as choose_strategy,
        estimate_messages_tokens_rough as estimate_messages_tokens_rough,
    )
    from everlong.config import CompressionSettings as CompressionSettings
    from everlong.context import (
        Boundaries as Boundaries,
        CompactionReport as CompactionReport,
        Complete as Complete,
        CompletionSummarizer as CompletionSummarizer,
        ContextCompressor as ContextCompressor,
        ContextEngine as ContextEngine,
        ExtractiveSummarizer as ExtractiveSummarizer,
        Quality as Quality,
        Summarizer as Summarizer,
        SummarizerChain as SummarizerChain,
        SummarizerInput as SummarizerInput,
        SummaryRequest as SummaryRequest,
        WarmPrefixSummarizer as WarmPrefixSummarizer,
        repair_messages as repair_messages,
    )
    from everlong.errors import (
        AmbiguousName as AmbiguousName,
        AuthenticationFailed as AuthenticationFailed,
        ConfigError as ConfigError,
        ContextOverflow as ContextOverflow,
        EverlongError as EverlongError,
        MalformedReply as MalformedReply,
        MessageError as MessageError,
        NetworkFailure as NetworkFailure,
        NotStored as NotStored,
        Overloaded as Overloaded,
        ProviderError as ProviderError,
        QuotaExhausted as QuotaExhausted,
        RateLimited as RateLimited,
        RequestRefused as RequestRefused,
        RequestTooLarge as RequestTooLarge,
        SchemaMismatch as SchemaMismatch,
        StoreBusy as StoreBusy,
        StoreDamaged as StoreDamaged,
        StoreError as StoreError,
        StoreFull as StoreFull,
        StoreUnavailable as StoreUnavailable,
        SummarizerError as SummarizerError,
        TargetUnreachable as TargetUnreachable,
        TranscriptError as TranscriptError,
    )
    from everlong.integrations import wrap_client as wrap_client
    from everlong.lossless import LosslessEngine as LosslessEngine
    from everlong.model import HashChain as HashChain, Message as Message
    from everlong.store import (
        Branch as Branch,
        Compacted as Compacted,
        Compaction as Compaction,
        Occasion as Occasion,
        Session as Session,
        Store as Store,
        Turn as Turn,
        open_store as open_store,
    )
    from everlong.tokens import (
        MessageCounter as MessageCounter,
        TokenCounter as TokenCounter,
        counter_for as counter_for,
    )

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "caching": "PromptCache apply_anthropic_cache_control choose_strategy estimate_messages_tokens_rough",
        "config": "CompressionSettings",
        "context": (
            "Boundaries CompactionReport Complete CompletionSummarizer ContextCompressor ContextEngine "
            "ExtractiveSummarizer Quality Summarizer SummarizerChain "
            "SummarizerInput SummaryRequest WarmPrefixSummarizer repair_messages"
        ),
        "errors": (
            "AmbiguousName AuthenticationFailed ConfigError ContextOverflow EverlongError MalformedReply "
            "MessageError NetworkFailure NotStored Overloaded ProviderError QuotaExhausted RateLimited "
            "RequestRefused RequestTooLarge SchemaMismatch StoreBusy StoreDamaged StoreError StoreFull "
            "StoreUnavailable SummarizerError TargetUnreachable TranscriptError"
        ),
        "integrations": "wrap_client",
        "lossless": "LosslessEngine",
        "model": "HashChain Message",
        "store": "Branch Compacted Compaction Occasion Session Store Turn open_store",
        "tokens": "MessageCounter TokenCounter counter_for",
    },
)
