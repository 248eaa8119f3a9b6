"""The rules of the message protocol, one per file, and what is done with all of them together."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from everlong.context.invariants.base import Invariant, Violation, is_plain
from everlong.context.invariants.latest_user_turn import LatestUserTurn, latest_user_index
from everlong.context.invariants.reasoning_blocks import ReasoningBlocks
from everlong.context.invariants.role_order import RoleOrder
from everlong.context.invariants.tool_pairing import ToolPairing
from everlong.model import Message, checked_messages

__all__ = [
    "STRUCTURAL",
    "Invariant",
    "LatestUserTurn",
    "ReasoningBlocks",
    "RoleOrder",
    "ToolPairing",
    "Violation",
    "allows_cut",
    "check_all",
    "is_plain",
    "latest_user_index",
    "repair_all",
    "repair_messages",
]

STRUCTURAL: tuple[Invariant, ...] = (ToolPairing(), ReasoningBlocks(), RoleOrder())
"""The rules that hold for a list by itself; `LatestUserTurn` holds for a list and its source."""


def allows_cut(messages: Sequence[Message], index: int) -> bool:
    """Whether every rule allows a cut before ``index``; the ends of a list are always allowed."""
    if index <= 0 or index >= len(messages):
        return True
    return all(invariant.allows_cut(messages, index) for invariant in STRUCTURAL)


def check_all(
    messages: Sequence[Message], source: Sequence[Message] | None = None, summaries: Collection[int] | None = None
) -> list[Violation]:
    """Everything that is wrong with a list; with its source, also whether the request in force survived."""
    rules = STRUCTURAL if source is None else (*STRUCTURAL, LatestUserTurn(source, summaries))
    return [violation for invariant in rules for violation in invariant.check(messages)]


def repair_all(messages: list[Message]) -> list[Message]:
    """The list mended by every structural rule; the very same list where nothing was wrong."""
    if is_plain(messages):
        return messages
    for invariant in STRUCTURAL:
        messages = invariant.repair(messages)
    return messages


def repair_messages(messages: list[Message]) -> list[Message]:
    """A new list that any provider takes: results with their calls, orphans gone, a stub where a result is missing.

    Calls at the very end stay open. The input and its messages are left as they are.

    Raises:
        MessageError: ``messages`` is not a list of messages.
    """
    return repair_all(checked_messages(messages))
