"""Validity of a compacted context: the engine's own rules, and an independent reading of them.

The independent reading knows the protocol only: results directly after the call they answer, each call answered, the
system prompt where it was, the latest request still there.
"""

from __future__ import annotations

from collections.abc import Sequence

from everlong.context.invariants import check_all
from everlong.context.literals import is_summary
from everlong.model import Message, calls_of, is_system, leading_system_count, newest_request, text_of


def problems(context: Sequence[Message], source: Sequence[Message]) -> list[str]:
    """Return all faults of a context that was made from a source, in plain words."""
    found = [
        f"{violation.invariant} at {violation.at}: {violation.problem}" for violation in check_all(context, source)
    ]
    return [*found, *pairing(context), *_prompt(context, source), *latest_request(context, source)]


def pairing(context: Sequence[Message]) -> list[str]:
    """Return calls without a result and results without a call, which providers refuse."""
    found: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(context):
        if message.get("role") == "tool":
            call = str(message.get("tool_call_id") or "")
            if call in waiting:
                waiting.remove(call)
            elif call or not waiting:
                found.append(f"message {index} answers no call that is open")
            else:
                waiting.pop(0)
            continue
        if waiting:
            found.append(f"message {index} comes before the results of {len(waiting)} calls")
        waiting = [call.id for call in calls_of(message)]
    return found


def _prompt(context: Sequence[Message], source: Sequence[Message]) -> list[str]:
    end = leading_system_count(context)
    if end != leading_system_count(source):
        return ["the system prompt has another number of messages"]
    kept = all(text_of(now).startswith(text_of(then)) for now, then in zip(context[:end], source[:end], strict=True))
    return [] if kept else ["the system prompt was changed"]


def latest_request(context: Sequence[Message], source: Sequence[Message]) -> list[str]:
    """Return a fault if the newest request of the source is not in the context word for word."""
    place = newest_request(source, [index for index, m in enumerate(source) if is_summary(m)])
    if place is None:
        return []
    asked = text_of(source[place])
    kept = any(m.get("role") == "user" and text_of(m) == asked for m in context if not is_system(m))
    return [] if kept else ["the latest request is gone"]
