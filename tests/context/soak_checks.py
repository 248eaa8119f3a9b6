"""Everything that must hold when a conversation is compacted at one window, as one function for long runs.

Shared by the short run among the tests and the long one of the benchmarks. Gives problems in plain words instead of
raising, so that a long run can go on and count them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

from everlong.context import ContextCompressor
from everlong.context.invariants import check_all
from everlong.model import Message
from tests.context.brute_force import most_allowed
from tests.context.engines import repaired
from tests.context.protocol import problems, role_problems

WINDOWS = (4_000, 8_000, 32_000, 128_000)
EVERY = 10
"""A conversation is cut at every so manieth message."""


class Checked(NamedTuple):
    """One compaction: what was wrong with it, and whether only the least possible was too large for the threshold."""

    problems: list[str]
    at_least_possible: bool
    outcome: str


def cuts(messages: list[Message]) -> Iterator[int]:
    """The lengths at which a conversation is tried."""
    yield from range(EVERY, len(messages), EVERY)
    if messages:
        yield len(messages)


def check(messages: list[Message], window: int) -> Checked:
    """Compact a conversation and hold the result against the contract."""
    before = copy.deepcopy(messages)
    engine = ContextCompressor(window)
    result = engine.compress(messages)
    report = engine.last_report
    mended = repaired(before)
    found = [*map(str, check_all(result, mended)), *problems(result), *role_problems(result)]
    if messages != before:
        found.append("the input was changed")
    size, size_before = sum(engine.counter.counts(result)), sum(engine.counter.counts(mended))
    if size > size_before:
        found.append(f"{size} tokens, more than the {size_before} of the repaired input")
    too_large = size > engine.threshold_tokens
    if size > (most := most_allowed(engine, mended)):
        found.append(f"{size} tokens, over the threshold {engine.threshold_tokens} and the most allowed {most}")
    resting = engine.compress(result, force=True)
    if engine.compress(resting, force=True) != resting:
        found.append("a second compaction at once changed the result")
    return Checked(found, too_large, report.outcome if report else "none")
