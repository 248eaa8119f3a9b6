"""The state of a chat, shared by the thread that works and the thread that draws.

The worker writes it, the terminal reads it. It holds plain values only, so that drawing never waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.agent import Agent, ApprovalRequest, Decision

STARTING = "starting"

ASKED = "[1] yes  [2] always in this session  [3] no, or say what to do instead: "
ANSWERS: dict[str, Decision] = {
    "1": "once",
    "2": "session",
    "3": "no",
    "y": "once",
    "yes": "once",
    "a": "session",
    "always": "session",
    "n": "no",
    "no": "no",
}
"""The decision that each answer to a question means; a number alone decides at once, a word with Enter."""

SETTLING_SECONDS = 0.3
"""Seconds after a question in which keys do not answer it: they were meant for what was there before."""


@dataclass
class Question:
    """A tool call that the user has to decide on, and the decision."""

    request: ApprovalRequest
    answer: Decision | None = None
    instead: str = ""
    """The order that the user typed in place of a plain no."""
    is_answered: threading.Event = field(default_factory=threading.Event)
    asked_at: float = field(default_factory=time.monotonic)
    is_open: bool = False
    """True if the line being typed answers it: the question has settled, and the line was empty then."""

    def decide(self, said: str) -> None:
        """Set the answer; a sentence is a no that tells what to do instead."""
        self.answer = ANSWERS.get(said.strip().lower(), "no")
        self.instead = "" if said.strip().lower() in ANSWERS else said.strip()
        self.is_answered.set()

    @property
    def is_settled(self) -> bool:
        """True if it has been on the screen long enough for a key to be meant for it."""
        return time.monotonic() - self.asked_at >= SETTLING_SECONDS


@dataclass
class ChatState:
    """The state of a chat; whoever changes it calls `changed`."""

    agent: Agent | None = None
    busy: str = STARTING
    """The work under way; empty while the chat waits for the user."""
    pending: str = ""
    """The words of an answer that do not form a whole block yet."""
    question: Question | None = None
    is_over: bool = False
    cost: float = 0.0
    hint: str = ""
    """A hint for the user, shown until something else happens."""
    changed: Callable[[], None] = lambda: None
    """Called after a change, to redraw."""
    _model: str = ""
    _context: str = ""
    _cache: str = ""

    def set_busy(self, what: str) -> None:
        """Set the work under way."""
        self.busy, self.hint = what, ""
        self.changed()

    def refresh(self) -> None:
        """Update the figures on context and cache; called by the worker."""
        agent = self.agent
        if agent is None:
            return
        used, window = agent.compactor.tokens, max(1, agent.engine.context_length)
        self._model = agent.asker.model
        self._context = f"context {used:,} / {window:,} ({100 * used // window} %)"
        self._cache = _describe_cache(agent)
        session = agent.conversation.session
        # With summaries and memory, as /usage tells it.
        self.cost = agent.conversation.store.conversations.get(session.id).cost if session is not None else 0.0
        self.changed()

    def status(self, width: int, waiting: int = 0) -> str:
        """Return the status line: model, context, cache, cost, and the work under way.

        Args:
            width: The columns available; what does not fit is left out, the least important first.
            waiting: The number of prompts that wait their turn.
        """
        doing = self.busy and (self.busy if self.busy == STARTING else f"{self.busy} · Ctrl-C stops")
        # In the order of the line, each with its rank; the highest rank is left out first.
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


def _describe_cache(agent: Agent) -> str:
    cache = agent.asker.cache
    if cache is None or cache.choice.strategy == "off":
        return "cache off"
    if cache.choice.strategy == "automatic":
        return "cache automatic"
    return "cache cold" if cache.is_cold() else "cache warm"


def _columns(text: str) -> int:
    from prompt_toolkit.utils import get_cwidth  # noqa: PLC0415 - only a terminal has a status line

    return get_cwidth(text)
