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

MOST_BYTES = 256_000_000
"""The most memory for all lists together; callers who keep their messages share the text."""

LEAST = 32
"""The fewest messages of a list that is kept: shorter ones are hashed as quickly as they are looked up."""

_BLOCK_BYTES = 120
"""About the memory that the hashes of a block take."""


class _KeptList(NamedTuple):
    """One list: the copies of its messages, and its hashes."""

    copies: list[Message]
    exact: dict[int, bytes]
    """Digests of messages that may be equal to others in Python and differ in JSON, by their place."""
    trace: Trace
    size: int
    """About the bytes that it takes."""

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


class Checkpoints:
    """The last lists that were hashed, the newest of those that begin alike.

    ``most_bytes`` of 0 keeps none, ``least`` is the shortest that is kept.
    """

    def __init__(self, chain: HashChain, most_bytes: int = MOST_BYTES, least: int = LEAST) -> None:
        self._chain = chain
        self._most, self._least = most_bytes, least
        self._kept: OrderedDict[tuple[bytes, bytes], _KeptList] = OrderedDict()
        """Lists by their root and the digest of their first message, those used longest ago first."""
        self._lock = threading.Lock()
        self.size = 0
        """About the bytes that all lists take."""

    def clear(self) -> None:
        """Forget all lists."""
        with self._lock:
            self._kept.clear()
            self.size = 0

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
            known = self._kept.get(key, _KeptList([], {}, Trace([], [], []), 0))
        count = known.count_common(messages)
        check_messages(messages[count:], skip + count)
        depth = known.trace.ends[count - 1] if count else 0
        ids, blocks, ends = known.trace.ids[:depth], known.trace.blocks[:depth], known.trace.ends[:count]
        more = self._chain.trace(map(clean, messages[count:]), Node(ids[-1], depth) if depth else start)
        whole = Trace([*ids, *more.ids], [*blocks, *more.blocks], [*ends, *(depth + end for end in more.ends)])
        self._keep(key, _extended(known, count, messages, whole))
        return Trace(list(whole.ids), list(whole.blocks), list(whole.ends))

    def _keep(self, key: tuple[bytes, bytes], made: _KeptList) -> None:
        with self._lock:
            if (before := self._kept.pop(key, None)) is not None:
                self.size -= before.size
            self._kept[key] = made
            self.size += made.size
            while self.size > self._most:
                self.size -= self._kept.popitem(last=False)[1].size


def _extended(known: _KeptList, count: int, messages: Sequence[Message], trace: Trace) -> _KeptList:
    """Return a list that begins with the first messages of a known one."""
    size = known.size * count // max(1, len(known.copies))
    copies = known.copies[:count]
    exact = {at: digest for at, digest in known.exact.items() if at < count}
    for at, message in enumerate(messages[count:], count):
        copy, text, is_plain = _copied(message)
        copies.append(copy)
        size += text + _BLOCK_BYTES
        if not is_plain:
            exact[at] = _digest(message)
    return _KeptList(copies, exact, trace, size)


def _digest(value: Any) -> bytes:
    """Return a digest of a message; sha256 is quicker than others on most machines."""
    return hashlib.sha256(encoded(value)).digest()


def _copied(message: Message) -> tuple[Message, int, bool]:
    """Return a copy of a message that shares its texts, their length, and whether it is equal only to its like."""
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
        return {}, 0, True
    return copy, text, is_plain
