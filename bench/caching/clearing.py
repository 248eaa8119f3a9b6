"""Cost of clearing old results: never, at every request, only when cold, or by the decision with its arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bench.caching.placement import MODEL, mean
from bench.caching.sessions import (
    PROFILES,
    Shape,
    cleared,
    compacted,
    filler,
    make_session,
    message_size,
    tokens_of,
)
from bench.measure import verdict
from everlong.caching import PromptCache
from everlong.caching.editing import worth_editing
from everlong.caching.simulation import CacheSimulator
from everlong.model import Message

KEEP = 20_000
SUMMARY_PRICE = 5.0
Policy = Callable[[list[Message], list[Message], bool], bool]
"""A decision to clear: gets the messages as they are and cleared, and whether the provider has forgotten them."""


def by_decision(before: list[Message], after: list[Message], is_cold: bool) -> bool:
    """Clear when the decision object says that it is worth it."""
    sizes = [(message_size(old), message_size(new)) for old, new in zip(before, after, strict=True)]
    first = next((at for at, (old, new) in enumerate(sizes) if old != new), len(sizes))
    gain = sum(old - new for old, new in sizes) // 4
    return worth_editing(gain, sum(new for _, new in sizes[first:]) // 4, is_cold=is_cold, model=MODEL).is_worth_it


POLICIES: dict[str, Policy] = {
    "never": lambda _before, _after, _cold: False,
    "every request": lambda _before, _after, _cold: True,
    "when cold": lambda _before, _after, cold: cold,
    "decision": by_decision,
}


def play(shape: Shape, seed: int, policy: Policy) -> float:
    """Return the whole cost of a session, summaries included."""
    simulator = CacheSimulator(MODEL, "anthropic", per_block=True)
    cache = PromptCache(MODEL, "anthropic", settings={"strategy": "ledger"}, clock=lambda: 0.0)
    extra = 0.0
    number = 10**9

    def edit(messages: list[Message], tools: list[dict[str, Any]], now: float) -> list[Message]:
        nonlocal extra, number
        shorter = cleared(messages, KEEP)
        if shorter is not messages and policy(messages, shorter, cache.is_cold(now)):
            messages = shorter
        if (size := tokens_of(messages, tools)) < shape.compact_at:
            return messages
        extra += SUMMARY_PRICE * shape.summary + simulator.prices.read * size
        number += 1
        return compacted(messages, lambda tokens: filler(number, tokens), shape.summary, shape.tail)

    for call in make_session(shape, seed, edit):
        simulator.send(cache.apply(call.body, call.at), call.at)
    return simulator.totals.cost + extra


def main() -> None:
    """Print the cost of each policy over that of never clearing."""
    print("\nTotal cost over that of never clearing (6 seeds)")
    print(f"{'':24}" + "".join(f"{name:>16}" for name in POLICIES))
    for share in (0.0, 1 / 25):
        for profile, shape in PROFILES.items():
            paused = replace(shape, pause_share=share)
            costs = {name: [play(paused, seed, policy) for seed in range(6)] for name, policy in POLICIES.items()}
            ratios = {
                name: mean([mine / base for mine, base in zip(values, costs["never"], strict=True)])
                for name, values in costs.items()
            }
            allowed = 1.0 if not share else 0.95
            print(
                f"{profile + (', pauses' if share else ', no pauses'):24}"
                + "".join(f"{ratio:>16.3f}" for ratio in ratios.values())
                + f"  <= {allowed} {verdict(ratios['decision'], allowed + 0.0005)}"
            )
