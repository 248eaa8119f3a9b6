"""Cache misses: requests that paid again for what the one before them had left in the provider's cache."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from everlong.caching.rules import CacheRules, ModelRules

__all__ = ["REASONS", "CachedPrompt", "Miss", "Reason", "find_miss"]

Reason: TypeAlias = Literal["time", "model", "tools", "compaction", "system", "history", "other"]
REASONS: dict[Reason, str] = {
    "time": "the provider's cache had expired before the request came",
    "model": "another model was asked",
    "tools": "the tools changed",
    "system": "the system prompt changed",
    "compaction": "the conversation was compacted",
    "history": "an earlier message changed",
    "other": "none of these: a setting, a missing marker, or the provider itself",
}
"""The sentence that explains each reason to a person."""

_SLACK = 0.01
"""The share of the expected tokens that may be missing without a report."""


class CachedPrompt(NamedTuple):
    """An answered request: digests of its parts, and the tokens of its prompt."""

    at: float
    """The time it was sent, in seconds."""
    life: float
    """Seconds for which the provider keeps it, at most."""
    model: str
    tools: Hashable
    system: Hashable
    history: Sequence[Hashable]
    view: int | None
    """The compaction by which history was shortened."""
    prompt: int
    read: int
    written: int


class Miss(NamedTuple):
    """A miss of the provider's cache."""

    reason: Reason
    tokens: int
    """Tokens that the request before had left in the cache and that were paid for again."""

    def to_dict(self) -> dict[str, Any]:
        """Return the miss as JSON-ready data."""
        return self._asdict()


def find_miss(before: CachedPrompt, now: CachedPrompt, rules: CacheRules, model: ModelRules) -> Miss | None:
    """Return what a request paid for again though the one ``before`` it had left it in the cache; None if nothing."""
    missed = min(_count_left(before, rules, model), now.prompt) - now.read
    if missed <= max(rules.step_tokens, _SLACK * now.prompt, 1):
        return None
    changes: dict[Reason, bool] = {
        "time": now.at - before.at >= before.life,
        "model": before.model != now.model,
        "tools": before.tools != now.tools,
        "compaction": before.view != now.view,
        "system": before.system != now.system,
        "history": list(now.history[: len(before.history)]) != list(before.history),
    }
    return Miss(next((reason for reason, is_it in changes.items() if is_it), "other"), missed)


def _count_left(before: CachedPrompt, rules: CacheRules, model: ModelRules) -> int:
    """Return the tokens that a next request could have read."""
    if before.prompt < model.minimum_tokens:
        return 0
    if rules.style == "markers" and before.read + before.written:
        return before.read + before.written
    if rules.style == "markers" or rules.provider not in {"local", "unknown"} or before.read or before.written:
        return before.prompt
    return 0  # a server that may not cache at all
