"""The invariant that no inserted message stands beside one of its own role.

A client's own list may have two user messages in a row (people do send two), and these are passed on as they are. But
a summary or acknowledgement next to its own role would be merged or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from everlong.context.invariants.base import Violation
from everlong.context.literals import ACKNOWLEDGEMENT, is_acknowledgement, summary_indices
from everlong.model import Message

_PASSES = 8
"""More than any list needs, because the summary is one of the first few messages."""


class RoleOrder:
    """The rule that roles alternate around inserted messages."""

    name = "role_order"

    def allows_cut(self, messages: Sequence[Message], index: int) -> bool:  # noqa: ARG002 - part of the protocol
        """Allow any cut, because the assembly puts an acknowledgement between the summary and a user message."""
        return True

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return the summaries and acknowledgements beside a message of their own role."""
        roles = [message["role"] for message in messages]
        own = summary_indices(messages)
        inserted = {index for index, message in enumerate(messages) if index in own or is_acknowledgement(message)}
        return [
            Violation(self.name, index, f"{role} follows {role} at a summary")
            for index, (before, role) in enumerate(pairwise(roles), 1)
            if role == before != "tool" and (index in inserted or index - 1 in inserted)
        ]

    def repair(self, messages: list[Message]) -> list[Message]:
        """Insert acknowledgements between a summary and a user message, and remove those before an assistant's."""
        # With an acknowledgement gone, another message may be the one that counts as the summary.
        for _ in range(_PASSES):
            if not self.check(messages):
                break
            messages = _mend(messages)
        return messages


def _mend(messages: list[Message]) -> list[Message]:
    repaired: list[Message] = []
    summaries = {id(messages[index]) for index in summary_indices(messages)}
    for message in messages:
        previous = repaired[-1] if repaired else None
        if previous is not None and previous["role"] == message["role"]:
            if is_acknowledgement(message):
                continue
            if is_acknowledgement(previous):
                repaired.pop()
            elif message["role"] == "user" and not summaries.isdisjoint((id(message), id(previous))):
                repaired.append({"role": "assistant", "content": ACKNOWLEDGEMENT})
            elif id(previous) in summaries:
                repaired[-1:] = _as_user(previous, repaired[-2] if len(repaired) > 1 else None)
            elif id(message) in summaries:
                repaired.append({**message, "role": "user"})
                summaries.add(id(repaired[-1]))
                continue
        repaired.append(message)
    return repaired


def _as_user(summary: Message, before: Message | None) -> list[Message]:
    """Return a summary as a user message, with an acknowledgement between it and a user message before it."""
    parting: list[Message] = [{"role": "assistant", "content": ACKNOWLEDGEMENT}]
    return [*(parting if before is not None and before["role"] == "user" else []), {**summary, "role": "user"}]
