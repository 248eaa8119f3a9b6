"""What one compaction leaves behind for whoever wants it explained: the choice's notes and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from everlong.context.boundary import Layout, Limits, Plan
from everlong.context.report import Outcome
from everlong.context.summarize import Written
from everlong.context.summary.trace import Recording
from everlong.model import Message


@dataclass(frozen=True, slots=True)
class Ended:
    """The lists and the plan of a finished compaction."""

    repaired: list[Message]
    """The input as it was compacted; the plan's indices are its."""
    counts: list[int]
    messages: list[Message]
    """The result."""
    layout: Layout
    limits: Limits
    plan: Plan
    outcome: Outcome
    written: Written | None
    """The summary, where there is one."""
    prune_min_chars: int


@dataclass(slots=True)
class Recorder:
    """Handed along with a request; afterwards it knows why the result is as it is."""

    trace: Recording = field(default_factory=Recording)
    ended: Ended | None = None
