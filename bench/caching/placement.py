"""Markers against the oracle: what each strategy pays on made-up sessions, and what it still reads after a fan-out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.caching.sessions import PROFILES, MadeUpCall, Shape, make_session
from bench.measure import verdict
from everlong.caching import PromptCache
from everlong.caching.simulation import CacheSimulator, Totals

MODEL = "claude-sonnet-4-5"
SEEDS = range(12)
STRATEGIES: dict[str, dict[str, Any]] = {
    "off": {"strategy": "off"},
    "system_and_3": {"strategy": "system_and_3"},
    "ledger": {"strategy": "ledger"},
}
BARS: dict[str, tuple[float, float, float]] = {
    "ledger": (1.19, 1.16, 1.13),
}


def play(shape: Shape, seed: int, settings: Mapping[str, Any]) -> Totals:
    """Play one session under one strategy, look-back counted per block."""
    simulator = CacheSimulator(MODEL, "anthropic", per_block=True)
    cache = PromptCache(MODEL, "anthropic", settings=settings, clock=lambda: 0.0)
    for call in make_session(shape, seed):
        simulator.send(cache.apply(call.body, call.at), call.at)
    return simulator.totals


def compare(shapes: Mapping[str, Shape], names: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, list[Totals]]]:
    """Play every strategy on every profile, with all seeds."""
    return {
        name: {profile: [play(shape, seed, settings) for seed in SEEDS] for profile, shape in shapes.items()}
        for name, settings in names.items()
    }


def mean(values: list[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)


def print_table(share: float) -> None:
    """Print the costs over the oracle's for one share of pauses."""
    shapes = {name: replace(shape, pause_share=share) for name, shape in PROFILES.items()}
    print(
        f"\nInput cost over the oracle's; a pause of 6 to 40 minutes in {share:.0%} of calls; 12 seeds, 200 calls each"
    )
    print(f"{'':22}" + "".join(f"{name:>22}" for name in shapes))
    results = compare(shapes, STRATEGIES)
    for name, by_profile in results.items():
        cells = []
        for place, totals in enumerate(by_profile.values()):
            cost = mean([total.over_oracle for total in totals])
            bar = BARS.get(name)
            word = f"<= {bar[place]:.2f} {verdict(cost, bar[place])}" if bar else ""
            cells.append(f"{cost:8.3f} {word:13}")
        print(f"{name:22}" + "".join(cells))
    ledger = results["ledger"]
    shares = {name: mean([total.of_uncached for total in totals]) for name, totals in ledger.items()}
    words = {name: verdict(shares[name], 0.25) for name in ("serial", "mixed")}
    print(
        "ledger as a share of the uncached cost: "
        + ", ".join(f"{n} {s:.3f} {words.get(n, '')}" for n, s in shares.items())
    )


def print_forks() -> None:
    """Print forks and rewinds: session by session, the ledger against the plain strategy."""
    shapes = {name: replace(shape, forks=0.03, rewinds=0.05) for name, shape in PROFILES.items()}
    chosen = {name: STRATEGIES[name] for name in ("system_and_3", "ledger")}
    results = compare(shapes, chosen)
    print("\nWith forks and rewinds (12 seeds)")
    for profile in shapes:
        plain, ledger = (results[name][profile] for name in chosen)
        behind = sum(mine.cost > theirs.cost * 1.0001 for mine, theirs in zip(ledger, plain, strict=True))
        print(
            f"{profile:8} system_and_3 {mean([t.over_oracle for t in plain]):.3f}  ledger "
            f"{mean([t.over_oracle for t in ledger]):.3f}  sessions behind: {behind}  {verdict(behind, 0)}"
        )


def print_fan_out() -> None:
    """Print one step with many parallel calls on a warm prefix."""
    print("\nShare of the warm prefix that is still read after one step of parallel calls")
    for width in (12, 60):
        cells = []
        for name in ("system_and_3", "ledger"):
            shares = [fan_out_share(width, STRATEGIES[name], per_block=per_block) for per_block in (True, False)]
            word = verdict(min(shares), 0.95, at_least=True) if name == "ledger" else ""
            cells.append(f"{name} {shares[0]:.1%} per block, {shares[1]:.1%} with collapsed runs {word}")
        print(f"{width:3} calls: " + "; ".join(cells))


def fan_out_share(width: int, settings: Mapping[str, Any], *, per_block: bool) -> float:
    """Return the tokens read in the request after a fan-out, as a share of the prompt before it."""
    shape = Shape(calls=30, pause_share=0.0, compact_at=0, asks=0.0)
    *before, last = make_session(shape, "fan-out")
    wide = Shape(calls=2, pause_share=0.0, compact_at=0, asks=0.0, fan_out=((1.0, width, width),))
    step = list(make_session(wide, "wide step"))[-1].messages[2:]
    simulator = CacheSimulator(MODEL, "anthropic", per_block=per_block)
    cache = PromptCache(MODEL, "anthropic", settings=settings, clock=lambda: 0.0)
    for call in [*before, last]:
        warm = simulator.send(cache.apply(call.body, call.at), call.at)
    after = MadeUpCall(last.at + 30, [*last.messages, *step], last.tools)
    return simulator.send(cache.apply(after.body, after.at), after.at).read / warm.prompt


def main() -> None:
    """Print all tables."""
    for share in (1 / 25, 1 / 50):
        print_table(share)
    print_forks()
    print_fan_out()
