"""The questions that were asked for a summary, and the answers: kept for the person who wonders who wrote it.

A prompt holds the conversation, which its host has already, so only the beginning and the end of a long one are kept.
Secrets are taken out before anything is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from everlong.context.digest import redacted_ends
from everlong.model import Message, text_of
from everlong.redaction import redact

__all__ = [
    "LONGEST_ANSWER",
    "LONGEST_PROMPT",
    "MOST_EXCHANGES",
    "CompactionEvidence",
    "Complete",
    "SummaryExchange",
    "SummaryExchanges",
]

LONGEST_PROMPT = 16_000
"""Characters of a prompt that are kept: two thirds from its beginning, the rest from its end."""
LONGEST_ANSWER = 16_000
"""Characters of an answer that are kept."""
MOST_EXCHANGES = 12
"""The exchanges of one summary that are kept; the last ones, which hold the finished text."""
_LONGEST_ERROR = 4_000


class Complete(Protocol):
    """A function that completes a chat and raises on failure.

    >>> from everlong import CompletionSummarizer
    >>> def complete(messages: list[Message], max_tokens: int) -> str:
    ...     return "## Goal: keep the harbour's book"
    >>> asking: Complete = complete
    >>> CompletionSummarizer(asking, name="a model of mine").name
    'a model of mine'
    """

    def __call__(self, messages: list[Message], max_tokens: int) -> str:
        """Return the model's answer, at most ``max_tokens`` long."""
        ...


class SummaryExchange(NamedTuple):
    """One question for a summary and its answer."""

    writer: str
    prompt: str
    """The words of the question, perhaps without its middle; empty if the summarizer did not tell."""
    prompt_characters: int
    """The length of the whole question."""
    sent_before: int
    """The messages of the conversation that stood before the question, as they were sent."""
    answer: str
    answer_characters: int
    error: str
    """The reason why there was no answer; empty if there was one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the exchange as JSON-ready data."""
        return self._asdict()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SummaryExchange:
        """Return an exchange that was written as JSON; fields that it lacks are empty."""
        empty = cls("", "", 0, 0, "", 0, "")
        return empty._replace(**{name: data[name] for name in cls._fields if name in data})


@dataclass(frozen=True, slots=True)
class CompactionEvidence:
    """What models were asked for a summary, and what they answered; a host stores it beside the compaction."""

    exchanges: tuple[SummaryExchange, ...] = ()
    """Oldest first; of many, the last ones."""
    asked: int = 0
    """The number of all questions to models."""

    def to_dict(self) -> dict[str, Any]:
        """Return the evidence as JSON-ready data."""
        return {"exchanges": [one.to_dict() for one in self.exchanges], "asked": self.asked}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CompactionEvidence:
        """Return evidence that was written as JSON."""
        heard = tuple(SummaryExchange.from_dict(one) for one in data.get("exchanges") or ())
        return cls(heard, int(data.get("asked") or len(heard)))


class SummaryExchanges:
    """The exchanges of one summary, noted from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[SummaryExchange] = deque(maxlen=MOST_EXCHANGES)
        self.count = 0
        """The exchanges that were noted, also those that are no longer kept."""

    def note(self, writer: str, prompt: str, answer: str, *, sent_before: int = 0, error: str = "") -> None:
        """Keep a question and its answer."""
        made = SummaryExchange(
            writer,
            redacted_ends(prompt, LONGEST_PROMPT),
            len(prompt),
            sent_before,
            redacted_ends(answer, LONGEST_ANSWER),
            len(answer),
            redact(error[:_LONGEST_ERROR]),
        )
        with self._lock:
            self._kept.append(made)
            self.count += 1

    def listen(self, writer: str, complete: Complete, sent_before: int = 0) -> Complete:
        """Return a completion function that asks the given one and notes what comes of it.

        ``sent_before`` messages at the beginning of each prompt are the conversation as it was sent; they are counted
        and not kept.
        """

        def ask(messages: list[Message], max_tokens: int) -> str:
            told = _words(messages[sent_before:])
            try:
                answer = complete(messages, max_tokens)
            except Exception as error:
                self.note(writer, told, "", sent_before=sent_before, error=f"{type(error).__name__}: {error}")
                raise
            self.note(writer, told, str(answer), sent_before=sent_before)
            return answer

        return ask

    def kept(self) -> tuple[SummaryExchange, ...]:
        """Return the exchanges that are kept, oldest first."""
        with self._lock:
            return tuple(self._kept)


def _words(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"[{message.get('role')}]\n{text_of(message)}" for message in messages)
