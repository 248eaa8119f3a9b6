"""Deciding and planning: the engine contract, the default engine and its stages. Synchronous, without network."""

# Nothing is loaded before it is asked for: a store needs the contract, and none of the engine's patterns.
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.context.compressor import ContextCompressor
    from everlong.context.engine import ContextEngine
    from everlong.context.explain import ExplainedLine, Explanation, Verdict
    from everlong.context.invariants import repair_messages
    from everlong.context.report import Boundaries, CompactionReport, Quality, SummarizerInput
    from everlong.context.summarize import MendingSummarizer, Summarizer, SummaryRequest, Weakness
    from everlong.context.summary.chain import SummarizerChain
    from everlong.context.summary.completion import CompletionSummarizer
    from everlong.context.summary.extractive import ExtractiveSummarizer
    from everlong.context.summary.parts import Complete, SummaryProgress
    from everlong.context.summary.warm import WarmPrefixSummarizer

_LATER = {
    "Boundaries": "report",
    "CompactionReport": "report",
    "Complete": "summary.parts",
    "CompletionSummarizer": "summary.completion",
    "ContextCompressor": "compressor",
    "ContextEngine": "engine",
    "ExplainedLine": "explain",
    "Explanation": "explain",
    "ExtractiveSummarizer": "summary.extractive",
    "MendingSummarizer": "summarize",
    "Quality": "report",
    "Summarizer": "summarize",
    "SummarizerChain": "summary.chain",
    "SummarizerInput": "report",
    "SummaryProgress": "summary.parts",
    "SummaryRequest": "summarize",
    "Verdict": "explain",
    "WarmPrefixSummarizer": "summary.warm",
    "Weakness": "summarize",
    "repair_messages": "invariants",
}

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value  # from now on found without this function
    return value
