"""The frontier of a graph: which runs of messages become leaves, which summaries are condensed, and its text.

A leaf covers whole groups, so that no call is parted from its results. Summaries of one level are condensed when there
are many of them, and whenever the frontier has no room; the oldest go first, so that recent work is told in more
detail. In the summary message each summary stands under a heading with its id, by which a tool opens it, and by which
the engine knows, at the next compaction or after a restart, on which summaries a conversation stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from everlong.context.invariants import allows_cut
from everlong.context.text import TextCount, shorten_text
from everlong.errors import EverlongError
from everlong.lossless.graph import ROOT, SummaryNode
from everlong.model import Message, counted

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


# -- its text ----------------------------------------------------------------------------------------------------------

INTRODUCTION = (
    "Every earlier message is kept. These are summaries of them, oldest first; lcm_expand opens one by its id, down to "
    "the original words, and lcm_grep searches all of them."
)
STATE_HEADING = "# Where the work stands"
"""The line before the exact state of the work, which follows the summaries."""
_NODE = re.compile(r"^# Summary (s-[0-9a-f]{12})\b.*$", re.MULTILINE)
_POSING = re.compile(r"^# (?=Summary s-|Where the work)", re.MULTILINE)


def render_node(node: SummaryNode, text: str | None = None) -> str:
    """Return a summary under its heading; ``text`` stands for its own words where these have no room."""
    return f"{heading_of(node)}\n{_POSING.sub('## ', node.made.text if text is None else text)}".rstrip()


def heading_of(node: SummaryNode) -> str:
    """Return the line that names a summary: its id, its size and its time."""
    made = node.made
    count = counted(made.messages, "message")
    when = "" if node.started is None or node.ended is None else f", {_span(node.started, node.ended)}"
    return f"# Summary {node.id} ({count}{when})"


def _span(started: float, ended: float) -> str:
    first, last = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in (started, ended))
    if first == last:
        return first
    return f"{first} to {last[11:] if first[:10] == last[:10] else last}"


def render_frontier(nodes: Sequence[SummaryNode], state: str, room: int, count: TextCount) -> str:
    """Return the whole text of a frontier within so many tokens; what has no room is named by its id."""
    end = [f"{STATE_HEADING}\n{state}"] if state else []
    whole = "\n\n".join([INTRODUCTION, *map(render_node, nodes), *end])
    if count(whole) <= room:
        return whole
    # A room this small has one summary at most; it is shown in part, and last of all only by its id.
    frame = "\n\n".join([INTRODUCTION, *(heading_of(node) for node in nodes), *end])
    left = room - count(frame)
    if left > 0 and nodes:
        share = left // len(nodes)
        parts = [render_node(node, shorten_text(node.made.text, share, count, otherwise="")) for node in nodes]
        shown = "\n\n".join([INTRODUCTION, *parts, *end])
        if count(shown) <= room:
            return shown
    for shown in (frame, "\n".join(map(heading_of, nodes))):
        if count(shown) <= room:
            return shown
    return "\n".join(f"# Summary {node.id}" for node in nodes)


def read_node_ids(text: str) -> list[str]:
    """Return the ids of the summaries that a text shows, oldest first."""
    return _NODE.findall(text)


def read_state(text: str) -> str:
    """Return the state of the work that a text ends with; empty if it has none."""
    _, found, state = text.rpartition(f"{STATE_HEADING}\n")
    return state if found else ""
