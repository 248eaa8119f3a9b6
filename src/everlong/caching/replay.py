"""A recorded or made-up session under every strategy, request by request, beside no caching and the oracle.

A recorded conversation is one list; its requests are taken to be the prefixes that end before each assistant message.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from everlong.caching.blocks import Count, rough_count
from everlong.caching.keepalive import keep_alive, ping_request
from everlong.caching.rules import Provider, cache_rules, provider_of
from everlong.caching.simulate import CacheSimulator, Outcome, Totals
from everlong.caching.strategy import PromptCache
from everlong.model import Message

__all__ = ["STRATEGIES", "Replay", "replay", "requests_of"]

STRATEGIES: dict[str, dict[str, Any]] = {
    "off": {"strategy": "off"},
    "system_and_3": {"strategy": "system_and_3"},
    "ledger": {"strategy": "ledger"},
    "ledger, prefix 1h": {"strategy": "ledger", "prefix_ttl": "1h"},
    "ledger, prefix auto": {"strategy": "ledger", "prefix_ttl": "auto"},
    "ledger, 1h": {"strategy": "ledger", "cache_ttl": "1h"},
    "ledger, keep-alive": {"strategy": "ledger", "keep_alive": True},
}
_PAUSE = (360.0, 2_400.0)


@dataclass(frozen=True, slots=True)
class Replay:
    """What one session cost under each strategy."""

    name: str
    model: str
    provider: Provider
    outcomes: dict[str, list[Outcome]]

    @property
    def totals(self) -> dict[str, Totals]:
        """The sums for each strategy."""
        return {strategy: Totals.of(outcomes) for strategy, outcomes in self.outcomes.items()}

    @property
    def requests(self) -> int:
        """How many requests the session has, pings not counted."""
        return next(iter(self.totals.values())).requests

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready data."""
        strategies = {
            strategy: {
                "cost": totals.cost,
                "over_oracle": totals.over_oracle,
                "of_uncached": totals.of_uncached,
                "hit_share": totals.hit_share,
                "missed_by_reason": totals.reasons,
                "requests": [asdict(outcome) for outcome in self.outcomes[strategy]],
            }
            for strategy, totals in self.totals.items()
        }
        any_totals = next(iter(self.totals.values()))
        return {
            "name": self.name,
            "model": self.model,
            "provider": self.provider,
            "requests": self.requests,
            "uncached": any_totals.uncached,
            "oracle": any_totals.oracle,
            "strategies": strategies,
        }


def requests_of(
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    *,
    gap: float = 30.0,
    pauses: float = 0.0,
    seed: int = 0,
) -> list[tuple[float, dict[str, Any]]]:
    """The requests that led to a conversation, with made-up times."""
    ends = [at for at, message in enumerate(messages) if message.get("role") == "assistant" and at]
    if not ends or ends[-1] != len(messages) - 1:
        ends.append(len(messages))
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    now = 0.0
    found: list[tuple[float, dict[str, Any]]] = []
    for end in ends:
        if not any(message.get("role") != "system" for message in messages[:end]):
            continue
        if found:
            now += rng.uniform(*_PAUSE) if rng.random() < pauses else gap
        body: dict[str, Any] = {"messages": list(messages[:end])}
        found.append((now, {**body, "tools": list(tools)} if tools else body))
    return found


def replay(
    name: str,
    calls: Sequence[tuple[float, dict[str, Any]]],
    model: str,
    provider: str = "",
    *,
    per_block: bool = True,
    count: Count = rough_count,
) -> Replay:
    """Play a session under every strategy that makes a difference at the provider."""
    found = provider_of(provider, model=model)
    rules = cache_rules(found, model)
    chosen = STRATEGIES if rules.style == "markers" else {"automatic": {"strategy": "auto"}}
    outcomes = {
        strategy: _play(calls, model, found, settings, per_block=per_block, count=count)
        for strategy, settings in chosen.items()
    }
    return Replay(name, model, found, outcomes)


def _play(
    calls: Sequence[tuple[float, dict[str, Any]]],
    model: str,
    provider: Provider,
    settings: dict[str, Any],
    *,
    per_block: bool,
    count: Count,
) -> list[Outcome]:
    simulator = CacheSimulator(model, provider, per_block=per_block, count=count)
    cache = PromptCache(model, provider, settings=settings, count=count, clock=lambda: 0.0)
    before: tuple[float, dict[str, Any]] | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a short prompt shows in the figures
        for at, body in calls:
            if before is not None and cache.settings.keep_alive and cache.last is not None:
                ping = ping_request(before[1])
                for when in keep_alive(before[1], cache.last.prompt_tokens, simulator.prices).times(before[0], at):
                    simulator.send(ping or before[1], when, is_ping=True)
                    cache.touch(when)
            sent = cache.apply(body, at)
            simulator.send(sent, at)
            before = (at, sent)
    return simulator.outcomes
