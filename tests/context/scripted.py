"""Models for tests of summarizers: functions that record what they are asked and answer as told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from everlong import Message, SummaryRequest
from everlong.model import text_of
from everlong.tokens import EstimatingCounter

COUNT = EstimatingCounter().count_text
GOOD = "## Goal\n- Build the project\n\n## Progress\n### Done\n- Ran make"


class Model:
    """Completes chats by a function of the call's number and prompt; safe to call from several threads."""

    def __init__(self, answer: Callable[[int, str], str] | str = GOOD) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.prompts: list[list[Message]] = []
        self.max_tokens: list[int] = []

    def __call__(self, messages: list[Message], max_tokens: int) -> str:
        with self._lock:
            self.prompts.append(messages)
            self.max_tokens.append(max_tokens)
            number = len(self.prompts)
        return self._answer if isinstance(self._answer, str) else self._answer(number, text_of(messages[-1]))

    @property
    def asked(self) -> str:
        """The final message of the last prompt."""
        return text_of(self.prompts[-1][-1])


def request_for(turns: list[Message], previous: str | None = None, budget: int = 600, **more: Any) -> SummaryRequest:
    return SummaryRequest(turns=turns, previous=previous, budget_tokens=budget, count=COUNT, **more)
