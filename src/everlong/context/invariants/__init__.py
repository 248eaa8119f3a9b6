"""The rules of the message protocol, one per file, and the functions that apply all of them."""

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
"""The rules for a list by itself; `LatestUserTurn` is a rule for a list and its source."""


def allows_cut(messages: Sequence[Message], index: int) -> bool:
    """Return whether every rule allows a cut before ``index``; at the ends of a list it is always allowed."""
    if index <= 0 or index >= len(messages):
        return True
    return all(invariant.allows_cut(messages, index) for invariant in STRUCTURAL)


def check_all(
    messages: Sequence[Message], source: Sequence[Message] | None = None, summaries: Collection[int] | None = None
) -> list[Violation]:
    """Return all violations in a list; with its source, also that the request in force is missing."""
    rules = STRUCTURAL if source is None else (*STRUCTURAL, LatestUserTurn(source, summaries))
    return [violation for invariant in rules for violation in invariant.check(messages)]


def repair_all(messages: list[Message]) -> list[Message]:
    """Return the list mended by every structural rule; the very same list if nothing was wrong."""
    if is_plain(messages):
        return messages
    for invariant in STRUCTURAL:
        messages = invariant.repair(messages)
    return messages


def repair_messages(messages: list[Message]) -> list[Message]:
    """Return a list that any provider takes: results follow their calls, orphans are gone, missing results are stubs.

    Calls at the very end stay open. The input and its messages are not changed.

    Raises:
        MessageError: ``messages`` is not a list of messages.

    >>> orphan = {"role": "tool", "tool_call_id": "gone", "content": "42"}
    >>> repair_messages([{"role": "user", "content": "hi"}, orphan])
    [{'role': 'user', 'content': 'hi'}]
    """
    return repair_all(checked_messages(messages))
