"""What a chat is doing right now, shared between the thread that works and the one that draws."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.agent import Agent, ApprovalRequest, Decision

__all__ = ["ChatState", "Question"]


@dataclass
class Question:
    """Something that a person has to decide, and their decision."""

    request: ApprovalRequest
    answer: Decision | None = None
    is_answered: threading.Event = field(default_factory=threading.Event)

    def decide(self, answer: Decision) -> None:
        """Answer it."""
        self.answer = answer
        self.is_answered.set()


@dataclass
class ChatState:
    """The state of a chat; every change is followed by `changed`."""

    agent: Agent | None = None
    busy: str = ""
    """What is being done; empty while the chat waits for its user."""
    question: Question | None = None
    is_over: bool = False
    cost: float = 0.0
    last_used: float = 0.0
    """When the model last answered, by the clock that only goes forward."""
    rest_at: float | None = None
    """When the pause should be looked at again, by the same clock."""
    changed: Callable[[], None] = lambda: None
    """Called after a change, to draw anew."""

    def doing(self, what: str) -> None:
        """Say what is being done now."""
        self.busy = what
        self.changed()

    def status(self) -> str:
        """The status line: model, how full the context is, the cache, the cost, what is being done."""
        if self.agent is None:
            return self.busy or "starting"
        engine = self.agent.engine
        used, threshold = self.agent.compactor.tokens, max(1, engine.threshold_tokens)
        parts = [
            self.agent.asker.model,
            f"context {used:,} / {threshold:,} ({100 * used // threshold} %)",
            self._cache(),
            f"${self.cost:.4f}" if self.cost else "",
            self.busy and f"{self.busy} · Ctrl-C stops",
        ]
        return " │ ".join(part for part in parts if part)

    def _cache(self) -> str:
        cache = self.agent.asker.cache if self.agent is not None else None
        if cache is None or cache.choice.strategy == "off":
            return "cache off"
        if cache.choice.strategy == "automatic":
            return "cache automatic"
        return "cache cold" if cache.is_cold() else "cache warm"
