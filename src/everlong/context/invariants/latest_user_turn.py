"""The invariant that the latest user message stands word for word after any summary.

A summary tells the model to answer only messages after it, so the request in force must stand there. In a long
autonomous run it may be hundreds of messages back; then it is repeated after the summary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from everlong.context.invariants.base import Violation
from everlong.context.literals import is_acknowledgement, summary_indices
from everlong.model import Message, newest_request


class LatestUserTurn:
    """The rule that a list keeps its source's latest request; ``summaries`` are the source's summary indices."""

    name = "latest_user_turn"

    def __init__(self, source: Sequence[Message], summaries: Collection[int] | None = None) -> None:
        index = latest_user_index(source, summaries)
        self._latest = None if index is None else source[index]

    def allows_cut(self, messages: Sequence[Message], index: int) -> bool:  # noqa: ARG002 - part of the protocol
        """Allow any cut, because a request before it is repeated."""
        return True

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return a violation if the request is missing after the last summary."""
        if self._latest is None:
            return []
        start = _after_summary(messages)
        if any(message is self._latest or message == self._latest for message in reversed(messages[start:])):
            return []
        return [Violation(self.name, start, "the latest user message does not stand after the summary")]

    def repair(self, messages: list[Message]) -> list[Message]:
        """Put the request back after the summary."""
        if self._latest is None or not self.check(messages):
            return messages
        start = _after_summary(messages)
        return [*messages[:start], self._latest, *messages[start:]]


def latest_user_index(messages: Sequence[Message], summaries: Collection[int] | None = None) -> int | None:
    """Return the index of the newest request; None if there is none.

    That is the newest message in which a person asked for something, or else the newest user message that is no
    summary: what a harness says in the user's name does not take the place of a request.
    """
    own = summary_indices(messages) if summaries is None else summaries
    asked = newest_request(messages, own)
    if asked is not None:
        return asked
    users = [index for index, message in enumerate(messages) if message["role"] == "user" and index not in own]
    return next((index for index in reversed(users) if messages[index].get("content")), users[-1] if users else None)


def _after_summary(messages: Sequence[Message]) -> int:
    summaries = summary_indices(messages)
    if not summaries:
        return 0
    after = summaries[-1] + 1
    return after + 1 if after < len(messages) and is_acknowledgement(messages[after]) else after
