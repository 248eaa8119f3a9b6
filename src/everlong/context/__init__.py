"""Deciding and planning: the engine contract, the default engine and its stages. Synchronous, without network."""

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
