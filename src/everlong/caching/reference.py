"""The plain strategy that others ship too: the system prompt and the last three messages, on a deep copy.

Kept to the letter of its description, so that a host which relied on it elsewhere finds the same markers here, and so
that the better strategy has something to be compared with. It knows messages, not blocks, and keeps no state.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

from everlong.caching.rules import takes_marker
from everlong.errors import ConfigError
from everlong.model import Message, is_image

__all__ = ["apply_anthropic_cache_control", "cache_marker", "estimate_messages_tokens_rough"]

_RECENT = 3
_CHARS_PER_TOKEN = 4
_IMAGE_CHARS = 6_000
"""A picture counts as so many characters, whatever its data weighs."""


def cache_marker(ttl: str = "5m") -> dict[str, str]:
    """The marker in its literal form; five minutes are not spelled out."""
    if ttl not in ("5m", "1h"):
        raise ConfigError(
            f"prompt_caching.cache_ttl is {ttl!r}, but must be 5m or 1h; providers keep a prompt for no other time",
            key="prompt_caching.cache_ttl",
        )
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": "1h"}


def apply_anthropic_cache_control(
    messages: Sequence[Message],
    cache_ttl: Literal["5m", "1h"] | str = "5m",
    native_anthropic: bool = False,
) -> list[Message]:
    """A deep copy of the messages with at most four markers: the system prompt and the last three that can carry one.

    Markers that were there before are taken off first, so that there are never more than four.
    """
    marker = cache_marker(cache_ttl)
    marked = [_without_marker(message) for message in copy.deepcopy(list(messages))]
    if marked and marked[0].get("role") == "system":
        _mark(marked[0], marker, native_anthropic=native_anthropic)
    left = _RECENT
    for message in reversed(marked):
        if not left:
            break
        if message.get("role") != "system" and _mark(message, marker, native_anthropic=native_anthropic):
            left -= 1
    return marked


def _mark(message: Message, marker: dict[str, str], *, native_anthropic: bool) -> bool:
    """Put the marker where it goes; False for a message that cannot carry one."""
    content = message.get("content")
    if message.get("role") == "tool":
        if native_anthropic:
            message["cache_control"] = dict(marker)
        return native_anthropic
    if not content:
        message["cache_control"] = dict(marker)
    elif isinstance(content, str):
        message["content"] = [{"type": "text", "text": content, "cache_control": dict(marker)}]
    elif isinstance(content, list) and isinstance(content[-1], dict) and takes_marker(content[-1].get("type", "text")):
        content[-1]["cache_control"] = dict(marker)
    else:
        return False
    return True


def _without_marker(message: Message) -> Message:
    """The copied message with its own markers taken off; the copy is ours to change."""
    message.pop("cache_control", None)
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            part.pop("cache_control", None)
    return message


def estimate_messages_tokens_rough(messages: Sequence[Message]) -> int:
    """A rough count of tokens by characters, four to a token; for a better one there is `MessageCounter`."""
    characters = sum(_characters(message) for message in messages)
    return (characters + _CHARS_PER_TOKEN - 1) // _CHARS_PER_TOKEN


def _characters(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(isinstance(part, dict) and is_image(part) for part in content):
        return len(str(message))
    others = [part for part in content if not (isinstance(part, dict) and is_image(part))]
    return len(str({**message, "content": others})) + _IMAGE_CHARS * (len(content) - len(others))
