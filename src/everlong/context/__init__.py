"""The compaction of conversations: the engine contract, the default engine and its stages.

Start with `compressor` (the engine), `compaction` (one run of it) and `policy` (how large, when, and after an
overflow). `explanation` tells why a line was kept or dropped. Everything is synchronous and without network.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.context.compressor import ContextCompressor as ContextCompressor
    from everlong.context.engine import ContextEngine as ContextEngine
    from everlong.context.explanation import (
        ExplainedLine as ExplainedLine,
        Explanation as Explanation,
        Verdict as Verdict,
    )
    from everlong.context.invariants import repair_messages as repair_messages
    from everlong.context.report import (
        Boundaries as Boundaries,
        CompactionReport as CompactionReport,
        Quality as Quality,
        SummarizerInput as SummarizerInput,
    )
    from everlong.context.summarize import (
        MendingSummarizer as MendingSummarizer,
        Summarizer as Summarizer,
        SummaryRequest as SummaryRequest,
        Weakness as Weakness,
    )
    from everlong.context.summary.exchanges import Complete as Complete
    from everlong.context.summary.extractive import ExtractiveSummarizer as ExtractiveSummarizer
    from everlong.context.summary.model_summarizers import (
        CompletionSummarizer as CompletionSummarizer,
        SummarizerChain as SummarizerChain,
        SummaryProgress as SummaryProgress,
        WarmPrefixSummarizer as WarmPrefixSummarizer,
    )

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "compressor": "ContextCompressor",
        "engine": "ContextEngine",
        "explanation": "ExplainedLine Explanation Verdict",
        "invariants": "repair_messages",
        "report": "Boundaries CompactionReport Quality SummarizerInput",
        "summarize": "MendingSummarizer Summarizer SummaryRequest Weakness",
        "summary.exchanges": "Complete",
        "summary.extractive": "ExtractiveSummarizer",
        "summary.model_summarizers": "CompletionSummarizer SummarizerChain SummaryProgress WarmPrefixSummarizer",
    },
)
