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
    "ExplainedLine",
    "Explanation",
    "ExtractiveSummarizer",
    "HashChain",
    "MendingSummarizer",
    "Message",
    "MessageCounter",
    "MessageError",
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
    "Verdict",
    "WarmPrefixSummarizer",
    "Weakness",
    "counter_for",
]


def __getattr__(name: str) -> Any:
    if name == "CompressionSettings":  # its checks are costly to load, and the defaults do not need them
        from everlong.config import CompressionSettings  # noqa: PLC0415 - see above

        return CompressionSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
