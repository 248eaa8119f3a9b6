"""Reports of the measures: tables and samples of losses for people, plain values for JSON."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.retention.measures import Share
from bench.retention.summary import MEASURES, SEED, Mean, Row
from bench.retention.trials import Miss, Trial

_TITLES = {"recall": "FRR", "bound": "bound", "far": "far", "files": "files", "turns": "turns", "valid": "valid"}
LEGEND = """\
FRR: facts that later turns use and that still stand in the context; bound: with at least two of the words that they
stood with, within 160 characters (no-bound: facts that never had two such words, left out there); far: of the facts
last said before the final 20 %; files: written and still named; turns: user turns with half of their words together;
kept: mean and largest share of the tokens, system prompt left out; n/r: cuts at which the share was not reached, left
out of all means. Intervals: 95 % of resamples of the conversations, each of which counts once."""


def print_table(found: Sequence[Row]) -> None:
    """Print all rows, a block for every kind."""
    for kind in dict.fromkeys(row.kind for row in found):
        for chained in (False, True):
            mine = [row for row in found if row.kind == kind and row.chained == chained]
            if mine:
                _print_block(f"{kind}, {'after a chain' if chained else 'one compaction'}", mine)
    print(LEGEND)


def _print_block(title: str, found: Sequence[Row]) -> None:
    conversations = max((mean.conversations for row in found if (mean := row.means["valid"])), default=0)
    print(f"{title}: {conversations} conversations, up to {max(row.compactions for row in found)} cuts")
    heads = " ".join(f"{_TITLES[measure]:>15}" for measure in MEASURES[:3])
    print(
        f"{'share':>6} {'method':<14} {heads}  files turns valid invented  facts no-bound   kept  (max) tokens"
        "  n/r    ms"
    )
    for row in found:
        wide = " ".join(_with_interval(row.means[measure]) for measure in MEASURES[:3])
        narrow = " ".join(_short(row.means[measure]) for measure in MEASURES[3:])
        print(
            f"{row.share:>6.2f} {row.method:<14} {wide}  {narrow} {row.invented:>8,} {row.facts:>6,} "
            f"{row.left_out_of_bound:>8,} {row.kept_share:>6.3f} {row.largest_share:>6.3f} {row.tokens:>6,.0f} "
            f"{row.unreached:>4,} {1000 * row.seconds / max(1, row.compactions):>5.0f}"
        )
    print()


def _with_interval(mean: Mean | None) -> str:
    return f"{'–':>15}" if mean is None else f"{mean.value:>5.3f} {mean.low:.2f}–{mean.high:.2f}"


def _short(mean: Mean | None) -> str:
    return "    –" if mean is None else f"{mean.value:>5.2f}"


def print_misses(trials: Sequence[Trial], wanted: int) -> None:
    """Print the losses of the first method at its smallest share: by kind and place, then samples."""
    first = min(trials, key=lambda trial: trial.share)
    mine = [trial for trial in trials if (trial.method, trial.share) == (first.method, first.share)]
    misses = [miss for trial in mine for miss in trial.misses]
    print(f"recall by kind of fact, {first.method} at {first.share:.2f}, all facts pooled: {_by_kind(mine)}")
    for unbound in (False, True):
        lost = [miss for miss in misses if miss.unbound == unbound]
        what = "kept without what they were about" if unbound else "lost"
        print(f"facts {what} by {first.method} at {first.share:.2f}: {len(lost):,}")
        if not lost:
            continue
        print("  by kind:  " + _counted(Counter(miss.kind for miss in lost)))
        print("  stood in: " + _counted(Counter(_source(miss.stood) for miss in lost)))
        print("  used in:  " + _counted(Counter(_source(miss.used) for miss in lost)))
        print(f"  far: {sum(miss.far for miss in lost):,} of {len(lost):,}")
        for miss in random.Random(SEED).sample(lost, min(wanted, len(lost))):
            _print_miss(miss)
        print()


def _by_kind(trials: Sequence[Trial]) -> str:
    pooled: dict[str, Share] = {}
    for trial in trials:
        for kind, share in trial.by_kind.items():
            pooled[kind] = pooled.get(kind, Share()).plus(share)
    ordered = sorted(pooled.items(), key=lambda entry: -entry[1].of)
    return ", ".join(f"{kind} {share.kept / share.of:.2f} of {share.of:,}" for kind, share in ordered)


def _print_miss(miss: Miss) -> None:
    print(f"  {miss.fact}  ({miss.kind}{', far' if miss.far else ''}; {miss.conversation} cut {miss.cut})")
    print(f"      stood {miss.stood}: {miss.line}")
    print(f"      used  {miss.used}: {miss.used_line}")
    if miss.unbound:
        print(f"      company: {', '.join(miss.company)}")


def _source(place: str) -> str:
    return place.partition("[")[0]


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common(8))


def print_wrong(trials: Sequence[Trial], wanted: int = 10) -> None:
    """Print inventions and broken rules of the engine, a few of each."""
    mine = [trial for trial in trials if trial.method == "extractive"]
    for title, found in (
        ("invented", [(t, what) for t in mine for what in t.invented]),
        ("not valid", [(t, what) for t in mine for what in t.problems]),
    ):
        for trial, what in found[:wanted]:
            print(f"{title}: {what}  ({trial.conversation} cut {trial.cut} share {trial.share:.2f})")
        if len(found) > wanted:
            print(f"{title}: {len(found) - wanted:,} more")


def as_values(found: Sequence[Row], trials: Sequence[Trial], setup: dict[str, Any]) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    return {**setup, "rows": [asdict(row) for row in found], "trials": [asdict(trial) for trial in trials]}
