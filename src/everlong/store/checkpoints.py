"""Checkpoints in memory: how far lists were hashed already, so that one that has grown is hashed only where it grew.

A list is known again by a digest over its bytes as they came, which any edit of an earlier message changes; then it is
hashed from the start. Digests and ids are kept, and no words. May be used by several threads.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from everlong.model import HashChain, Message, Node, Trace
from everlong.store.content import encoded

MOST_BLOCKS = 100_000
"""Blocks of which the ids are kept, of all lists together: about 15 MB."""

LEAST = 32
"""Shorter lists are hashed as quickly as they are looked up."""

_PART = 128
"""Messages that are turned into bytes together; more would not stay in the processor's cache."""


class _Key(NamedTuple):
    first: bytes
    length: int
    digest: bytes


class _Checkpoint(NamedTuple):
    trace: Trace
    base: _Key | None
    """The checkpoint from which this one grew."""


class Checkpoints:
    """The last lists that were hashed; ``most_blocks`` of 0 keeps none, ``least`` is the shortest that is kept."""

    def __init__(self, chain: HashChain, most_blocks: int = MOST_BLOCKS, least: int = LEAST) -> None:
        self._chain = chain
        self._most = most_blocks
        self._least = least
        self._kept: OrderedDict[_Key, _Checkpoint] = OrderedDict()
        self._blocks = 0
        self._lock = threading.Lock()

    @property
    def blocks(self) -> int:
        """How many blocks' ids are kept."""
        return self._blocks

    def traced(self, messages: Sequence[Message], clean: Callable[[Message], Message]) -> Trace:
        """The hash chain over a whole conversation, each message cleaned before it is hashed."""
        if not self._least <= len(messages) <= self._most // 2:
            return self._chain.trace(map(clean, messages))
        first = hashlib.blake2b(encoded(messages[0]), digest_size=16).digest()
        known, key = self._known(first, messages)
        base = self._taken(known)
        if base is not None and known is not None and known.length == len(messages):
            return base.trace
        trace = self._grown(base, messages[known.length if base is not None and known is not None else 0 :], clean)
        self._keep(key, _Checkpoint(trace, known if base is not None else None))
        return trace

    def _known(self, first: bytes, messages: Sequence[Message]) -> tuple[_Key | None, _Key]:
        """The longest kept list with which this one begins, and the key of this one."""
        with self._lock:
            kept = {key for key in self._kept if key.first == first and key.length <= len(messages)}
        hasher = hashlib.sha256()  # quicker than others on most machines, and no two lists share one
        place, found = 0, None
        for length in sorted({key.length for key in kept} | {len(messages)}):
            while place < length:
                end = min(length, place + _PART)
                part = memoryview(encoded(messages[place:end]).lstrip())
                hasher.update(part[1:-1])  # the same bytes, wherever a list is cut
                hasher.update(b",")
                place = end
            key = _Key(first, length, hasher.copy().digest())
            if key in kept:
                found = key
        return found, key

    def _taken(self, key: _Key | None) -> _Checkpoint | None:
        with self._lock:
            if key is None or key not in self._kept:  # another thread may have let it go meanwhile
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def _grown(self, base: _Checkpoint | None, rest: Sequence[Message], clean: Callable[[Message], Message]) -> Trace:
        if base is None:
            return self._chain.trace(map(clean, rest))
        before = base.trace
        count = len(before.ids)
        start = Node(before.ids[-1], count) if count else self._chain.root()
        more = self._chain.trace(map(clean, rest), start)
        ends = [*before.ends, *(count + end for end in more.ends)]
        return Trace([*before.ids, *more.ids], [*before.blocks, *more.blocks], ends)

    def _keep(self, key: _Key, made: _Checkpoint) -> None:
        if len(made.trace.ids) > self._most // 2:
            return
        with self._lock:
            self._drop(key)
            base = self._kept.get(made.base) if made.base is not None else None
            if base is not None and base.base is not None:  # of one conversation the last two lengths are enough
                self._drop(base.base)
            self._kept[key] = made
            self._blocks += _size(made)
            while self._blocks > self._most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._blocks -= _size(gone)


def _size(kept: _Checkpoint) -> int:
    return max(len(kept.trace.ids), len(kept.trace.ends))
