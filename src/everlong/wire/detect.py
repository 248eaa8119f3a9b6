"""Whether a conversation is in the OpenAI or the Anthropic format, told by the signs that only one of them has.

Most of the two is the same, so a conversation without signs is read as OpenAI's. Thinking, documents and sources of
pictures are Anthropic's, but OpenAI-format histories carry them along; they decide only where nothing says otherwise.
This module converts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from everlong.errors import TranscriptError
from everlong.model import Message

__all__ = ["Format", "format_of"]

Format: TypeAlias = Literal["openai", "anthropic"]

_CALL_BLOCKS = frozenset({"tool_use", "tool_result"})
_CARRIED_BLOCKS = frozenset({"thinking", "redacted_thinking", "document", "server_tool_use"})
_OPENAI_ROLES = frozenset({"tool", "function", "developer"})


def format_of(messages: Sequence[Message], body: Mapping[str, Any], where: str) -> Format:
    """The format of checked messages and the object around them, which ``where`` names in the error for a mixture."""
    anthropic = _body_sign(body)
    openai = carried = ""
    is_prompted = False
    for message in messages:
        role = message["role"]
        is_prompted = is_prompted or role == "system"
        if role in _OPENAI_ROLES:
            openai = openai or f"a message of the role '{role}'"
        elif message.get("tool_calls"):
            openai = openai or "'tool_calls'"
        for kind, part in _typed_parts(message):
            if kind in _CALL_BLOCKS:
                anthropic = anthropic or f"a block of the type '{kind}'"
            elif kind == "image_url":
                openai = openai or "a part of the type 'image_url'"
            elif kind in _CARRIED_BLOCKS or (kind == "image" and isinstance(part.get("source"), dict)):
                carried = kind
    if anthropic and openai:
        raise TranscriptError(
            f"{where} mixes two formats: {anthropic} is Anthropic's, {openai} is OpenAI's; write all of it in one"
        )
    return "anthropic" if anthropic or (carried and not openai and not is_prompted) else "openai"


def _body_sign(body: Mapping[str, Any]) -> str:
    if isinstance(body.get("system"), str | list):
        return "a top-level 'system'"
    if "anthropic_version" in body:
        return "'anthropic_version'"
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return "a tool with 'input_schema'"
    return ""


def _typed_parts(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("type"), str):
            yield part["type"], part
