"""Groups: an assistant message with tool calls, and the results that answer it.

Real logs reuse call ids, leave calls unanswered, give results in any order, interleave the results of parallel calls
and put a person's interruption between a call and its result. So a result is matched by position *and* id: it belongs
to the nearest earlier call with its id that has no result yet. `everlong.context.invariants` decides what to do about
calls or results that stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from everlong.model.message import Message, ToolCall, calls_of


class ToolAnswer(NamedTuple):
    """A result: the index of its message, and the id of the call that it answers."""

    at: int
    call_id: str


@dataclass(slots=True)
class Group:
    """One assistant message with calls: its index, its results in order, and its calls without a result."""

    start: int
    answers: list[ToolAnswer] = field(default_factory=list)
    missing: list[ToolCall] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Grouping:
    """All groups of a list in order, and the indices of results that answer no call."""

    groups: list[Group]
    orphans: list[int]


def find_groups(messages: Sequence[Message]) -> Grouping:
    """Match every tool result of a list to its call."""
    groups: list[Group] = []
    orphans: list[int] = []
    open_by_id: dict[str, list[Group]] = {}
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            calls = calls_of(message)
            if calls:
                group = Group(index, missing=calls)
                groups.append(group)
                for call in calls:
                    open_by_id.setdefault(call.id, []).append(group)
        elif role == "tool" and not _answer(index, message, groups, open_by_id):
            orphans.append(index)
    return Grouping(groups, orphans)


def _answer(index: int, message: Message, groups: list[Group], open_by_id: dict[str, list[Group]]) -> bool:
    """Assign a result to the call that waits for it; return False for an orphan."""
    call_id = message.get("tool_call_id")
    if call_id:
        call_id = str(call_id)  # some servers number their calls
        waiting = open_by_id.get(call_id)
        if not waiting:
            return False
        group = waiting.pop()
        place = next(place for place, call in enumerate(group.missing) if call.id == call_id)
    elif groups and groups[-1].missing:
        # Some local servers send results without an id; then only the position can tell.
        group, place = groups[-1], 0
        call_id = group.missing[0].id
        open_by_id[call_id].remove(group)
    else:
        return False
    del group.missing[place]
    group.answers.append(ToolAnswer(index, call_id))
    return True
