"""Cache misses: why a provider did not read from its cache what a request repeats of the one before.

Two requests are compared by digests of their parts: model, tools, system prompt, settings and each message. If nothing
differs, the reasons left are time, markers and the provider itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from everlong.caching.rules import SECONDS, CacheRules, ModelRules

__all__ = ["REASONS", "CacheTokens", "Miss", "Parts", "Reason", "find_miss"]

Reason: TypeAlias = Literal[
    "model", "tools", "system", "setting", "message", "compaction", "expired", "no marker", "look-back", "provider"
]
REASONS: dict[Reason, str] = {
    "model": "another model was asked",
    "tools": "the tools changed",
    "system": "the system prompt changed",
    "setting": "a setting changed that the cache depends on, such as thinking or tool_choice",
    "message": "an earlier message changed",
    "compaction": "the conversation was compacted",
    "expired": "the provider's cache had expired before the request came",
    "no marker": "no part of the request was marked for caching",
    "look-back": "more blocks were added at once than a read walks back over",
    "provider": "nothing changed, but the provider did not have it",
}
"""The sentence that explains each reason to a person."""

_SLACK = 0.01
"""The share of the expected tokens that may be missing without a report."""


@dataclass(frozen=True, slots=True)
class CacheTokens:
    """The prompt tokens of one answered request."""

    prompt: int
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Parts:
    """A request as digests of what a provider's cache depends on."""

    at: float
    """The time it was sent, in seconds."""
    model: str
    tools: Sequence[Hashable]
    system: Sequence[Hashable]
    settings: Mapping[str, Hashable]
    messages: Sequence[Hashable]
    blocks: Sequence[int]
    """The number of blocks in each message; 0 for a message whose blocks were not counted."""
    view: int | None = None
    """The compaction by which history was shortened."""
    marks: Sequence[str] = ()
    """The lifetime that each cache marker asks for: ``5m`` or ``1h``."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A miss of the provider's cache: the tokens that were paid for again, and the reason."""

    reason: Reason
    tokens: int
    """Tokens that the request before had left in the cache and that were paid for again."""
    detail: str = ""
    """The very thing that changed, without a word of content."""
    diagnosis: str = ""
    """The provider's own reason, where it was asked for one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the miss as JSON-ready data."""
        return {
            name: value
            for name in ("reason", "tokens", "detail", "diagnosis")
            if (value := getattr(self, name)) or name == "tokens"
        }


def find_miss(
    before: tuple[Parts, CacheTokens], now: tuple[Parts, CacheTokens], rules: CacheRules, model: ModelRules
) -> Miss | None:
    """Return why a request did not read what the one before it had left in the cache; None if it did.

    Args:
        before: the request before, and its tokens as the provider reported them.
        now: this request, and its tokens.
        rules: the rules of the provider's cache.
        model: the rules of the model that is asked now.
    """
    (old, left), (new, got) = before, now
    missed = min(_count_expected(left, rules, model), got.prompt) - got.read
    if missed <= max(rules.step_tokens, _SLACK * got.prompt, 1):
        return None
    reason, detail = _reason(old, left, new, rules)
    return Miss(reason, missed, detail)


def _count_expected(left: CacheTokens, rules: CacheRules, model: ModelRules) -> int:
    """Return the tokens that a next request could have read."""
    if left.prompt < model.minimum_tokens:
        return 0
    if rules.style == "markers" and left.read + left.written:
        return left.read + left.written
    if rules.style == "markers" or rules.provider not in {"local", "unknown"} or left.read or left.written:
        return left.prompt
    return 0  # a server that may not cache at all


def _reason(old: Parts, left: CacheTokens, new: Parts, rules: CacheRules) -> tuple[Reason, str]:
    lives = [SECONDS[ttl] for ttl in old.marks if ttl in SECONDS] if rules.style == "markers" else [rules.ttl_seconds]
    gap = new.at - old.at
    is_marked = rules.style != "markers" or bool(left.read + left.written)
    if lives and is_marked and gap >= max(lives):
        return "expired", _late(gap, max(lives))
    changed = _change(old, new)
    if changed is not None:
        return changed
    if rules.style == "markers" and (not is_marked or not new.marks):
        return "no marker", "in this request" if not new.marks else "in the request before"
    if lives and gap >= min(lives):
        return "expired", _late(gap, min(lives))
    added = sum(new.blocks[len(old.messages) :])
    if rules.style == "markers" and added >= rules.look_back:
        return "look-back", f"{added} blocks since the request before; a read walks back over {rules.look_back}"
    return "provider", ""


def _late(gap: float, life: int) -> str:
    return f"{gap:.0f} seconds after the request before; it is held for {life}"


def _change(old: Parts, new: Parts) -> tuple[Reason, str] | None:
    """Return what changed first, in the order in which caches are read."""
    if old.model != new.model:
        return "model", ""
    if old.tools != new.tools:
        return "tools", _difference("tool", old.tools, new.tools)
    if old.view != new.view:
        return "compaction", ""
    if old.system != new.system:
        return "system", _difference("block", old.system, new.system)
    for name in sorted({*old.settings, *new.settings}):
        if old.settings.get(name) != new.settings.get(name):
            return "setting", name
    if list(new.messages[: len(old.messages)]) != list(old.messages):
        return "message", _difference("message", old.messages, new.messages)
    return None


def _difference(what: str, old: Sequence[Hashable], new: Sequence[Hashable]) -> str:
    """Return the first of several things that differs, counted from 1."""
    at = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), None)
    if at is not None:
        return f"{what} {at + 1} of {len(old)}"
    more = len(new) - len(old)
    return f"{abs(more)} {what}{'' if abs(more) == 1 else 's'} {'more' if more > 0 else 'less'}"
