"""A session's latest request as blocks with prefix hashes, kept from one request to the next.

A request that only grew costs what it grew by. The message list is compared with the last request's: by identity if a
host keeps its message objects, else by value. So a host must not change a message that it has sent in place.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from everlong.caching.blocks import Block, Count, Layout, head_blocks, message_blocks, rough_count, system_count
from everlong.model import Message
from everlong.tokens import MessageCounter

__all__ = ["SWITCHES", "RequestView", "extend_chain", "link", "switches_of"]

_CHUNK = 512

_SYSTEM_SWITCHES = ("speed",)
_MESSAGE_SWITCHES = (
    "tool_choice",
    "parallel_tool_calls",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "output_config",
)
SWITCHES = (*_SYSTEM_SWITCHES, *_MESSAGE_SWITCHES)
"""Fields of a request that invalidate what is cached, without being part of the prompt."""


class RequestView:
    """The blocks of a session's latest request, with the hash of every prefix and its size in tokens.

    ``blocks[i]`` ends the prefix with the hash ``chain[i]`` and ``sizes[i]`` tokens. With a ``counter``, the blocks of
    a message, and those of the tools, add up to what it counts.
    """

    def __init__(self, root: str, count: Count = rough_count, counter: MessageCounter | None = None) -> None:
        self.blocks: list[Block] = []
        self.chain: list[bytes] = []
        self.sizes: list[int] = []
        self.kept = 0
        """The number of leading blocks that are the same as in the request before."""
        self.head = 0
        """The number of blocks before the first message that is no system prompt."""
        self.frontiers: list[int] = []
        """Blocks where history was edited: summaries and cleared results."""
        self.ephemerals: list[int] = []
        """Blocks that only this request has."""
        self.marked: list[int] = []
        """Blocks that the client marked itself."""
        self._had_images = False
        self._root = link(b"", root.encode("utf-8", "surrogatepass"))
        self._count = count
        self._counter = counter
        self._layout: Layout | None = None
        self._front: tuple[Any, ...] = ()
        self._front_size = 0
        self._switches = ("", "")
        self._messages: list[Message] = []
        self._starts: list[int] = []
        self._images = 0

    def update(self, body: Mapping[str, Any], layout: Layout) -> None:
        """Read the next request."""
        messages = body.get("messages")
        messages = messages if isinstance(messages, list) else list(messages or ())
        before = len(self.blocks)
        leading = system_count(messages, layout)
        front = (layout, leading, body.get("tools"), body.get("system"))
        switches = switches_of(body)
        if self._layout is None or not _equal([front], [self._front]):
            self._rebuild(body, layout, messages, leading)
            self._front = front
        else:
            self._grow(messages, layout, leading)
        self._switches, stale = switches, self._switches != switches
        self._layout = layout
        self._relink(before, stale=stale)

    # -- which blocks ------------------------------------------------------------------------------------------------

    def _rebuild(self, body: Mapping[str, Any], layout: Layout, messages: list[Message], leading: int) -> None:
        old = self.blocks
        self.blocks = head_blocks(body, layout, self._count)
        if self._counter is not None and body.get("tools") and layout != "anthropic":
            self.blocks = _fit(self.blocks, self._counter.count_tools(body["tools"]))
        self._front_size = len(self.blocks)
        self._messages, self._starts, self._images = [], [], 0
        self.frontiers, self.ephemerals = [], []
        self.marked = [at for at, block in enumerate(self.blocks) if block.marker]
        self._extend(messages, layout, leading)
        self.kept = _common_length(old, self.blocks)

    def _grow(self, messages: list[Message], layout: Layout, leading: int) -> None:
        same = self._same_messages(messages)
        known: list[tuple[Message, list[Block]]] = []
        if same < len(self._messages):
            start = self._starts[same]
            ends = [*self._starts[same + 1 :], len(self.blocks)]
            pieces = [self.blocks[low:high] for low, high in zip(self._starts[same:], ends, strict=True)]
            known = list(zip(self._messages[same:], pieces, strict=True))
            del self._messages[same:]
            self._images -= sum(block.kind == "image" for block in self.blocks[start:])
            del self.blocks[start:], self._starts[same:]
            for places in (self.frontiers, self.ephemerals, self.marked):
                del places[bisect_left(places, start) :]
        self.kept = len(self.blocks)
        self._extend(messages[same:], layout, leading, known)

    def _extend(
        self,
        messages: list[Message],
        layout: Layout,
        leading: int,
        known: Sequence[tuple[Message, list[Block]]] = (),
    ) -> None:
        """Append messages; ``known`` has the messages that stood in their places, with their blocks."""
        for offset, message in enumerate(messages):
            at = len(self._messages)
            self._messages.append(message)
            self._starts.append(len(self.blocks))
            before, added = known[offset] if offset < len(known) else (None, [])
            if before is not message:
                added = message_blocks(at, message, layout, self._count, leads=at < leading)
                if self._counter is not None:
                    added = _fit(added, self._counter.count(message))
            for place, block in enumerate(added, len(self.blocks)):
                self._images += block.kind == "image"
                if block.is_frontier:
                    self.frontiers.append(place)
                if block.is_ephemeral:
                    self.ephemerals.append(place)
                if block.marker:
                    self.marked.append(place)
            self.blocks += added
        self.head = self._starts[leading] if leading < len(self._starts) else len(self.blocks)

    def _same_messages(self, messages: list[Message]) -> int:
        """Count the leading messages that are those of the last request, unchanged."""
        old = self._messages
        same = min(len(old), len(messages))
        return _first_difference(old, messages, same)  # nearly always a comparison by identity

    # -- hashes ------------------------------------------------------------------------------------------------------

    def _relink(self, before: int, *, stale: bool) -> None:
        """Derive the prefix hashes that changed; all of them, if a switch of the request changed."""
        self.kept = min(self.kept, before)
        if stale:
            self.kept = 0
        elif (self._images > 0) != self._had_images:
            self.kept = min(self.kept, self.head)
        self._had_images = self._images > 0
        kept = self.kept
        del self.chain[kept:], self.sizes[kept:]
        extend_chain(self.chain, self.sizes, self.blocks, self._root, self.head, self._switches, self._had_images)


def _fit(blocks: list[Block], tokens: int) -> list[Block]:
    """Return blocks whose tokens add up to a number, each with its share of it."""
    whole = sum(block.tokens for block in blocks) or 1
    fitted: list[Block] = []
    upto = given = 0
    for block in blocks:
        upto += block.tokens
        share = tokens * upto // whole - given
        given += share
        fitted.append(block._replace(tokens=share))
    return [*fitted[:-1], fitted[-1]._replace(tokens=fitted[-1].tokens + tokens - given)]


def extend_chain(
    chain: list[bytes],
    sizes: list[int],
    blocks: Sequence[Block],
    root: bytes,
    head: int,
    switches: tuple[str, str],
    has_images: bool,
) -> None:
    """Append the missing prefix hashes and sizes; a switch counts from the tier on that it invalidates."""
    last = chain[-1] if chain else root
    size = sizes[-1] if sizes else 0
    for at in range(len(chain), len(blocks)):
        block = blocks[at]
        if switches[0] and block.tier != "tools" and (at == 0 or blocks[at - 1].tier == "tools"):
            last = link(last, switches[0].encode())
        if at == head:
            last = link(last, f"{switches[1]}|{'image' if has_images else ''}".encode())
        last = link(last, block.digest)
        size += block.tokens
        chain.append(last)
        sizes.append(size)


def link(before: bytes, data: bytes) -> bytes:
    """Return the hash of a prefix that is one piece longer."""
    return blake2b(before + data, digest_size=16).digest()


def switches_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the fields that invalidate a cached system prompt, and those that invalidate messages, as text."""
    return _fields_as_text(body, _SYSTEM_SWITCHES), _fields_as_text(body, _MESSAGE_SWITCHES)


def _fields_as_text(body: Mapping[str, Any], names: Sequence[str]) -> str:
    found = {name: body[name] for name in names if body.get(name) is not None}
    return json.dumps(found, sort_keys=True, default=str) if found else ""


def _equal(left: list[Any], right: list[Any]) -> bool:
    try:
        return left == right
    except RecursionError:  # nested deeper than the interpreter compares
        return False


def _first_difference(left: list[Any], right: list[Any], length: int) -> int:
    for start in range(0, length, _CHUNK):
        stop = min(length, start + _CHUNK)
        if not _equal(left[start:stop], right[start:stop]):
            return next((at for at in range(start, stop) if not _equal([left[at]], [right[at]])), stop)
    return length


def _common_length(left: list[Block], right: list[Block]) -> int:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one.digest != other.digest or one.tier != other.tier:
            return at
    return min(len(left), len(right))
