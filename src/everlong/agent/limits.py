"""What one prompt may take: answers, tokens, money, time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everlong.providers.base import Usage

if TYPE_CHECKING:
    from everlong.config import AgentSettings

__all__ = ["Limits", "Spent"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of each; None where there is no limit."""

    steps: int | None = 200
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Limits:
        """The limits of the ``agent`` section."""
        return cls(settings.max_steps, settings.max_tokens, settings.max_cost, settings.max_seconds)


@dataclass(slots=True)
class Spent:
    """What a prompt has taken so far."""

    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count one answer."""
        self.steps += 1
        self.usage += usage
        self.cost += cost or 0.0

    def reached(self, limits: Limits) -> str | None:
        """The limit that is reached, in words; None where there is room for another answer."""
        if limits.steps is not None and self.steps >= limits.steps:
            return f"{self.steps} of {limits.steps} answers (agent.max_steps)"
        if limits.tokens is not None and self.usage.total_tokens >= limits.tokens:
            return f"{self.usage.total_tokens:,} of {limits.tokens:,} tokens (agent.max_tokens)"
        if limits.cost is not None and self.cost >= limits.cost:
            return f"${self.cost:.4f} of ${limits.cost:.4f} (agent.max_cost)"
        return None
