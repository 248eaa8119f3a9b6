"""A second opinion on whether a list of messages may be sent: the rules of the OpenAI format, written from scratch.

Knows nothing of how the package repairs or checks lists; only the shape of messages and the fixed texts of a
compaction. Ids that a client left out (missing, null, empty) are one and the same "no id".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, summary_indices
from everlong.model import Message

SUMMARY_STARTS = ("[CONTEXT COMPACTION — REFERENCE ONLY]", "[CONTEXT COMPACTION]", "[CONTEXT SUMMARY]:")


def problems(messages: Sequence[Message]) -> list[str]:
    """Everything for which a provider would refuse a list."""
    found: list[str] = []
    waiting: Counter[str] = Counter()
    for index, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or not role:
            found.append(f"{index}: role {role!r}")
        if role == "tool":
            call_id = _id(message.get("tool_call_id"))
            if waiting[call_id] > 0:
                waiting[call_id] -= 1
            else:
                found.append(f"{index}: result {call_id!r} answers no open call of the assistant message before it")
            continue
        if any(waiting.values()):
            found.append(f"{index}: calls {sorted((+waiting).elements())!r} before it have no result")
        calls = message.get("tool_calls") if role == "assistant" else None
        waiting = Counter(_id(call.get("id")) for call in calls or [] if isinstance(call, dict))
    return found


def role_problems(messages: Sequence[Message]) -> list[str]:
    """Summaries and acknowledgements that stand beside a message of their own role."""
    own = own_summaries(messages)
    inserted = [index in own or looks_acknowledging(message) for index, message in enumerate(messages)]
    return [
        f"{index}: {message['role']} follows {message['role']} at a summary"
        for index, message in enumerate(messages)
        if index and messages[index - 1]["role"] == message["role"]
        if inserted[index] or inserted[index - 1]
    ]


def words(message: Message) -> str:
    """The text of a message, by the simplest reading."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(filter(None, map(_words_of_part, content)))
    return content or ""


def _words_of_part(part: Any) -> str:
    if isinstance(part, dict):
        return str(part.get("text") or "") if part.get("type", "text") == "text" else ""
    return str(part)


def own_summaries(messages: Sequence[Message]) -> tuple[int, ...]:
    """Where the summary of a compaction stands; which message is one has tests of its own."""
    return summary_indices(messages)


def looks_like_summary(message: Message) -> bool:
    """Whether a message reads as a compaction's summary."""
    return message["role"] in ("user", "assistant") and words(message).lstrip().startswith(SUMMARY_STARTS)


def looks_inserted(message: Message) -> bool:
    """Whether a message reads as one that a compaction, this or an earlier one, put in."""
    return looks_acknowledging(message) or looks_like_summary(message)


def looks_acknowledging(message: Message) -> bool:
    """Whether a message is the one that stands between a summary and a user message."""
    return bool(message["role"] == "assistant" and message.get("content") == ACKNOWLEDGEMENT)


def latest_request(messages: Sequence[Message]) -> Message | None:
    """The newest message that a person wrote; what looks like a summary or says nothing is none."""
    asked = [m for m in messages if m["role"] == "user" and not looks_like_summary(m)]
    return next((m for m in reversed(asked) if words(m).strip() or isinstance(m.get("content"), list)), None)


def notes(messages: Sequence[Message]) -> int:
    """How often the note of the first compaction stands in the system messages."""
    return sum(words(m).count(COMPACTION_NOTE) for m in messages if m["role"] in ("system", "developer"))


def _id(value: object) -> str:
    return str(value or "")
