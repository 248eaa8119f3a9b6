"""What was read of a message is remembered by the message's own words, so that a turn costs what the turn adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from everlong.model import Message, calls_of, text_of

Read = TypeVar("Read")

_MOST_REMEMBERED = 200_000


class Remembering(Generic[Read]):
    """Reads messages with a function and remembers the outcomes; when full, the older half is forgotten."""

    def __init__(self, read: Callable[[Message], Read]) -> None:
        self._read = read
        self._known: dict[int, Read] = {}

    def read_all(self, messages: Sequence[Message], fingerprints: Sequence[int]) -> list[Read]:
        """What each message holds, in order; read anew only where its words were never seen."""
        known = self._known.get
        return [
            self._learn(key, message) if (found := known(key)) is None else found
            for key, message in zip(fingerprints, messages, strict=True)
        ]

    def _learn(self, key: int, message: Message) -> Read:
        if len(self._known) >= _MOST_REMEMBERED:
            for old in list(self._known)[: _MOST_REMEMBERED // 2]:
                del self._known[old]
        found = self._known[key] = self._read(message)
        return found


def fingerprint(message: Message) -> int:
    """A number for what a message says; equal words have equal ones."""
    # A hash instead of the text itself, so that the memory keeps no conversation alive.
    calls = tuple(calls_of(message)) if "tool_calls" in message else ()
    return hash((message["role"], text_of(message), message.get("tool_call_id"), calls))
