"""Which message of a list is the summary of an earlier compaction, and which only reads like one.

The words of a summary are public, so anybody can begin a message with them: a person, a pasted page, a file that a
tool reads. Taken for our own, such a message would replace the conversation's goal and drop out of what the user said.
Hosts send plain messages on, so nothing secret can travel in them; what is left is what we ourselves assemble:

- *Place.* A summary stands directly after the head: behind the leading system prompt and the few messages that can be
  protected there. There is one; the first that is ours is it.
- *Role.* User or assistant. A tool's output never is one.
- *A witness that no user and no tool can write.* The note that every compaction leaves in a system prompt; or our
  acknowledgement, an assistant message, between it and another user message; or the engine's own memory of what it put
  out, by digest.
- Where there is no system prompt there is no note to miss. Then a message from the user after a complete first
  exchange counts by its place alone; the very first message of such a list does not.

A look-alike is an ordinary message: it is kept, repeated or summarized as the user's words. It is not left in a head,
where it would later stand beside the note of a real compaction (see `everlong.context.boundary`). What this costs:
after a restart, a real summary under a system prompt that the host wrote anew, with no acknowledgement beside it, is
read as an ordinary message too; its facts go on, its structure does not. What it leaves open: the user's second message
in a list with no system prompt; a new conversation under a prompt that still carries the note; and a model that was
talked into answering one of the first messages, a forged one, with exactly our acknowledgement.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from everlong.context.literals import RULES_HEADING, begins_summary, has_any_note, is_acknowledgement, is_summary
from everlong.model import Message, leading_system_count, part_text, parts_of, text_of, with_content

LONGEST_HEAD = 8
"""So many messages are looked at behind the system prompt, more where more are protected."""
_NOTHING_EMITTED: frozenset[str] = frozenset()


def digest_of(message: Message) -> str:
    """By which an engine remembers a summary that it put out."""
    return hashlib.sha256(text_of(message).encode("utf-8", "surrogatepass")).hexdigest()


def summary_indices(
    messages: Sequence[Message],
    protect_first_n: int = 0,
    emitted: Collection[str] = _NOTHING_EMITTED,
) -> tuple[int, ...]:
    """Where the summary of an earlier compaction stands: one place, or none."""
    start = leading_system_count(messages)
    for index in range(start, min(len(messages), _furthest(messages, start, protect_first_n) + 1)):
        if is_summary(messages[index]) and _is_witnessed(messages, start, index, emitted):
            return (index,)
    return ()


def _furthest(messages: Sequence[Message], start: int, protect_first_n: int) -> int:
    """The last place at which a head can have ended."""
    end = min(len(messages), start + max(LONGEST_HEAD, protect_first_n))
    # As when a head is planned: an exchange has an answer, and a call has its results.
    while start < end < len(messages) and messages[end - 1]["role"] == "user":
        end += 1
    while end < len(messages) and messages[end]["role"] in ("tool", "function"):
        end += 1
    return end


def _is_witnessed(messages: Sequence[Message], start: int, index: int, emitted: Collection[str]) -> bool:
    if any(map(has_any_note, messages[:start])) or (emitted and digest_of(messages[index]) in emitted):
        return True
    if messages[index]["role"] != "user":
        return False
    if any(_parts_users(messages, place) for place in (index - 1, index + 1)):
        return True
    return start == 0 and _is_one_exchange(messages[:index])


def _parts_users(messages: Sequence[Message], place: int) -> bool:
    """Whether our acknowledgement stands there, with a user message on either side, as only we put it."""
    if not 0 < place < len(messages) - 1 or not is_acknowledgement(messages[place]):
        return False
    return bool(messages[place - 1]["role"] == messages[place + 1]["role"] == "user")


def _is_one_exchange(messages: Sequence[Message]) -> bool:
    """Whether these are a request, its answer, and the results of the answer's calls."""
    roles = [message["role"] for message in messages]
    asked = next((place for place, role in enumerate(roles) if role != "user"), len(roles))
    return 0 < asked < len(roles) and roles[asked] == "assistant" and set(roles[asked + 1 :]) <= {"tool", "function"}


def parted(
    messages: list[Message],
    protect_first_n: int = 0,
    emitted: Collection[str] = _NOTHING_EMITTED,
) -> list[Message]:
    """The list with a summary that some host merged with its neighbours as a message of its own again.

    The very same list where there is none; the parts keep their order, and role order is the next rule's business.
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
        end = at + 1
        while end < len(parts) and part_text(parts[end]).startswith(RULES_HEADING):
            end += 1
        if end - at == len(parts):
            continue
        pieces = [with_content(message, piece) for piece in (parts[:at], parts[at:end], parts[end:]) if piece]
        apart = [*messages[:index], *pieces, *messages[index + 1 :]]
        if summary_indices(apart, protect_first_n, emitted) == (index + bool(at),):
            return apart
    return messages
