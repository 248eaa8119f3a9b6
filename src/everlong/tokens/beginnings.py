"""The beginnings of a list of messages: what each weighs, and a number by which it is known again.

The last list is kept, so that one that has grown is read only where it grew: a turn costs what it adds, not what the
conversation weighs. Knows no API and learns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import methodcaller
from typing import Any, NamedTuple

from everlong.model.content import part_text
from everlong.model.message import Message
from everlong.tokens.messages import MessageCounter

__all__ = ["Beginnings", "Walk"]

_CONTENT = methodcaller("get", "content")


class Walk(NamedTuple):
    """For each beginning of a list, its fingerprint, and the tokens of all messages in it."""

    prints: list[int]
    counted: list[int]

    @property
    def tokens(self) -> int:
        """The tokens of the whole list."""
        return self.counted[-1] if self.counted else 0


class _Kept(NamedTuple):
    messages: list[Message]
    contents: list[Any]
    """What the messages held, because a caller may put other words into a message that it keeps."""
    parts: list[tuple[int, str]]
    """Of contents that can be changed in their place, where they stand and a text that shows what they said."""
    walk: Walk


class Beginnings:
    """Walks lists, and remembers the last one. May be used by several threads."""

    def __init__(self, counter: MessageCounter) -> None:
        self._counter = counter
        self._last = _Kept([], [], [], Walk([], []))

    def walk(self, messages: Sequence[Message]) -> Walk:
        """The beginnings of a list."""
        contents = _contents(messages)
        kept = self._last  # one look: another thread may put another in its place
        size = _same(kept, messages, contents)
        if size == len(messages) == len(kept.messages):
            return kept.walk
        prints, counted = kept.walk.prints[:size], kept.walk.counted[:size]
        added = messages[size:]
        prints += _fingerprints(added, prints[-1] if prints else 0)
        counted += list(accumulate(self._counter.counts(added), initial=counted[-1] if counted else 0))[1:]
        parts = [(at, says) for at, says in kept.parts if at < size]
        parts += [(at, _words(held)) for at, held in enumerate(contents[size:], size) if type(held) is not str]
        walk = Walk(prints, counted)
        self._last = _Kept(list(messages), contents, parts, walk)
        return walk


def _contents(messages: Sequence[Message]) -> list[Any]:
    """What each message holds; this runs over whole conversations at every request, so in one go."""
    try:
        return list(map(_CONTENT, messages))
    except AttributeError:  # not all are messages
        return [message.get("content") if type(message) is dict else None for message in messages]


def _same(kept: _Kept, messages: Sequence[Message], contents: list[Any]) -> int:
    """How many messages at the beginning are those that were walked last."""
    size = min(len(kept.messages), len(messages))
    try:
        if list(messages[:size]) != kept.messages[:size] or contents[:size] != kept.contents[:size]:
            pairs = zip(messages, kept.messages, contents, kept.contents, strict=False)
            size = next((at for at, (one, old, held, was) in enumerate(pairs) if one != old or held != was), size)
        return next((at for at, says in kept.parts if at < size and _words(contents[at]) != says), size)
    except RecursionError:  # nested deeper than the interpreter can compare
        return 0


def _held(message: Any) -> Any:
    """What a message says; of parts, a text that shows it."""
    content = message.get("content")
    return content if type(content) is str else _words(content)


def _fingerprints(messages: Sequence[Message], rolling: int) -> list[int]:
    """For each beginning of a list, a number that depends on all words and calls in it, and on nothing else.

    Marks for a provider's cache and the spelling of plain text as a part do not change it: they do not change what
    the model reads.
    """
    found: list[int] = []
    for message in messages:
        if type(message) is not dict:
            rolling = hash((rolling, repr(message)))
        else:
            calls = message.get("tool_calls")
            rolling = hash((rolling, str(message.get("role")), _held(message), repr(calls) if calls else None))
        found.append(rolling)
    return found


def _words(content: Any) -> str:
    if not content:
        return ""
    if not isinstance(content, list):
        return repr(content)
    texts = []
    for part in content:
        text = part_text(part) if isinstance(part, dict) else str(part)
        texts.append(text or repr(part))
    return "\n".join(texts)
