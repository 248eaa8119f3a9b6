"""The messages of a conversation as one text in which every place can be traced back to its message.

A message says its content and its calls: the tool's name and the arguments, decoded, so that a line break in a command
is a line break here. System prompts say nothing here: they are kept by every compaction. Knows nothing of facts.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from everlong.model import Message, calls_of, is_system, text_of

_JOINT = "\n\n"


def said(message: Message) -> str:
    """Return all words of a message: content, names of tools, keys and values of arguments."""
    calls = (f"{call.name} {_flat(_decoded(call.arguments), with_keys=True)}" for call in calls_of(message))
    return "\n".join(filter(None, (text_of(message), *calls)))


def emitted(message: Message) -> str:
    """Return the author's own choice of words in a message: content and values of arguments, not keys of a schema."""
    calls = (_flat(_decoded(call.arguments), with_keys=False) for call in calls_of(message))
    return "\n".join(filter(None, (text_of(message), *calls)))


def arguments_of(arguments: str) -> dict[str, Any]:
    """Return a call's arguments; empty where they are no JSON object."""
    decoded = _decoded(arguments)
    return decoded if isinstance(decoded, dict) else {}


def _decoded(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _flat(value: object, *, with_keys: bool) -> str:
    if isinstance(value, dict):
        pairs = ((f"{key}: " if with_keys else "") + _flat(item, with_keys=with_keys) for key, item in value.items())
        return "\n".join(pairs)
    if isinstance(value, list):
        return "\n".join(_flat(item, with_keys=with_keys) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


class Text:
    """The text of a list of messages; system prompts are empty in it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.parts = ["" if is_system(message) else said(message) for message in messages]
        self.whole = _JOINT.join(self.parts)
        self._starts = [0, *accumulate(len(part) + len(_JOINT) for part in self.parts)]

    def message_at(self, position: int) -> int:
        """Return the index of the message in which a place of the whole text lies."""
        return bisect_right(self._starts, position) - 1

    def start_of(self, index: int) -> int:
        """Return where a message starts in the whole text."""
        return self._starts[index]

    def around(self, position: int, length: int, reach: int) -> str:
        """Return the text around a place inside its message, cut at whole words."""
        index = self.message_at(position)
        part, start = self.parts[index], position - self._starts[index]
        return around(part, start, length, reach)

    def line_at(self, position: int) -> str:
        """Return the line in which a place lies."""
        start = self.whole.rfind("\n", 0, position) + 1
        end = self.whole.find("\n", position)
        return self.whole[start : end if end >= 0 else len(self.whole)]


def around(text: str, start: int, length: int, reach: int) -> str:
    """Return ``reach`` characters before and after a place, without the place itself, cut at whole words."""
    left, right = max(0, start - reach), min(len(text), start + length + reach)
    before, after = text[left:start], text[start + length : right]
    if left > 0 and text[left - 1].isalnum():
        before = before.lstrip(_LETTERS) if before[:1].isalnum() else before
    if right < len(text) and text[right].isalnum():
        after = after.rstrip(_LETTERS)
    return f"{before} {after}"


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
