"""The text of a graph's frontier inside the summary message: one heading per summary, then the state of the work.

The heading names the summary's id, by which a tool opens it. The same headings tell the engine, at the next compaction
or after a restart, which summaries a conversation stands on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from everlong.context.text import TextCount, shorten_text
from everlong.lossless.graph import SummaryNode

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
    count = f"{made.messages:,} message{'' if made.messages == 1 else 's'}"
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
