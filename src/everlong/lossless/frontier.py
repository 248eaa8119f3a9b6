"""The frontier of a graph: which runs of messages become leaves, and which summaries are condensed.

Pure arithmetic over sizes. A leaf covers whole groups, so that no call is parted from its results. Summaries of one
level are condensed when there are many of them, and whenever the frontier has no room; the oldest go first, so that
recent work is told in more detail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everlong.context.invariants import allows_cut
from everlong.errors import EverlongError
from everlong.lossless.graph import ROOT, SummaryNode
from everlong.model import Message

FAN_IN = 4
"""Summaries of one level that are condensed into one of the next."""
KEPT = 2
"""Summaries of a level that stay beside the next ones to be condensed."""


class GraphBroken(EverlongError):  # noqa: N818 - reads as the fact that it states
    """A frontier does not cover every message once; nothing is compacted with it."""


class GraphSizes(NamedTuple):
    """The sizes of a graph's parts, in tokens."""

    total: int
    """All summaries of the frontier together."""
    node: int
    leaf: int


def sizes_for(window: int) -> GraphSizes:
    """Return the sizes for a window: a tenth of the frontier for a summary, and 16 times as much for its source."""
    total = max(_LEAST_TOTAL, min(int(window * _SHARE), _MOST_TOTAL))
    node = max(_LEAST_NODE, min(_LARGEST_NODE, total // 10))
    return GraphSizes(total, node, _SOURCE_PER_SUMMARY * node)


_SHARE = 0.10
"""Share of the window that all summaries in the context take together."""
_LEAST_TOTAL, _MOST_TOTAL = 200, 16_000
_LEAST_NODE, _LARGEST_NODE = 60, 1_500
_SOURCE_PER_SUMMARY = 16
"""With 8, a conversation of 60 steps cost 1.29 times what it cost with the compressor, with 16 it costs 1.07 times."""


def cut_runs(messages: Sequence[Message], counts: Sequence[int], leaf: int) -> list[tuple[int, int]]:
    """Return the runs of messages that become leaves: whole groups, each until it has the size of a leaf."""
    runs: list[tuple[int, int]] = []
    start, tokens = 0, 0
    for place, count in enumerate(counts):
        if tokens >= leaf and allows_cut(messages, place):
            runs.append((start, place))
            start, tokens = place, 0
        tokens += count
    if start < len(messages):
        runs.append((start, len(messages)))
    return runs


def full_run(nodes: Sequence[SummaryNode]) -> tuple[int, int] | None:
    """Return the oldest summaries of the lowest level that has enough of them to be condensed; None if none has."""
    for level in sorted({node.made.level for node in nodes}):
        places = [place for place, node in enumerate(nodes) if node.made.level == level]
        start = places[0]
        length = _length_of(nodes, start)
        if length >= FAN_IN + KEPT:
            return start, start + FAN_IN
    return None


def crowded_run(nodes: Sequence[SummaryNode]) -> tuple[int, int]:
    """Return the summaries to condense in a frontier of at least two that has no room: of the lowest level first."""
    for level in sorted({node.made.level for node in nodes}):
        start = next(place for place, node in enumerate(nodes) if node.made.level == level)
        length = min(FAN_IN, _length_of(nodes, start))
        if length > 1:
            return start, start + length
    return 0, 2


def _length_of(nodes: Sequence[SummaryNode], start: int) -> int:
    """Return how many summaries of the same level follow each other from a place on."""
    level = nodes[start].made.level
    end = start
    while end < len(nodes) and nodes[end].made.level == level:
        end += 1
    return end - start


def frontier_problems(nodes: Sequence[SummaryNode], last: str) -> list[str]:
    """Return what is wrong with a frontier as a partition of all messages up to the last one."""
    problems: list[str] = []
    at = ROOT
    for node in nodes:
        if node.made.after != at:
            problems.append(f"{node.id} begins after message {node.made.after or 'none'}, not after {at or 'none'}")
        at = node.made.last
    if at != last:
        problems.append(f"the summaries end at message {at or 'none'}, and the newest messages follow {last or 'none'}")
    return problems
