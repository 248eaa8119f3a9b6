"""The content of a message: a string, a list of parts, or nothing.

Reads text out of any of the three and makes changed copies. Never changes a message in place, and leaves parts it
does not know (audio, files, a provider's own) as they are.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from everlong.model.message import ADDED, Message, calls_of

Part: TypeAlias = dict[str, Any]

_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})
_REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking_blocks", "reasoning_details")
"""Providers' names for thinking beside the content; a message with several of them has the same thinking in each."""


def parts_of(message: Message) -> list[Part]:
    """Return the content as a list of parts: one text part for a string, no part for empty content."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if isinstance(content, list):
        return [part if isinstance(part, dict) else {"type": "text", "text": str(part)} for part in content]
    return []


def part_text(part: Part) -> str:
    """Return the words of one part; empty for images, audio and reasoning."""
    if _kind(part, "text") not in _TEXT_TYPES:
        return ""
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else ""


def text_of(message: Message) -> str:
    """Return all words of a message's content, parts joined by line breaks."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not content:
        return ""
    return "\n".join(text for text in map(part_text, parts_of(message)) if text)


def is_image(part: Part) -> bool:
    """Return whether a part is a picture."""
    return _kind(part) in _IMAGE_TYPES


def is_reasoning(part: Part) -> bool:
    """Return whether a part holds the model's own thinking."""
    return _kind(part) in _REASONING_TYPES


def tools_of(message: Message) -> list[str]:
    """Return the names of the tools that a message calls or answers for."""
    names = [call.name for call in calls_of(message)]
    names += [str(part.get("name")) for part in parts_of(message) if part.get("type") == "tool_use"]
    if message.get("role") == "tool" and message.get("name"):
        names.append(str(message["name"]))
    return names


def answered_calls(message: Message) -> list[str]:
    """Return the ids of the calls that a message answers."""
    ids = [message.get("tool_call_id")] if message.get("role") == "tool" else []
    ids += [part.get("tool_use_id") for part in parts_of(message) if part.get("type") == "tool_result"]
    return [ident for ident in ids if isinstance(ident, str)]


def called_tools(message: Message) -> dict[str, str]:
    """Return the ids of the calls that a message makes, each with the tool's name."""
    named = {call.id: call.name for call in calls_of(message)}
    for part in parts_of(message):
        if part.get("type") == "tool_use":
            named[str(part.get("id"))] = str(part.get("name"))
    return named


def has_reasoning(message: Message) -> bool:
    """Return whether a message carries the model's own thinking."""
    return any(message.get(field) for field in REASONING_FIELDS) or any(map(is_reasoning, parts_of(message)))


def _kind(part: Part, otherwise: str = "") -> str:
    kind = part.get("type", otherwise)
    return kind if isinstance(kind, str) else ""


def with_content(message: Message, content: str | list[Part] | None) -> Message:
    """Return a copy of a message with other content."""
    return {**message, "content": content}


def with_part_appended(message: Message, text: str) -> Message:
    """Return a copy of a message with one more text part; its present content stays a part of its own."""
    return with_content(message, [*parts_of(message), {"type": "text", "text": text}])


def added_parts(content: str | list[Part] | None) -> list[Part]:
    """Return a user message's content as parts whose words no person typed."""
    return [{**part, ADDED: True} if part_text(part) else part for part in parts_of({"content": content})]


def whole_text(message: Message) -> str:
    """Return all that a message says: its words, its calls with their arguments, the results that it carries."""
    said = [text_of(message)]
    said += [f"{call.name}({call.arguments})" for call in calls_of(message)]
    for part in parts_of(message):
        kind = part.get("type")
        if kind == "tool_use":
            said.append(f"{part.get('name')}({json.dumps(part.get('input'), ensure_ascii=False)})")
        elif kind == "tool_result":
            said.append(whole_text({"content": part.get("content")}))
        elif kind == "thinking":
            said.append(str(part.get("thinking", "")))
    words = "\n".join(text for text in said if text)
    return words or json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)


def without_thinking(message: Message, *, entirely: bool = False) -> Message:
    """Return the message without its thinking, unless the thinking leads to a call or is all there is.

    Args:
        message: the message.
        entirely: drop that thinking too, because the message may go to another provider than the one that signed it.
    """
    parts = parts_of(message)
    kept = [part for part in parts if not is_reasoning(part)]
    if len(kept) == len(parts):
        return message
    if entirely:
        return with_content(message, kept or None)
    leads_to_call = bool(calls_of(message)) or any(part.get("type") == "tool_use" for part in parts)
    return message if leads_to_call or not kept else with_content(message, kept)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``2 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_share(share: float) -> str:
    """Return a share in percent; only nothing is 0%, and only all is 100%."""
    return "<1%" if 0 < share < 0.005 else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"
