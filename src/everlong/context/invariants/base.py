"""The interface of an invariant of the message protocol.

Each rule has a file of its own and answers three questions: where may a list be cut, what is wrong with it, and how is
it mended? The boundary planner intersects the cuts of all rules; the compaction repairs its input with them and checks
its output against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from everlong.model import Message


class Violation(NamedTuple):
    """A broken rule: its name, the index of the message, and the problem in plain words."""

    invariant: str
    at: int
    problem: str


class Invariant(Protocol):
    """One rule that every list of messages sent to a model must satisfy."""

    @property
    def name(self) -> str:
        """The rule's name in reports."""
        ...

    def allows_cut(self, messages: Sequence[Message], index: int) -> bool:
        """Return whether everything before ``index`` may be cut from a list that satisfies the rule."""
        ...

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return all violations of the rule."""
        ...

    def repair(self, messages: list[Message]) -> list[Message]:
        """Return a list that satisfies the rule; the very same list if nothing had to change."""
        ...


_INSERTED = ("[CONTEXT ", "Understood. I have read the summary")
"""The beginnings of summaries and acknowledgements; a test compares them with the texts themselves."""


def is_plain(messages: Sequence[Message]) -> bool:
    """Return whether a list certainly satisfies every structural rule and has no summary."""
    waiting: list[object] = []
    for message in messages:
        role = message["role"]
        content = message.get("content")
        if type(content) is list:
            return False
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return False
            waiting.remove(call_id)
            continue
        if waiting or (content and content.startswith(_INSERTED)):
            return False
        calls = message.get("tool_calls")
        if calls and role == "assistant":
            waiting = [call.get("id") if type(call) is dict else None for call in calls]
    return True
