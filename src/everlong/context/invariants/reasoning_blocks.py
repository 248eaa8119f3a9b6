"""The invariant that a model's thinking stays with its step.

Providers refuse a tool call without its thinking, and thinking without a step. Some clients log the thinking of a step
as an assistant message of its own, so a cut must not fall between the two. Only assistant messages carry thinking.
"""

from __future__ import annotations

from collections.abc import Sequence

from everlong.context.invariants.base import Violation
from everlong.model import Message, calls_of, has_reasoning, is_reasoning, parts_of, text_of, with_content


class ReasoningBlocks:
    """The rule that thinking is kept whole and beside its step."""

    name = "reasoning_blocks"

    def allows_cut(self, messages: Sequence[Message], index: int) -> bool:
        """Forbid a cut between thinking and the assistant message that follows from it."""
        if index == 0 or index >= len(messages):
            return True
        return not (messages[index].get("role") == "assistant" and is_only_reasoning(messages[index - 1]))

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return the messages with thinking that no model wrote."""
        return [
            Violation(self.name, index, f"a {message['role']} message carries thinking")
            for index, message in enumerate(messages)
            if type(message.get("content")) is list and message["role"] != "assistant"
            if any(map(is_reasoning, parts_of(message)))
        ]

    def repair(self, messages: list[Message]) -> list[Message]:
        """Remove thinking from messages that no model wrote."""
        misplaced = {violation.at for violation in self.check(messages)}
        if not misplaced:
            return messages
        return [_without_reasoning(m) if index in misplaced else m for index, m in enumerate(messages)]


def is_only_reasoning(message: Message) -> bool:
    """Return whether an assistant message has thinking and nothing else."""
    if message.get("role") != "assistant" or calls_of(message) or text_of(message).strip():
        return False
    return has_reasoning(message)


def _without_reasoning(message: Message) -> Message:
    return with_content(message, [part for part in parts_of(message) if not is_reasoning(part)])
