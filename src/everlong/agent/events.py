"""Events of an agent: text as it comes, tools, compactions, trouble, and the end.

`as_dict` gives each event as JSON-ready data: one object with its ``type``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from everlong.model import ToolCall
from everlong.providers.base import StopReason, TextDelta, ThinkingDelta, Usage

__all__ = [
    "AgentEvent",
    "Answered",
    "CompactionFinished",
    "CompactionReason",
    "CompactionStarted",
    "Notice",
    "Restarted",
    "SessionStarted",
    "Stop",
    "TextDelta",
    "ThinkingDelta",
    "ToolFinished",
    "ToolStarted",
    "TurnFinished",
    "as_dict",
    "unheard",
]

CompactionReason = Literal["preflight", "threshold", "overflow", "model switch", "hygiene", "manual"]
"""The reason for a compaction."""

Stop = Literal["end", "length", "refusal", "limit", "interrupted"]
"""The reason for the end of a turn."""


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A session begins, or is resumed."""

    session_id: str
    model: str
    is_resumed: bool = False


@dataclass(frozen=True, slots=True)
class Restarted:
    """The answer broke off and is asked for again; its text so far does not count."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer of the model is complete and stored."""

    text: str
    usage: Usage
    stop: StopReason
    cost: float | None
    """US dollars; None where the price is unknown."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is about to run."""

    call: ToolCall
    summary: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has answered."""

    call: ToolCall
    summary: str
    outcome: str
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """The conversation is about to be compacted."""

    reason: CompactionReason
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """The end of a compaction; figures that the engine does not give are None."""

    reason: CompactionReason
    outcome: str
    """``compacted``, ``unchanged``, or ``busy`` or ``lost`` if another process compacted it."""
    session_id: str
    """The session that goes on."""
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    seconds: float
    summarizer: str | None = None
    fallback: str | None = None
    quality: str | None = None
    """The findings of the checks, in words."""
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something went wrong and the conversation goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The end of a turn: its answer, its reason, and what it took."""

    text: str
    stop: Stop
    detail: str
    """More about the end, such as the limit that was reached; else empty."""
    steps: int
    usage: Usage
    cost: float
    seconds: float
    session_id: str


AgentEvent: TypeAlias = (
    SessionStarted
    | TextDelta
    | ThinkingDelta
    | Restarted
    | Answered
    | ToolStarted
    | ToolFinished
    | CompactionStarted
    | CompactionFinished
    | Notice
    | TurnFinished
)

_NAMES = {
    SessionStarted: "session",
    TextDelta: "text",
    ThinkingDelta: "thinking",
    Restarted: "restart",
    Answered: "answer",
    ToolStarted: "tool_start",
    ToolFinished: "tool_end",
    CompactionStarted: "compaction_start",
    CompactionFinished: "compaction_end",
    Notice: "notice",
    TurnFinished: "end",
}


def unheard(event: AgentEvent) -> None:
    """Ignore an event."""
    del event


def as_dict(event: AgentEvent) -> dict[str, Any]:
    """Return an event as JSON-ready data."""
    values = asdict(event)
    for name in ("usage", "call"):
        if isinstance(value := getattr(event, name, None), Usage):
            values[name] = value.to_dict()
        elif isinstance(value, ToolCall):
            values[name] = value._asdict()
    return {"type": _NAMES[type(event)], **values}
