"""What is left of a message whose first blocks are known already, and what kind of message identifies nothing.

Clients merge what they sent as two messages into one; the store then holds the first part and is given the whole. This
module cuts such a message after a number of blocks. It knows messages only.
"""

from __future__ import annotations

from typing import Any

from everlong.model import Message, blocks_of, is_reasoning, is_system, parts_of, text_of


def rest_of(message: Message, known: int) -> Message:
    """The message without its first ``known`` blocks; parts that identify nothing go with what they follow."""
    if known <= 0:
        return message
    role = message.get("role")
    content = parts_of(message)
    if role == "assistant":  # the order in which blocks are counted: calls after everything else
        content = sorted(content, key=lambda part: part.get("type") == "tool_use")
    kept: list[dict[str, Any]] = []
    left = known
    for part in content:
        if left > 0:
            left -= len(blocks_of({"role": role, "content": [part]}))
        else:
            kept.append(part)
    rest: Message = {**message, "content": kept or None}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and left > 0:
        readable = [call for call in calls if isinstance(call, dict)]
        rest["tool_calls"] = readable[left:]
    return rest


def kind_of_annex(message: Message) -> str:
    """Why a message has no identity: ``system``, ``thinking``, ``reminder`` or ``empty``."""
    if is_system(message):
        return "system"
    if any(is_reasoning(part) for part in parts_of(message)):
        return "thinking"
    return "reminder" if text_of(message).strip() else "empty"
