"""Third stage: the middle becomes one document, whatever happens to the summarizer.

A summarizer is anything with a name and one method. If the chosen one fails, is cooling down after a failure, or gives
something that is no summary, the extractive one takes its place and the reason is kept. No network here: a summarizer
that needs one brings it along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from everlong.context.shorten import TextCount
from everlong.context.summary.document import SummaryDocument
from everlong.errors import SummarizerError
from everlong.model import Message


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What a summarizer gets to work with."""

    turns: Sequence[Message]
    """The messages to summarize as they were, tool outputs whole."""
    previous: str | None
    """The summary of everything before, to be updated."""
    budget_tokens: int
    count: TextCount
    """Counts the tokens of a text."""
    opening: Message | None = None
    """The conversation's first user message, which says what it is all about."""
    latest_user: Message | None = None
    """The request in force."""
    focus_topic: str | None = None
    memory_context: str | None = None
    """What a memory provider wants kept."""


class Summarizer(Protocol):
    """Turns a request into a summary, or raises."""

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    def summarize(self, request: SummaryRequest) -> str:
        """The summary as Markdown with the headings of the template."""
        ...


class Written(NamedTuple):
    """A summary, who wrote it, and why it was not the one who was asked first."""

    text: str
    summarizer: str
    fallback_reason: str | None
    is_extract: bool
    """Whether every line was taken from the source, rather than written by a model."""


class SummaryWriter:
    """Asks the chosen summarizer, and the fallback where that one fails."""

    def __init__(
        self,
        chosen: Summarizer | None,
        fallback: Summarizer,
        cooldown_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chosen = chosen
        self._fallback = fallback
        self._cooldown = cooldown_seconds
        self._clock = clock
        self._cooling_until: float | None = None

    def write(self, request: SummaryRequest, *, ignore_cooldown: bool = False) -> Written:
        """A summary within the request's budget; never raises for a summarizer's sake."""
        if self._chosen is None:
            return self._extract(request, None)
        if self._cooling_until is not None and self._clock() < self._cooling_until and not ignore_cooldown:
            reason = f"{self._chosen.name} failed before and is left alone for {self._cooldown:g} seconds"
        else:
            try:
                text = fitted(self._chosen.summarize(request), request)
            except Exception as error:  # noqa: BLE001 - a summarizer is foreign code; its failure is reported, not hidden
                self._cooling_until = self._clock() + self._cooldown
                reason = f"{self._chosen.name}: {type(error).__name__}: {error}"
            else:
                self._cooling_until = None
                return Written(text, self._chosen.name, None, is_extract=self._chosen is self._fallback)
        return self._extract(request, reason)

    def _extract(self, request: SummaryRequest, reason: str | None) -> Written:
        return Written(self._fallback.summarize(request), self._fallback.name, reason, is_extract=True)

    def reset(self) -> None:
        """Forget earlier failures."""
        self._cooling_until = None


def fitted(text: object, request: SummaryRequest) -> str:
    """A summarizer's output with headings in order and within the budget; raises if it is no summary."""
    if not isinstance(text, str) or not text.strip():
        raise SummarizerError("the summary is empty")
    document = SummaryDocument.parse(text)
    if not any(line.startswith("##") for line in text.splitlines()) or not document.filled_sections():
        raise SummarizerError("the answer has none of the summary's headings; it may be a refusal or a reply")
    within = document.fit(request.budget_tokens, request.count)
    if not within:
        raise SummarizerError(f"no part of the summary fits {request.budget_tokens} tokens")
    return within
