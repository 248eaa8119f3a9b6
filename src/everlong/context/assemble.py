"""Fourth stage: head, note, summary, the standing rules, the latest request if it must be repeated, tail.

Chooses the summary's role so that no two same roles follow each other. Copies only the messages that it changes, and
never changes one in place.
"""

from __future__ import annotations

from collections.abc import Sequence

from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, SUMMARY_PREFIX, has_note
from everlong.model import Message, leading_system_count, with_part_appended


def assemble(head: Sequence[Message], summary: str, after: Sequence[Message], rules: str = "") -> list[Message]:
    """The compacted conversation: head, summary with the block of standing rules, and what comes after it."""
    before_role = head[-1]["role"] if head else ""
    next_role = after[0]["role"] if after else ""
    acknowledgement: Message = {"role": "assistant", "content": ACKNOWLEDGEMENT}
    body: list[Message]
    if before_role != "user":
        body = [summary_message(summary, "user", rules), *([acknowledgement] if next_role == "user" else [])]
    elif next_role == "assistant":
        body = [acknowledgement, summary_message(summary, "user", rules)]
    else:
        body = [summary_message(summary, "assistant", rules)]
    return [*with_note(head), *body, *after]


def summary_message(summary: str, role: str, rules: str = "") -> Message:
    """The one message that stands for everything summarized; rules stand in a text block of their own."""
    message: Message = {"role": role, "content": f"{SUMMARY_PREFIX}\n\n{summary}"}
    return with_part_appended(message, rules) if rules else message


def with_note(head: Sequence[Message]) -> list[Message]:
    """The head with the note after its system prompt, once."""
    noted = list(head)
    prompts = leading_system_count(noted)
    if prompts and not any(map(has_note, noted[:prompts])):
        # A block of its own, so that the provider's cache of the prompt before it stays valid.
        noted[prompts - 1] = with_part_appended(noted[prompts - 1], COMPACTION_NOTE)
    return noted
