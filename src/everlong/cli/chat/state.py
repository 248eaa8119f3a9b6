"""What a chat is doing right now, shared between the thread that works and the one that draws.

The one who works writes, the one who draws reads: plain values only, so that drawing never waits and never counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.agent import Agent, ApprovalRequest, CompactionProgress, Decision

__all__ = ["STARTING", "ChatState", "Question"]

STARTING = "starting"

SETTLING_SECONDS = 0.3
"""So long after something is asked a key is not taken for its answer: it was meant for what was there before."""


@dataclass
class Question:
    """Something that a person has to decide, and their decision."""

    request: ApprovalRequest
    answer: Decision | None = None
    is_answered: threading.Event = field(default_factory=threading.Event)
    asked_at: float = field(default_factory=time.monotonic)
    is_open: bool = False
    """Whether a line that is typed now answers it: it has settled, and nothing was being typed then."""

    def decide(self, answer: Decision) -> None:
        """Answer it."""
        self.answer = answer
        self.is_answered.set()

    @property
    def is_settled(self) -> bool:
        """Whether it has been on the screen for so long that a key can be meant for it."""
        return time.monotonic() - self.asked_at >= SETTLING_SECONDS


@dataclass
class ChatState:
    """The state of a chat; every change is followed by `changed`."""

    agent: Agent | None = None
    busy: str = STARTING
    """What is being done; empty while the chat waits for its user."""
    pending: str = ""
    """The words of an answer that do not make up a whole block yet."""
    progress: CompactionProgress | None = None
    """How far a model has come with a summary; None where none is written."""
    question: Question | None = None
    is_over: bool = False
    cost: float = 0.0
    hint: str = ""
    """A word to the user, until something else happens."""
    changed: Callable[[], None] = lambda: None
    """Called after a change, to draw anew."""
    _model: str = ""
    _context: str = ""
    _cache: str = ""

    def doing(self, what: str) -> None:
        """Say what is being done now."""
        self.busy, self.hint, self.progress = what, "", None
        self.changed()

    def look(self) -> None:
        """Take in how full the context is and what the cache holds; for the thread that works."""
        agent = self.agent
        if agent is None:
            return
        used, threshold = agent.compactor.tokens, max(1, agent.engine.threshold_tokens)
        self._model = agent.asker.model
        self._context = f"context {used:,} / {threshold:,} ({100 * used // threshold} %)"
        self._cache = _cache_of(agent)
        self.changed()

    def status(self, width: int, waiting: int = 0) -> str:
        """The status line: model, how full the context is, the cache, the cost, what is being done.

        Args:
            width: the columns that there are; what does not fit is left out, the least important first.
            waiting: how much was sent and has not begun yet.
        """
        doing = self.busy and (self.busy if self.busy == STARTING else f"{self.busy} · Ctrl-C stops")
        # In the order of the line, each with its rank; the one of the highest rank goes first.
        parts = [
            (3, self._model),
            (2, self._context),
            (5, self._cache),
            (4, f"${self.cost:.4f}" if self.cost else ""),
            (0, self.hint),
            (0, doing),
            (1, f"{waiting} waiting" if waiting else ""),
        ]
        parts = [part for part in parts if part[1]]
        while len(parts) > 1 and _columns(" │ ".join(text for _, text in parts)) > width:
            parts.remove(max(parts))
        return " │ ".join(text for _, text in parts)


def _cache_of(agent: Agent) -> str:
    cache = agent.asker.cache
    if cache is None or cache.choice.strategy == "off":
        return "cache off"
    if cache.choice.strategy == "automatic":
        return "cache automatic"
    return "cache cold" if cache.is_cold() else "cache warm"


def _columns(text: str) -> int:
    from prompt_toolkit.utils import get_cwidth  # noqa: PLC0415 - only a terminal has a status line

    return get_cwidth(text)
