"""The evidence of a compaction: what models were asked and answered, and the figures by which the engine decided.

A host stores it beside the compaction. With it the same messages can be compacted once more, as the engine did then, so
that `explain_again` gives the engine's own reason for every line and tells whether the result is the very same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from everlong.config import CompressionValues
from everlong.context.compaction import CompactionRecord, CompactionRequest, CompactionRun
from everlong.context.explanation import ExplainedLine, explain_lines
from everlong.context.literals import is_summary, summary_body
from everlong.context.policy import compute_budgets
from everlong.context.summarize import SummaryRequest, SummaryWriter, WrittenSummary
from everlong.context.summary.exchanges import SummaryExchange, keep_ends
from everlong.context.summary.extractive import ExtractiveSummarizer
from everlong.context.verify import Yardstick
from everlong.model import Message
from everlong.tokens import MessageCounter, counter_for

__all__ = ["CompactionEvidence", "CompactionFigures", "ExplainedAgain", "explain_again", "figures_of"]

_LONGEST_WISH = 8_000
"""Characters of a topic or of a memory's text that are kept."""
_MOST_EMITTED = 16


@dataclass(frozen=True, slots=True)
class CompactionFigures:
    """Everything that a compaction depended on besides its messages."""

    settings: dict[str, Any]
    context_length: int
    threshold_tokens: int
    tail_tokens: int
    limit_tokens: int
    most_tokens: int
    scale: float
    budget_factor: float
    model: str | None = None
    force: bool = False
    target_tokens: int | None = None
    focus_topic: str | None = None
    memory_context: str | None = None
    emitted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionEvidence:
    """The exchanges behind a summary and the figures behind its compaction."""

    exchanges: tuple[SummaryExchange, ...] = ()
    """Oldest first; of many, the last ones."""
    asked: int = 0
    """The number of all questions to models."""
    figures: CompactionFigures | None = None
    """None for an engine that decides in another way."""

    def to_dict(self) -> dict[str, Any]:
        """Return the evidence as JSON-ready data."""
        figures = None if self.figures is None else asdict(self.figures)
        return {"exchanges": [one.to_dict() for one in self.exchanges], "asked": self.asked, "figures": figures}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CompactionEvidence:
        """Return evidence that was written as JSON; names that this version does not know are left out."""
        told = data.get("figures")
        names = {field.name for field in fields(CompactionFigures)}
        figures = None
        if isinstance(told, dict):
            known = {name: value for name, value in told.items() if name in names}
            figures = CompactionFigures(**{**known, "emitted": tuple(known.get("emitted") or ())})
        heard = tuple(SummaryExchange.from_dict(one) for one in data.get("exchanges") or ())
        return cls(heard, int(data.get("asked") or len(heard)), figures)


def figures_of(request: CompactionRequest, model: str | None) -> CompactionFigures:
    """Return the figures of a compaction."""
    return CompactionFigures(
        settings=asdict(request.settings),
        context_length=request.budgets.context_length,
        threshold_tokens=request.budgets.threshold_tokens,
        tail_tokens=request.budgets.tail_tokens,
        limit_tokens=request.limit_tokens,
        most_tokens=request.most_tokens,
        scale=request.scale,
        budget_factor=request.writer.budget_factor,
        model=model,
        force=request.force,
        target_tokens=request.target_tokens,
        focus_topic=_wish(request.focus_topic),
        memory_context=_wish(request.memory_context),
        emitted=tuple(sorted(request.emitted)[:_MOST_EMITTED]),
    )


def _wish(text: str | None) -> str | None:
    return None if text is None else keep_ends(text, _LONGEST_WISH)


class ExplainedAgain(NamedTuple):
    """The verdict on every line of a compaction that was made once more."""

    lines: tuple[ExplainedLine, ...]
    is_same: bool
    """True if the summary came out word for word as it is stored."""


def explain_again(
    messages: Sequence[Message], figures: CompactionFigures, summary: str, summarizer: str | None
) -> ExplainedAgain:
    """Compact messages once more by the figures of a stored compaction, and explain every line.

    A summary of the built-in summarizer is made again. Another one is taken as it is: no model is asked.

    Args:
        messages: What the engine was given.
        figures: The figures by which it decided.
        summary: The stored summary; empty if none was written.
        summarizer: Its writer; None if none was written.
    """
    settings = CompressionValues(**figures.settings)
    budgets = replace(
        compute_budgets(settings, figures.context_length),
        threshold_tokens=figures.threshold_tokens,
        tail_tokens=figures.tail_tokens,
    )
    is_built_in = summarizer in (None, ExtractiveSummarizer.name)
    writer = _GivenSummary() if not is_built_in else SummaryWriter(None, ExtractiveSummarizer(), 0)
    writer.budget_factor = figures.budget_factor
    recorder, given = CompactionRecord(), list(messages)
    request = CompactionRequest(
        messages=given,
        settings=settings,
        budgets=budgets,
        limit_tokens=figures.limit_tokens,
        most_tokens=figures.most_tokens,
        scale=figures.scale,
        counter=MessageCounter(counter_for(figures.model)) if figures.model else MessageCounter(),
        writer=writer,
        focus_topic=figures.focus_topic,
        force=figures.force,
        memory_context=figures.memory_context,
        target_tokens=figures.target_tokens,
        emitted=frozenset(figures.emitted),
        recorder=recorder,
        written=None if is_built_in else WrittenSummary(summary, summarizer or "", None, prose=summary),
    )
    made, _ = CompactionRun(request).run()
    told = "\n\n".join(summary_body(message) for message in made if is_summary(message))
    return ExplainedAgain(explain_lines(given, recorder), told.strip() == summary.strip())


class _GivenSummary(SummaryWriter):
    """A writer that returns the summary that is there already."""

    def __init__(self) -> None:
        super().__init__(None, ExtractiveSummarizer(), 0)

    def rewrite(self, written: WrittenSummary, request: SummaryRequest, yardstick: Yardstick) -> WrittenSummary:
        """Return the summary as it is."""
        del request, yardstick
        return written
