"""Whether a request says enough to be cached: the words of its prompt, told from the bytes that carry no words.

Counts what a model surely reads as text: system prompt, tools, messages, calls and results. Pictures, files,
signatures, thinking (which some models are not shown again), encrypted results and fields beside the prompt count
nothing. Knows the two APIs' blocks; what follows from it is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BYTES_PER_TOKEN", "has_words"]

BYTES_PER_TOKEN = 4
"""English prose has about so many to a token; code, JSON and other languages have fewer, and so more tokens."""

_WORDS = ("text", "content", "tool_calls", "function", "name", "arguments", "title", "context", "stdout", "stderr")
"""Fields of messages and blocks that hold words, or something that does."""
_VALUES = ("input",)
"""Fields of which everything is read, names too."""
_SILENT = frozenset({"thinking", "redacted_thinking", "reasoning", "image", "image_url", "input_image"})
_FIELD_BYTES = 4
"""Two quotes, a colon and a comma."""


def has_words(request: Mapping[str, Any], tokens: int) -> bool:
    """Whether the words of a request surely come to so many tokens; looks no further than it must."""
    least = tokens * BYTES_PER_TOKEN
    waiting: list[tuple[Any, bool]] = [(request.get("messages"), False), (request.get("system"), False)]
    waiting += [(tool, True) for tool in _list(request.get("tools")) if not _is_deferred(tool)]
    found = 0
    while waiting and found < least:  # no recursion: clients nest as deep as they like
        value, is_data = waiting.pop()
        if isinstance(value, str):
            found += _size(value)
        elif isinstance(value, list):
            waiting += [(one, is_data) for one in value]
        elif isinstance(value, dict) and is_data:
            found += sum(_size(name) + _FIELD_BYTES for name in value)
            waiting += [(one, True) for one in value.values()]
        elif isinstance(value, dict) and str(value.get("type")) not in _SILENT:
            waiting += [(value[name], False) for name in _WORDS if name in value]
            waiting += [(value[name], True) for name in _VALUES if name in value]
            waiting.append((_written(value.get("source")), False))
    return found >= least


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_deferred(tool: Any) -> bool:
    """Whether a tool is no part of the prompt before a search has found it."""
    return isinstance(tool, dict) and bool(tool.get("defer_loading"))


def _written(source: Any) -> Any:
    """What a document says that comes as text or as blocks, not as a file."""
    if not isinstance(source, dict):
        return None
    return {"text": source.get("data"), "content": source.get("content")}.get(str(source.get("type")))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
