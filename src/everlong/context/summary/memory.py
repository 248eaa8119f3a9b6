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

    def read_all(self, messages: Sequence[Message]) -> list[Read]:
        """What each message holds, in order; read anew only where its words were never seen."""
        return [self._recall(message) for message in messages]

    def _recall(self, message: Message) -> Read:
        key = _fingerprint(message)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_REMEMBERED:
                for old in list(self._known)[: _MOST_REMEMBERED // 2]:
                    del self._known[old]
            found = self._known[key] = self._read(message)
        return found


def _fingerprint(message: Message) -> int:
    # A hash instead of the text itself, so that the memory keeps no conversation alive.
    return hash((message["role"], text_of(message), message.get("tool_call_id"), tuple(calls_of(message))))
