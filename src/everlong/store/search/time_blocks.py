"""The latest matches by time, without sorting all of them: messages are mostly stored in the order of their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from everlong.store.search.index import BLOCK_BITS, SearchPlace

FIRST_BLOCKS = 2
MOST_RUNS = 32


class TimeBlock(NamedTuple):
    """A block of messages that follow each other by number, and the latest time of one of them."""

    block: int
    last: float


def latest_places(
    blocks: Sequence[TimeBlock], between: Callable[[int, int], list[SearchPlace]], limit: int, low: int, high: int
) -> list[SearchPlace]:
    """Return the latest places: block by block, until no other block can have a later one.

    Args:
        blocks: the blocks that count, the latest first.
        between: finds the latest places between two numbers, both included.
        limit: the number of places that are wanted.
        low: the lowest number that counts.
        high: the highest one.
    """
    found: dict[int, SearchPlace] = {}
    start, size = 0, FIRST_BLOCKS
    while start < len(blocks):
        for first, last in _runs(sorted(one.block for one in blocks[start : start + size])):
            for place in between(max(low, first << BLOCK_BITS), min(high, ((last + 1) << BLOCK_BITS) - 1)):
                found[place.seq] = place
        start += size
        size *= 4
        if start < len(blocks) and sum(place.ts > blocks[start].last for place in found.values()) >= limit:
            break
    return list(found.values())


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and last of numbers that follow each other; of too many such runs, the whole range."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs if len(runs) <= MOST_RUNS else [(numbers[0], numbers[-1])]
