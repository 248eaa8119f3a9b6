"""Means over conversations, each conversation counting once, with bootstrap intervals that resample conversations.

Knows nothing of how the trials came to be.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.retention.measures import Share
from bench.retention.trials import Trial

MEASURES = ("recall", "bound", "far", "files", "turns", "valid")
RESAMPLES = 1_000
SEED = 7


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its 95 % interval, over so many conversations."""

    value: float
    low: float
    high: float
    conversations: int


@dataclass(slots=True)
class Row:
    """One method at one share over one kind of conversations."""

    kind: str
    method: str
    share: float
    chained: bool
    means: dict[str, Mean | None] = field(default_factory=dict)
    kept_share: float = 0.0
    largest_share: float = 0.0
    tokens: float = 0.0
    facts: int = 0
    left_out_of_bound: int = 0
    invented: int = 0
    compactions: int = 0
    unreached: int = 0
    seconds: float = 0.0


def rows(trials: Sequence[Trial]) -> list[Row]:
    """Return a row for every kind, share and method, and for all kinds together where there are several."""
    kinds = sorted({trial.kind for trial in trials})
    found = []
    for kind in [*kinds, *(["all"] if len(kinds) > 1 else [])]:
        groups: dict[tuple[bool, float, str], list[Trial]] = {}
        for trial in trials:
            if kind in (trial.kind, "all"):
                groups.setdefault((trial.chained, trial.share, trial.method), []).append(trial)
        found += [_row(kind, group) for group in groups.values()]
    return found


def _row(kind: str, trials: Sequence[Trial]) -> Row:
    first = trials[0]
    reached = [trial for trial in trials if trial.reached]
    row = Row(kind, first.method, first.share, first.chained)
    row.means = {measure: mean_of(reached, measure) for measure in MEASURES}
    row.compactions, row.unreached = len(trials), len(trials) - len(reached)
    row.facts = sum(trial.recall.of for trial in reached)
    row.left_out_of_bound = row.facts - sum(trial.bound.of for trial in reached)
    row.invented = sum(len(trial.invented) for trial in reached)
    row.seconds = sum(trial.seconds for trial in trials)
    if reached:
        shares = [trial.tokens / max(1, trial.tokens_before) for trial in reached]
        row.kept_share, row.largest_share = sum(shares) / len(shares), max(shares)
        row.tokens = sum(trial.tokens for trial in reached) / len(reached)
    return row


def mean_of(trials: Sequence[Trial], measure: str) -> Mean | None:
    """Return the mean of a measure, each conversation counting once; None where there was nothing to measure."""
    by_conversation: dict[str, Share] = {}
    for trial in trials:
        share: Share = getattr(trial, measure)
        by_conversation[trial.conversation] = by_conversation.get(trial.conversation, Share()).plus(share)
    values = [share.kept / share.of for share in by_conversation.values() if share.of]
    if not values:
        return None
    low, high = interval(values)
    return Mean(sum(values) / len(values), low, high, len(values))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the middle 95 % of the means of resampled values."""
    rng = random.Random(SEED)
    means = sorted(sum(rng.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
