"""Deciding and planning: the engine contract, the default engine and its stages. Synchronous, without network."""

from everlong.context.compressor import ContextCompressor
from everlong.context.engine import ContextEngine
from everlong.context.report import Boundaries, CompactionReport, Quality, SummarizerInput
from everlong.context.summarize import Summarizer, SummaryRequest
from everlong.context.summary.completion import Complete, CompletionSummarizer
from everlong.context.summary.extractive import ExtractiveSummarizer

__all__ = [
    "Boundaries",
    "CompactionReport",
    "Complete",
    "CompletionSummarizer",
    "ContextCompressor",
    "ContextEngine",
    "ExtractiveSummarizer",
    "Quality",
    "Summarizer",
    "SummarizerInput",
    "SummaryRequest",
]
