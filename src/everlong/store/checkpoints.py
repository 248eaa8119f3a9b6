"""Checkpoints: the last lists of messages that were hashed, so that only what is new in a list is hashed again.

Each list is kept with a copy of its messages, and a new list is compared with the copies: an edit in place is not
overlooked. `bench.store.speed` holds the record of a list that has grown against hashing all of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from everlong.model import HashChain, Message, Node, Trace, check_messages
from everlong.store.content import encoded

MOST_BLOCKS = 1_000_000
"""The most blocks whose hashes are kept, of all lists together: about 120 MB."""

MOST_TEXT = 128_000_000
"""The most bytes of text that are kept to compare with; callers who keep their messages share the text."""

LEAST = 32
"""The fewest messages of a list that is kept: shorter ones are hashed as quickly as they are looked up."""

_MOST_ALIKE = 8
"""The most lists that begin with the same message."""


class _Copy(NamedTuple):
    """A message to compare with: a digest tells those apart that are equal in Python and differ in JSON."""

    message: Message
    exact: bytes | None
    text: int


class _KeptList:
    """One list: the copies of its messages, and its hashes."""

    __slots__ = ("copies", "exact", "key", "text", "trace")

    def __init__(self, key: tuple[bytes, bytes]) -> None:
        self.key = key
        self.copies: list[Message] = []
        self.exact: dict[int, bytes] = {}
        self.text: list[int] = []
        self.trace = Trace([], [], [])

    def extend(self, copies: Sequence[_Copy], trace: Trace) -> None:
        """Add messages; the chain is that of the whole list."""
        for at, one in enumerate(copies, len(self.copies)):
            if one.exact is not None:
                self.exact[at] = one.exact
        self.copies += [one.message for one in copies]
        self.text += [one.text for one in copies]
        self.trace = trace

    @property
    def blocks(self) -> int:
        """The memory that its hashes take, in blocks."""
        return max(len(self.trace.ids), len(self.copies))

    def count_common(self, messages: Sequence[Message]) -> int:
        """Return how many first messages a list shares with it."""
        count = min(len(messages), len(self.copies))
        try:
            if messages[:count] != self.copies[:count]:
                pairs = enumerate(zip(messages, self.copies, strict=False))
                count = next((at for at, (one, other) in pairs if one != other), 0)
        except (TypeError, ValueError, RecursionError):  # values that cannot be compared
            return 0
        changed = (at for at, known in self.exact.items() if at < count and _digest(messages[at]) != known)
        return min(changed, default=count)

    def first(self, count: int) -> Trace:
        """Return the chain over its first messages."""
        blocks = self.trace.ends[count - 1] if count else 0
        return Trace(list(self.trace.ids[:blocks]), list(self.trace.blocks[:blocks]), list(self.trace.ends[:count]))

    def copies_of(self, count: int) -> list[_Copy]:
        """Return the copies of its first messages."""
        return [_Copy(self.copies[at], self.exact.get(at), self.text[at]) for at in range(count)]


class Checkpoints:
    """The last lists that were hashed; ``most_blocks`` of 0 keeps none, ``least`` is the shortest that is kept."""

    def __init__(
        self, chain: HashChain, most_blocks: int = MOST_BLOCKS, least: int = LEAST, most_text: int = MOST_TEXT
    ) -> None:
        self._chain = chain
        self._most, self._most_text, self._least = most_blocks, most_text, least
        self._kept: OrderedDict[_KeptList, None] = OrderedDict()
        """All lists, those used longest ago first."""
        self._alike: dict[tuple[bytes, bytes], list[_KeptList]] = {}
        """The lists by their root and the digest of their first message."""
        self._lock = threading.RLock()
        self.blocks = 0
        """The number of blocks whose hashes are kept."""
        self.text = 0
        """The bytes of text that are kept to compare with."""

    def clear(self) -> None:
        """Forget all lists."""
        with self._lock:
            self._kept.clear()
            self._alike.clear()
            self.blocks = self.text = 0

    def traced(
        self,
        messages: Sequence[Message],
        clean: Callable[[Message], Message],
        root: Node | None = None,
        *,
        skip: int = 0,
    ) -> Trace:
        """Return the hash chain over a whole conversation, each message cleaned before it is hashed.

        Args:
            messages: the messages; those that were hashed before are not checked again.
            clean: returns a message as it is stored.
            root: the node before the first message, if it is not the common one.
            skip: the number of messages before these in the caller's list, which an error counts too.
        """
        start = root or self._chain.root()
        if not messages or len(messages) < self._least or not self._most:
            check_messages(messages, skip)
            return self._chain.trace(map(clean, messages), start)
        key = (start.id, _digest(messages[0]))
        with self._lock:
            alike = [(one.count_common(messages), place) for place, one in enumerate(self._alike.get(key, ()))]
            count, place = max(alike, default=(0, 0))
            known = self._alike[key][place] if count else None
            before = Trace([], [], []) if known is None else known.first(count)
            if known is not None:
                self._kept.move_to_end(known)
        check_messages(messages[count:], skip + count)
        if count == len(messages):
            return before
        depth = len(before.ids)
        more = self._chain.trace(map(clean, messages[count:]), Node(before.ids[-1], depth) if depth else start)
        ends = [*before.ends, *(depth + end for end in more.ends)]
        whole = Trace([*before.ids, *more.ids], [*before.blocks, *more.blocks], ends)
        added = list(map(_copied, messages[count:]))
        with self._lock:
            if known is not None and len(known.copies) == count:  # the list has grown
                self._drop(known)
                grown = known
            else:
                grown = _KeptList(key)
                grown.extend([] if known is None else known.copies_of(count), before)
            grown.extend(added, whole)
            self._keep(grown)
        return Trace(list(whole.ids), list(whole.blocks), list(whole.ends))

    def _keep(self, made: _KeptList) -> None:
        alike = self._alike.setdefault(made.key, [])
        if len(alike) >= _MOST_ALIKE:
            self._drop(alike[0])
        self._kept[made] = None
        self._alike.setdefault(made.key, []).append(made)
        self.blocks += made.blocks
        self.text += sum(made.text)
        while self._kept and (self.blocks > self._most or self.text > self._most_text):
            self._drop(next(iter(self._kept)))

    def _drop(self, one: _KeptList) -> None:
        if one in self._kept:  # another thread may have dropped it
            del self._kept[one]
            self._alike[one.key].remove(one)
            if not self._alike[one.key]:
                del self._alike[one.key]
            self.blocks -= one.blocks
            self.text -= sum(one.text)


def _digest(value: Any) -> bytes:
    """Return a digest of a message; sha256 is quicker than others on most machines."""
    return hashlib.sha256(encoded(value)).digest()


def _copied(message: Message) -> _Copy:
    """Return a copy of a message that shares its texts."""
    text = 0
    is_plain = True

    def copied(value: Any) -> Any:
        nonlocal text, is_plain
        if type(value) is str:
            text += len(value)
            return value
        if isinstance(value, dict):
            is_plain = is_plain and all(type(key) is str for key in value)
            return {key: copied(one) for key, one in value.items()}
        if type(value) is list:
            return [copied(one) for one in value]
        is_plain = is_plain and value is None  # 1, 1.0 and True are equal, and other values may change
        return value

    try:
        copy = copied(message)
    except RecursionError:  # nested deeper than the interpreter's stack
        return _Copy({}, None, 0)
    return _Copy(copy, None if is_plain else _digest(message), text)
