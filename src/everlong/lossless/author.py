"""The author of a graph's summaries: a model where there is one, in three steps that always end in a summary.

First the model writes a summary of the usual size. If that is unusable or no shorter than its source, the model is
asked for a tighter one. If that fails too, the summary is made of the source's own lines, and the node is degraded: it
is made again when the model is back. A summary is accepted only if it is shorter than its source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from everlong.context.digest import without_marks
from everlong.context.document import SummaryDocument
from everlong.context.names import entities
from everlong.context.policy import Cooldown, LeftAlone
from everlong.context.summarizers import ExtractiveSummarizer, Summarizer, SummaryRequest, clean_answer
from everlong.context.text import TextCount, shorten_text
from everlong.lossless.graph import State, SummaryNode
from everlong.model import Message, whole_text

TIGHTER = 0.6
"""The share of the usual budget for the second try."""
LONGEST = 1.25
"""A summary may exceed its budget by this factor: models count differently."""
_NAMES_PER_TOKEN = 0.05
"""Names that prose of some length can be expected to hold: one in twenty tokens."""


class WrittenNode(NamedTuple):
    """The text of a summary, its writer, and how good it is."""

    text: str
    tokens: int
    model: str
    quality: float
    state: State


@dataclass(frozen=True, slots=True)
class Source:
    """The messages, or the summaries of a lower level, that one summary is to stand for."""

    messages: Sequence[Message]
    children: Sequence[SummaryNode] = ()
    tokens: int = 0

    @property
    def text(self) -> str:
        """All words of the source."""
        return "\n".join(map(whole_text, self.messages)) if self.messages else "\n".join(self.child_texts())

    def child_texts(self) -> list[str]:
        """Return the texts of the summaries that are to be condensed, oldest first."""
        return [node.made.text for node in self.children]

    def turns(self) -> list[Message]:
        """Return the source as messages for a summarizer."""
        if self.messages:
            return list(self.messages)
        return [{"role": "user", "content": f"[Summary of earlier messages]\n{text}"} for text in self.child_texts()]


class SummaryAuthor:
    """Writes summaries; remembers that a model failed and leaves it alone for a while."""

    def __init__(
        self, count: TextCount, cooldown_seconds: float = 600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.count = count
        self.summarizer: Summarizer | None = None
        self.failure: str | None = None
        """The newest failure of the model; None once it has answered again."""
        self.expects_model = False
        """True if a model writes summaries as a rule; without one, they are degraded then."""
        self.input_tokens = 0
        """Tokens of all sources that a model was asked to read."""
        self._cooldown = Cooldown(cooldown_seconds, clock)

    @property
    def has_model(self) -> bool:
        """True if a model writes summaries and has not just failed."""
        return self._asks_model and not self._cooldown.is_on

    @property
    def _asks_model(self) -> bool:
        return self.summarizer is not None and not isinstance(self.summarizer, ExtractiveSummarizer)

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The model, while it is left alone after a failure."""
        return [] if self.summarizer is None else self._cooldown.left_alone(self.summarizer.name)

    def reset(self) -> None:
        """Forget earlier failures."""
        self.failure = None
        self._cooldown.end()

    def write(
        self,
        source: Source,
        budget: int,
        *,
        focus_topic: str | None = None,
        memory_context: str | None = None,
        ignore_cooldown: bool = False,
    ) -> WrittenNode:
        """Return a summary that is shorter than its source; a failing model never makes this raise."""
        budget = max(1, min(budget, source.tokens - 1)) if source.tokens else budget
        if self._asks_model and (ignore_cooldown or not self._cooldown.is_on):
            for share in (1.0, TIGHTER):
                request = SummaryRequest(
                    turns=source.turns(),
                    previous=None,
                    budget_tokens=max(1, int(budget * share)),
                    count=self.count,
                    focus_topic=focus_topic,
                    memory_context=memory_context,
                )
                written = self._ask(request, source, budget)
                if written is not None:
                    return written
                if self._cooldown.is_on:
                    break
        state: State = "degraded" if self._asks_model or self.expects_model else "good"
        text = self._extracted(source, budget)
        return WrittenNode(
            text, self.count(text), ExtractiveSummarizer.name, quality_of(text, source.text, budget), state
        )

    def _ask(self, request: SummaryRequest, source: Source, budget: int) -> WrittenNode | None:
        """Ask the model once; None if its answer cannot be used."""
        assert self.summarizer is not None  # noqa: S101 - asked before
        self.input_tokens += source.tokens
        try:
            answer: object = self.summarizer.summarize(request)
        except Exception as error:  # noqa: BLE001 - a summarizer is foreign code; its failure is reported, not hidden
            self.failure = f"{self.summarizer.name}: {type(error).__name__}: {error}"
            self._cooldown.start(self.failure)
            return None
        said = source.text
        text, problem = clean_answer(without_marks(answer) if isinstance(answer, str) else answer, budget, self.count)
        tokens = self.count(text)
        if problem or tokens > LONGEST * budget or (source.tokens and tokens >= source.tokens):
            self.failure = f"{self.summarizer.name}: " + (problem or "a summary too long")
            return None
        self.reset()
        return WrittenNode(text, tokens, self.summarizer.name, quality_of(text, said, budget), "good")

    def _extracted(self, source: Source, budget: int) -> str:
        """Return a summary made of the source's own lines, within the budget."""
        if source.messages:
            request = SummaryRequest(source.turns(), previous=None, budget_tokens=budget, count=self.count)
            text = ExtractiveSummarizer().summarize(request)  # a new one: it would remember every message that it read
        else:
            merged = SummaryDocument()
            for child in source.child_texts():
                for section, items in SummaryDocument.parse(child).items.items():
                    merged.items[section] += items
            text = merged.fit(budget, self.count)
        if text and self.count(text) <= LONGEST * budget:
            return without_marks(text)
        return shorten_text(without_marks(text or source.text), budget, self.count, otherwise="")


def quality_of(text: str, source: str, budget: int) -> float:
    """Return the share of the source's names that a summary has, of as many as it has room for."""
    names = set(entities(source))
    if not names:
        return 1.0 if text else 0.0
    kept = sum(name in names for name in set(entities(text)))
    return min(1.0, kept / max(1, min(len(names), int(budget * _NAMES_PER_TOKEN))))
