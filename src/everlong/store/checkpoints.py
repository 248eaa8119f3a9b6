"""Checkpoints: lists of messages that were hashed before, so that only what is new in a list is hashed again.

The lists form a tree of pieces: lists that begin alike share the pieces of their beginning. A piece keeps the hashes of
its messages, and a copy of each message to compare a new list with. Where the copies of all lists hold too much text,
the pieces that were used longest ago keep a digest in their place. So a list of any length is remembered within bounded
memory, and any beginning of it is recognised. The copies keep an edit in place from being overlooked.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, overload

from everlong.model import HashChain, Message, Node, Trace, check_messages
from everlong.store.content import encoded

MOST_BLOCKS = 1_000_000
"""The most blocks whose hashes are kept, of all lists together: about 40 MB."""

MOST_TEXT = 128_000_000
"""The most bytes of text that are kept to compare with; callers who keep their messages share the text."""

LEAST = 32
"""The fewest messages of a list that is kept: shorter ones are hashed as quickly as they are looked up."""

PIECE = 256
"""The messages of a full piece."""

_MOST_ALIKE = 8
"""The most pieces that follow the same one and begin with the same message."""

_WIDTH = 16
"""The bytes of a hash."""


class PackedHashes(Sequence[bytes]):
    """Hashes in a row, unpacked where they are looked at."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // _WIDTH

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        data = self.data
        if isinstance(place, slice):
            return [data[at * _WIDTH : (at + 1) * _WIDTH] for at in range(*place.indices(len(self)))]
        at = place + len(self) if place < 0 else place
        if not 0 <= at < len(self):
            raise IndexError(f"there is no hash {place} among {len(self)}")
        return data[at * _WIDTH : (at + 1) * _WIDTH]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedHashes):
            return self.data == other.data
        return isinstance(other, list) and len(other) == len(self) and self.data == b"".join(other)

    __hash__ = None  # type: ignore[assignment] # it equals lists, which have none either


class _Piece:
    """Some messages in a row, after those of the pieces above: their hashes, and what tells them from others."""

    __slots__ = ("above", "blocks", "children", "copies", "digest", "ends", "exact", "first", "ids", "key", "text")

    def __init__(self, above: _Piece | None, key: bytes) -> None:
        self.above = above
        self.key = key
        """The digest of its first message; of a root, its id."""
        self.first = 0 if above is None or not above.ends else above.ends[-1]
        """The blocks of the pieces above."""
        self.copies: list[Message] | None = []
        """The messages themselves; None for a full piece that is known by its digest."""
        self.exact: dict[int, bytes] = {}
        """The digests of messages that may equal others in Python and differ in JSON, by their places."""
        self.digest = b""
        self.ids = bytearray()
        self.blocks = bytearray()
        self.ends: array[int] = array("q")
        """The number of blocks up to the end of each message, from the first message of the list on."""
        self.text = 0
        self.children: dict[bytes, list[_Piece]] = {}

    @property
    def size(self) -> int:
        """The memory that its hashes take, in blocks."""
        return max(len(self.ids) // _WIDTH, len(self.ends))

    def count_common(self, messages: Sequence[Message], place: int) -> int:
        """Return how many of its messages stand in a list from a place on."""
        if self.copies is None:
            part = messages[place : place + len(self.ends)]
            return len(part) if len(part) == len(self.ends) and _digest(part) == self.digest else 0
        part = messages[place : place + len(self.copies)]
        count = len(part)
        try:
            if part != self.copies[:count]:
                pairs = enumerate(zip(part, self.copies, strict=False))
                count = next((at for at, (one, other) in pairs if one != other), 0)
        except (TypeError, ValueError, RecursionError):  # values that cannot be compared
            return 0
        changed = (at for at, known in self.exact.items() if at < count and _digest(part[at]) != known)
        return min(changed, default=count)

    def add(self, copy: Message, exact: bytes | None, text: int, trace: Trace, at: int, before: int) -> None:
        """Add a message of a list, which follows so many blocks, with its hashes."""
        assert self.copies is not None  # noqa: S101 - only full pieces are known by a digest
        if exact is not None:
            self.exact[len(self.copies)] = exact
        self.copies.append(copy)
        start = trace.ends[at - 1] if at else 0
        self.ids += b"".join(trace.ids[start : trace.ends[at]])
        self.blocks += b"".join(trace.blocks[start : trace.ends[at]])
        self.ends.append(before + trace.ends[at])
        self.text += text

    def begin_like(self, other: _Piece, count: int) -> None:
        """Take over the first messages of a piece that follows the same one."""
        assert other.copies is not None  # noqa: S101 - as above
        blocks = (other.ends[count - 1] if count else other.first) - other.first
        self.copies = other.copies[:count]
        self.exact = {at: known for at, known in other.exact.items() if at < count}
        self.ids, self.blocks = other.ids[: blocks * _WIDTH], other.blocks[: blocks * _WIDTH]
        self.ends = other.ends[:count]
        self.text = other.text * count // max(1, len(other.ends))

    def seal(self) -> None:
        """Keep a digest in the place of the messages."""
        self.digest, self.copies, self.exact, self.text = _digest(self.copies), None, {}, 0


class Checkpoints:
    """The last lists that were hashed; ``most_blocks`` of 0 keeps none, ``least`` is the shortest that is kept."""

    def __init__(
        self, chain: HashChain, most_blocks: int = MOST_BLOCKS, least: int = LEAST, most_text: int = MOST_TEXT
    ) -> None:
        self._chain = chain
        self._most = most_blocks
        self._most_text = most_text
        self._least = least
        self._roots: dict[bytes, _Piece] = {}
        self._used: OrderedDict[_Piece, None] = OrderedDict()
        """All pieces, those used longest ago first; a piece stands behind those that follow it."""
        self._open: OrderedDict[_Piece, None] = OrderedDict()
        """Those of them that have copies."""
        self._blocks = 0
        self._text = 0
        self._lock = threading.RLock()

    @property
    def blocks(self) -> int:
        """The number of blocks whose hashes are kept."""
        return self._blocks

    @property
    def text(self) -> int:
        """The bytes of text that are kept to compare with."""
        return self._text

    def clear(self) -> None:
        """Forget all lists."""
        with self._lock:
            self._roots.clear()
            self._used.clear()
            self._open.clear()
            self._blocks = self._text = 0

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
        if len(messages) < self._least or not self._most:
            check_messages(messages, skip)
            return self._chain.trace(map(clean, messages), start)
        with self._lock:
            path, count = self._find(start.id, messages)
            before = _joined(path, count)
        check_messages(messages[count:], skip + count)
        if count == len(messages):
            return before
        depth = len(before.ids)
        more = self._chain.trace(map(clean, messages[count:]), Node(before.ids[-1], depth) if depth else start)
        with self._lock:
            self._keep(start.id, path, count, messages, more, depth)
        if not count:
            return more
        ends = [*before.ends, *(depth + end for end in more.ends)]
        ids, blocks = (b"".join([_bytes(one), *other]) for one, other in zip(before[:2], more[:2], strict=True))
        return Trace(PackedHashes(ids), PackedHashes(blocks), ends)

    def _find(self, root: bytes, messages: Sequence[Message]) -> tuple[list[_Piece], int]:
        """Return the pieces that a list begins with, and how many of its messages they are."""
        path: list[_Piece] = []
        place, above = 0, self._roots.get(root)
        while above is not None and place < len(messages) and above.children:
            best, longest = None, 0
            for piece in above.children.get(_digest(messages[place]), ()):
                count = piece.count_common(messages, place)
                if count > longest:
                    best, longest = piece, count
            if best is None:
                break
            path.append(best)
            place += longest
            above = best if longest == len(best.ends) == PIECE else None
        self._touch(path)
        return path, place

    def _touch(self, path: Sequence[_Piece]) -> None:
        """Note that pieces are used: those at the end of a list are let go before those that they follow."""
        for piece in reversed(path):
            if piece in self._used:
                self._used.move_to_end(piece)
            if piece in self._open:
                self._open.move_to_end(piece)
            alike = piece.above.children.get(piece.key, []) if piece.above is not None else []
            if len(alike) > 1 and piece in alike:
                alike.remove(piece)
                alike.append(piece)

    def _keep(
        self, root: bytes, path: list[_Piece], count: int, messages: Sequence[Message], more: Trace, depth: int
    ) -> None:
        """Keep what follows the first messages of a list, unless others have changed the pieces meanwhile."""
        if any(piece not in self._used for piece in path):
            return
        above = path[-1].above if path else self._roots.setdefault(root, _Piece(None, root))
        assert above is not None  # noqa: S101 - every piece of a path follows another one, or the root
        last = path.pop() if path else None
        known = count - len(path) * PIECE
        if last is not None and known == PIECE:
            path.append(last)
            above, last = last, None
        piece = None
        if last is not None and last.copies is not None:
            piece = last if known == len(last.copies) else self._begin_piece(above, last.key)
            if piece is not last:
                piece.begin_like(last, known)
                self._blocks += piece.size
                self._text += piece.text
            path.append(piece)
        elif last is not None:
            return
        for at, message in enumerate(islice(messages, count, None)):
            if piece is None or len(piece.ends) == PIECE:
                piece = self._begin_piece(path[-1] if path else above, _digest(message))
                path.append(piece)
            copy, exact, text = _copied(message)
            size = piece.size
            piece.add(copy, exact, text, more, at, depth)
            self._blocks += piece.size - size
            self._text += text
        self._touch(path)
        self._shrink()

    def _begin_piece(self, above: _Piece, key: bytes) -> _Piece:
        alike = above.children.setdefault(key, [])
        if len(alike) >= _MOST_ALIKE:
            oldest = next((piece for piece in alike if not piece.children), None)
            if oldest is not None:
                self._drop(oldest)
                alike = above.children.setdefault(key, [])
        piece = _Piece(above, key)
        alike.append(piece)
        self._used[piece] = self._open[piece] = None
        return piece

    def _shrink(self) -> None:
        """Let go of what was used longest ago: first of text that a digest can stand for, then of whole pieces."""
        if self._text > self._most_text:
            for piece in [piece for piece in self._open if len(piece.ends) == PIECE]:
                self._text -= piece.text
                piece.seal()
                del self._open[piece]
                if self._text <= self._most_text:
                    break
        while self._used and (self._blocks > self._most or self._text > self._most_text):
            self._drop(next(iter(self._used)))

    def _drop(self, piece: _Piece) -> None:
        """Let a piece go that no other one follows."""
        self._used.pop(piece, None)
        self._open.pop(piece, None)
        self._blocks -= piece.size
        self._text -= piece.text
        if piece.above is not None:
            alike = piece.above.children.get(piece.key, [])
            alike.remove(piece)
            if not alike:
                del piece.above.children[piece.key]
            if piece.above.above is None and not piece.above.children:
                self._roots.pop(piece.above.key, None)


def _joined(path: Sequence[_Piece], count: int) -> Trace:
    """Return the chain over the first messages of a list, which some pieces hold."""
    if not path:
        return Trace([], [], [])
    last = path[-1]
    known = count - (len(path) - 1) * PIECE
    blocks = (last.ends[known - 1] - last.first) * _WIDTH
    ends: array[int] = array("q")
    for piece in path[:-1]:
        ends.extend(piece.ends)
    ends.extend(last.ends[:known])
    ids = b"".join([*(piece.ids for piece in path[:-1]), last.ids[:blocks]])
    hashes = b"".join([*(piece.blocks for piece in path[:-1]), last.blocks[:blocks]])
    return Trace(PackedHashes(ids), PackedHashes(hashes), ends.tolist())


def _bytes(hashes: Sequence[bytes]) -> bytes:
    return hashes.data if isinstance(hashes, PackedHashes) else b"".join(hashes)


def _digest(value: Any) -> bytes:
    """Return a digest of a message, or of several; sha256 is quicker than others on most machines."""
    return hashlib.sha256(encoded(value)).digest()


def _copied(message: Message) -> tuple[Message, bytes | None, int]:
    """Return a copy that shares the texts, a digest where comparing it does not tell all, and its size."""
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
    except RecursionError:  # nested deeper than the interpreter's stack: known by its digest alone
        return {}, None, 0
    return copy, None if is_plain else _digest(message), text
