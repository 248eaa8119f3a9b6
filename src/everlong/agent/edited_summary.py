"""A summary in a person's own words: an engine that changes the newest summary and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everlong.context.engine import ContextEngine
from everlong.context.literals import summary_body, summary_indices
from everlong.model import Message, text_of
from everlong.tokens import MessageCounter, counter_for

__all__ = ["EditedSummary"]


class EditedSummary(ContextEngine):
    """Puts other words in the place of the newest summary; its introduction and the rules after it stay."""

    summarizes_covered_only = True
    """The new words stand for the messages that the old ones stood for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._counter = MessageCounter(counter_for(None))

    @property
    def name(self) -> str:
        """The name in the history of compactions."""
        return "edit"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Ignore usage."""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return False: a person decides."""
        del prompt_tokens
        return False

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Return the messages with the new summary; the same ones where there is no summary."""
        del current_tokens, focus_topic
        places = summary_indices(messages)
        if not places:
            return list(messages)
        old = messages[places[-1]]
        text = text_of(old).replace(summary_body(old), self._text, 1)
        return [{**one, "content": text} if at == places[-1] else one for at, one in enumerate(messages)]

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages."""
        return self._counter.total(list(messages))
