"""The cost of a conversation under each caching strategy, by the cache simulator.

Only the newest turns of a long conversation are replayed, because a replay sends everything again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from everlong.caching.simulation import MODEL, replay, requests_of
from everlong.store.conversations import ConversationLine

if TYPE_CHECKING:
    from everlong.store import Conversation, Store

__all__ = ["StrategyCost", "WhatIfPage", "read_what_if"]

TURNS = 240
"""Turns that are replayed."""


class StrategyCost(NamedTuple):
    """The cost of a conversation under one strategy, in fresh input tokens."""

    name: str
    cost: int
    of_uncached: float
    hit_share: float


@dataclass(frozen=True, slots=True)
class WhatIfPage:
    """The strategies, cheapest first."""

    model: str
    requests: int
    rows: tuple[StrategyCost, ...]
    is_cut: bool


def read_what_if(store: Store, found: Conversation) -> WhatIfPage:
    """Replay the newest turns of a conversation under every strategy."""
    length = store.conversations.count_turns(found.id)
    after = max(0, length - TURNS)
    messages = [
        line.entry.message
        for line in store.conversations.entries(found.id, after=after)
        if isinstance(line, ConversationLine) and line.status is None
    ]
    prompt = store.conversations.system_prompt(found.id)
    if prompt:
        messages.insert(0, {"role": "system", "content": prompt})
    model = found.model or MODEL
    calls = requests_of(messages, [])
    if not calls:
        return WhatIfPage(model, 0, (), is_cut=False)
    played = replay(found.id, calls, model.rpartition(":")[2])
    rows = [
        StrategyCost(name, round(totals.cost), totals.of_uncached, totals.hit_share)
        for name, totals in played.totals.items()
    ]
    return WhatIfPage(model, played.requests, tuple(sorted(rows, key=lambda one: one.cost)), is_cut=after > 0)
