"""The automatic threshold against fixed shares of the window, on every profile and read price."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import Any

from bench.caching.placement import mean
from bench.caching.sessions import PROFILES, Shape, compacted, filler, make_session, tokens_of
from bench.measure import verdict
from everlong import ContextCompressor, Message
from everlong.caching import PromptCache
from everlong.caching.rules import model_rules, prices_for
from everlong.caching.simulation import CacheSimulator

WINDOW = 200_000
FIXED = (0.30, 0.50, 0.70, 0.85)
"""Shares of the window; at 85 % a conversation is compacted whatever it costs."""
MODELS = ("claude-sonnet-4-5", "claude-sonnet-5-5", "claude-fable-5-1")
SEEDS = range(3_000, 3_003)
"""Not those that anything was tuned with."""
SHAPES = {**PROFILES, "digest": replace(PROFILES["serial"], summary=4_000)}
"""The profiles, and one whose summaries are short, as those of tool output are."""
SUMMARY_PRICE = 5.0


def play(shape: Shape, seed: int, model: str, threshold: float | None) -> float:
    """Return the whole cost of a session, summaries included, with a fixed threshold or the engine's automatic one."""
    simulator = CacheSimulator(model, "anthropic", per_block=True)
    cache = PromptCache(model, "anthropic", settings={"strategy": "ledger"}, clock=lambda: 0.0)
    now = 0.0
    engine = ContextCompressor(WINDOW, settings={"threshold": "auto"}, clock=lambda: now)
    engine.prices = prices_for(model)
    extra, number = 0.0, 10**9

    def edit(messages: list[Message], tools: list[dict[str, Any]], at: float) -> list[Message]:
        nonlocal extra, number, now
        now = at
        size = tokens_of(messages, tools)
        limit = engine.threshold_tokens if threshold is None else int(threshold * WINDOW)
        engine.habits.look_at(messages)
        if size < limit:
            return messages
        engine.habits.summarized(shape.summary)
        extra += SUMMARY_PRICE * shape.summary + simulator.prices.read * size
        number += 1
        return compacted(messages, lambda tokens: filler(number, tokens), shape.summary, limit // 5)

    for call in make_session(shape, seed, edit):
        outcome = simulator.send(cache.apply(call.body, call.at), call.at)
        engine.update_from_response({"prompt_tokens": outcome.prompt})
    return simulator.totals.cost + extra


def main() -> None:
    """Print each threshold's cost over that of the best."""
    print(f"\nTotal cost over the best fixed threshold's; window {WINDOW:,}, 200 calls, {len(SEEDS)} seeds")
    print(f"{'':8} {'read':>6}" + "".join(f"{share:>8.0%}" for share in FIXED) + f"{'auto':>8}")
    choices: list[float | None] = [*FIXED, None]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for profile, shape in SHAPES.items():
            for model in MODELS:
                work = [(shape, seed, model, choice) for choice in choices for seed in SEEDS]
                costs = pool.starmap(play, work, chunksize=1)
                means = [mean(costs[at : at + len(SEEDS)]) for at in range(0, len(costs), len(SEEDS))]
                _print(profile, model, means[:-1], means[-1])


def _print(profile: str, model: str, fixed: list[float], auto: float) -> None:
    best = min(fixed)
    words = verdict(auto / best, 1.04), verdict(auto / fixed[1], 1.01)
    print(
        f"{profile:8} {model_rules(model).read:>6}"
        + "".join(f"{cost / best:>8.3f}" for cost in [*fixed, auto])
        + f"  of the best {words[0]}, of 50 % {words[1]}",
        flush=True,
    )
