"""The core of a store: its database, its tenant, and the reader and writer of messages.

Everything that manages a part of a store (sessions, turns, views) works on the core, and never on the whole store.
Checkpoints are the last lists of messages that were hashed, so that only what is new in a list is hashed again.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from everlong.context.engine import MESSAGE_TAG
from everlong.errors import NotStored
from everlong.model import HashChain, Message, Node, Trace, check_messages
from everlong.store.content import encoded
from everlong.store.database import Database
from everlong.store.paths import Entry, Reader, segments_to
from everlong.store.schema import branch as branches
from everlong.store.tree import Branch, Recorder


class StoreCore:
    """One tenant's part of a database, with the reader and the writer of its messages."""

    def __init__(
        self, database: Database, tenant: str = "local", *, redact: Callable[[Message], Message] | None = None
    ) -> None:
        self.database = database
        self.tenant = tenant
        self.chain = HashChain(tenant)
        self.checkpoints = Checkpoints(self.chain)
        self.redact = redact
        """Takes the secrets out of a message; None if they are stored."""
        self.recorder = Recorder(database, tenant)
        self.reader = Reader(database, tenant)

    def cleaned(self, message: Message) -> Message:
        """Return a message as it may be stored: without our own tag and, if the store redacts, without secrets."""
        if MESSAGE_TAG in message:
            message = {key: value for key, value in message.items() if key != MESSAGE_TAG}
        return message if self.redact is None else self.redact(message)

    def cleaned_text(self, text: str) -> str:
        """Return a text as it may be stored: without secrets, if the store redacts them."""
        return str(self.cleaned({"role": "tool", "content": text})["content"])

    def cleaned_tools(self, tools: Any) -> list[Any] | None:
        """Return the tools of a request as they may be stored, without secrets as well; None if it has none."""
        return self.cleaned({"tools": list(tools)})["tools"] if tools and isinstance(tools, list | tuple) else None

    def branch(self, number: int, depth: int | None = None) -> Branch:
        """Return a branch at its newest end, or at a depth where a message ends; 0 is before the first one."""
        with self.database.read() as connection:
            row = connection.execute(
                select(branches.c.head, branches.c.head_depth, branches.c.root).where(
                    branches.c.id == number, branches.c.tenant == self.tenant
                )
            ).first()
        if row is None:
            raise NotStored(f"there is no branch {number} in {self.database.backend.where}")
        if depth == 0:
            return Branch(number, self.chain.root().id if row.root is None else bytes(row.root), 0)
        if depth is None or depth == row.head_depth:
            return Branch(number, bytes(row.head), row.head_depth)
        entry = next((entry for entry in self.entries(Branch(number, b"", depth), depth - 1) if entry.id), None)
        if entry is None or entry.id is None:
            raise NotStored(f"no message of branch {number} ends at depth {depth}")
        return Branch(number, entry.id, depth)

    def entries(self, at: Branch, low: int = -1, high: int | None = None) -> list[Entry]:
        """Return the stored messages that lead to a place, with their numbers and times, without any view."""
        with self.database.read() as connection:
            path = segments_to(connection, at.id, at.depth)
            return self.reader.entries(connection, path, low, at.depth if high is None else high)


# -- checkpoints -------------------------------------------------------------------------------------------------------

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

    Each list is kept with a copy of its messages, and a new list is compared with the copies: an edit in place is not
    overlooked. `bench.store.speed` holds the record of a list that has grown against hashing all of it.

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
