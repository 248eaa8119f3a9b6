"""The compaction of conversations: the engine contract, the default engine and its stages.

Start with `compressor` (the engine), `compaction` (one run of it) and `policy` (how large, when, and after an
overflow). Everything is synchronous and without network.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.context.compressor import ContextCompressor as ContextCompressor
    from everlong.context.engine import ContextEngine as ContextEngine
    from everlong.context.invariants import repair_messages as repair_messages
    from everlong.context.model_summary import (
        Complete as Complete,
        CompletionSummarizer as CompletionSummarizer,
        SummarizerChain as SummarizerChain,
        WarmPrefixSummarizer as WarmPrefixSummarizer,
    )
    from everlong.context.report import (
        Boundaries as Boundaries,
        CompactionReport as CompactionReport,
        Quality as Quality,
        SummarizerInput as SummarizerInput,
    )
    from everlong.context.summarizers import (
        ExtractiveSummarizer as ExtractiveSummarizer,
        Summarizer as Summarizer,
        SummaryRequest as SummaryRequest,
    )

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "compressor": "ContextCompressor",
        "engine": "ContextEngine",
        "invariants": "repair_messages",
        "report": "Boundaries CompactionReport Quality SummarizerInput",
        "model_summary": "Complete CompletionSummarizer SummarizerChain WarmPrefixSummarizer",
        "summarizers": "ExtractiveSummarizer Summarizer SummaryRequest",
    },
)
