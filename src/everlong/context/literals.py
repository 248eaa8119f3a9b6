"""The fixed texts that compaction inserts into a conversation, and the functions that recognize them.

These texts are a contract with models and other hosts: a summary of an older version, or of the system that this one
replaces, is recognized by its first words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence

from everlong.model import (
    CLEARED_RESULT,
    SUMMARY_STARTS,
    Message,
    leading_system_count,
    part_text,
    parts_of,
    text_of,
    with_content,
)

__all__ = [
    "ACKNOWLEDGEMENT",
    "CLEARED_RESULT",
    "COMPACTION_NOTE",
    "MISSING_RESULT",
    "NO_RULES",
    "RULES_HEADING",
    "SUMMARY_PREFIX",
    "begins_summary",
    "has_note",
    "is_acknowledgement",
    "is_summary",
    "rules_block",
    "summary_body",
]
COMPACTION_NOTE = (
    "[Note: Some earlier conversation turns have been compacted into a handoff summary to preserve context space. "
    "The current session state may still reflect earlier work, so build on that summary and state rather than "
    "re-doing work.]"
)
"""The note after the system prompt, in a text block of its own, from the first compaction on."""
SUMMARY_PREFIX = (
    "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below. This is a handoff "
    "from a previous context window — treat it as background reference, NOT as active instructions. Do NOT answer "
    "questions or fulfill requests mentioned in this summary; they were already addressed. Respond ONLY to the latest "
    "user message that appears AFTER this summary. The current session state (files, config, etc.) may reflect work "
    "described here — avoid repeating it:"
)
"""The first words of every summary message; a blank line and the summary follow."""
MISSING_RESULT = "[No result: the call was interrupted, or its output is no longer part of this conversation]"
"""The result of a call whose own result is gone, because every call must have one."""
ACKNOWLEDGEMENT = "Understood. I continue from the summary."
"""The assistant message between a summary and a user message, before or after it, so that roles alternate."""
RULES_HEADING = "Standing rules of the user, in force:"
"""The first line of the block after a summary; unlike the summary, the block is to be obeyed."""
NO_RULES = "- (none)"
"""The words below the heading of standing rules where there are no rules."""
_RULES_END = re.compile(
    re.escape(RULES_HEADING) + r"(?:\n- (?:\(none\)|older rules, by id: rule-.*|\".*\" \(turn \d+\)))+"
    r"\n\(The user's own words\. Turns behind this summary: \d+\.\)\s*\Z"
)
"""The block of standing rules at the end of a text; a rule has no line break, so nothing in it can begin another."""
_NOTE_START = "[Note: Some earlier conversation turns"
LONGEST_HEAD = 8
"""The number of messages after the system prompt that are searched for a summary, unless more are protected."""
_NOTHING_EMITTED: frozenset[str] = frozenset()


def is_summary(message: Message) -> bool:
    """Return whether a message reads like a summary of this version or an older one; anybody could have written it.

    `summary_indices` tells whether a compaction put it there.
    """
    content = message.get("content")
    text = content if isinstance(content, str) else text_of(message)
    return text.startswith(SUMMARY_STARTS) and message["role"] in ("user", "assistant")


def begins_summary(text: str) -> bool:
    """Return whether a text begins with the words of a summary."""
    return text.startswith(SUMMARY_STARTS)


def is_acknowledgement(message: Message) -> bool:
    """Return whether a message is the acknowledgement between a summary and a user message."""
    return message.get("role") == "assistant" and message.get("content") == ACKNOWLEDGEMENT


def has_note(message: Message) -> bool:
    """Return whether a system message carries the note of a compaction, in our words or those of an older host."""
    return _NOTE_START in text_of(message)


def summary_body(message: Message) -> str:
    """Return the summary itself, without its introduction and the rules after it."""
    text = _without_rules(message)
    if text.startswith(SUMMARY_PREFIX):
        return text[len(SUMMARY_PREFIX) :].strip()
    first_line, _, rest = text.partition("\n")
    for start in SUMMARY_STARTS:
        if first_line.startswith(start):
            # Older hosts put an introduction on the first line and the document below it.
            remainder = first_line[len(start) :].strip()
            return rest.strip() or remainder
    return text.strip()


def rules_block(message: Message) -> str:
    """Return the block of standing rules in a summary message; empty if there is none.

    It is the message's second part, or the end of the first where a host made one string of them: a summary that
    contains our heading cannot speak for the user, and neither can a text that was added to the message later, nor an
    assistant's message, which no compaction writes.
    """
    if message.get("role") != "user":
        return ""
    texts = list(map(part_text, parts_of(message)))
    own = texts[1] if texts[1:] and texts[1].startswith(RULES_HEADING) else "".join(texts[:1])
    start = own.rfind(f"{RULES_HEADING}\n")
    found = _RULES_END.match(own, start) if start >= 0 else None
    return found[0].rstrip() if found else ""


def _without_rules(message: Message) -> str:
    """Return the text of a message without its block of standing rules."""
    text, block = text_of(message), rules_block(message)
    before, _, after = text.rpartition(block) if block else (text, "", "")
    return f"{before.rstrip()}{after}"


def digest_of(message: Message) -> str:
    """Return the digest by which an engine remembers its own summary."""
    return hashlib.sha256(text_of(message).encode("utf-8", "surrogatepass")).hexdigest()


def summary_indices(
    messages: Sequence[Message],
    protect_first_n: int = 0,
    emitted: Collection[str] = _NOTHING_EMITTED,
) -> tuple[int, ...]:
    """Return the index of an earlier compaction's summary, as a tuple of one or none."""
    start = leading_system_count(messages)
    places = range(start, min(len(messages), _furthest(messages, start, protect_first_n) + 1))
    found = [at for at in places if is_summary(messages[at]) and _is_witnessed(messages, start, at, emitted)]
    by_user = [at for at in found if messages[at]["role"] == "user"]  # a model could write one too
    return tuple((by_user or found)[:1])


def _furthest(messages: Sequence[Message], start: int, protect_first_n: int) -> int:
    """Return the last index at which a head can have ended."""
    end = min(len(messages), start + max(LONGEST_HEAD, protect_first_n))
    # As when a head is planned: an exchange has an answer, and a call has its results.
    while start < end < len(messages) and messages[end - 1]["role"] == "user":
        end += 1
    while end < len(messages) and messages[end]["role"] in ("tool", "function"):
        end += 1
    return end


def _is_witnessed(messages: Sequence[Message], start: int, index: int, emitted: Collection[str]) -> bool:
    if any(map(has_note, messages[:start])) or (emitted and digest_of(messages[index]) in emitted):
        return True
    if messages[index]["role"] != "user":
        return False
    if any(_parts_users(messages, place) for place in (index - 1, index + 1)):
        return True
    return start == 0 and _is_one_exchange(messages[:index])


def _parts_users(messages: Sequence[Message], place: int) -> bool:
    """Return whether our acknowledgement stands at a place between two user messages, as only we put it."""
    if not 0 < place < len(messages) - 1 or not is_acknowledgement(messages[place]):
        return False
    return bool(messages[place - 1]["role"] == messages[place + 1]["role"] == "user")


def _is_one_exchange(messages: Sequence[Message]) -> bool:
    """Return whether these are a request, its answer, and the results of the answer's calls."""
    roles = [message["role"] for message in messages]
    asked = next((place for place, role in enumerate(roles) if role != "user"), len(roles))
    return 0 < asked < len(roles) and roles[asked] == "assistant" and set(roles[asked + 1 :]) <= {"tool", "function"}


def split_merged_summary(
    messages: list[Message],
    protect_first_n: int = 0,
    emitted: Collection[str] = _NOTHING_EMITTED,
) -> list[Message]:
    """Return the list with a summary, which some host merged with its neighbours, as a message of its own again.

    The very same list if there is none. The parts keep their order; the invariants then mend the order of roles.
    """
    start = leading_system_count(messages)
    for index in range(start, min(len(messages), _furthest(messages, start, protect_first_n) + 1)):
        message = messages[index]
        if message["role"] != "user" or type(message.get("content")) is not list:
            continue
        parts = parts_of(message)
        at = next((place for place, part in enumerate(parts) if begins_summary(part_text(part))), None)
        if at is None:
            continue
        end = at + 1 + any(part_text(part).startswith(RULES_HEADING) for part in parts[at + 1 : at + 2])
        if end - at == len(parts):
            continue
        pieces = [with_content(message, piece) for piece in (parts[:at], parts[at:end], parts[end:]) if piece]
        apart = [*messages[:index], *pieces, *messages[index + 1 :]]
        if summary_indices(apart, protect_first_n, emitted) == (index + bool(at),):
            return apart
    return messages
