"""Whether a message repeats a reply: clients send back what a model said, and seldom byte for byte.

Knows messages only.
"""

from __future__ import annotations

from everlong.model import HashChain, Message, calls_of, parts_of, text_of

TELLING = 16
"""A text of fewer characters that another begins with says nothing about where that comes from."""


def is_echo(chain: HashChain, reply: Message, said: Message) -> bool:
    """Whether ``said`` is what a client made of ``reply``: by identity, by a call's id, or by its text."""
    if said.get("role") != "assistant":
        return False
    ours, theirs = chain.trace([reply]).ids, chain.trace([said]).ids
    if ours and theirs and ours[0] == theirs[0]:  # the rest may have been split off, merged or dropped
        return True
    calls = call_ids(reply)
    if calls and not calls.isdisjoint(call_ids(said)):
        return True
    words, other = _words(reply), _words(said)
    shorter, longer = sorted((words, other), key=len)
    return bool(shorter) and (shorter == longer or (len(shorter) >= TELLING and longer.startswith(shorter)))


def call_ids(message: Message) -> set[str]:
    """Return the ids of the calls that a message makes, in either wire format."""
    found = {call.id for call in calls_of(message)}
    found |= {str(part.get("id") or "") for part in parts_of(message) if part.get("type") == "tool_use"}
    return found - {""}


def _words(message: Message) -> str:
    return "".join(text_of(message).casefold().split())
