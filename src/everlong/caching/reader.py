"""Requests as a provider's cache sees them: blocks, prefix hashes, sizes, and the markers that they carry.

Reads whole requests, marked or not, and relies on nothing but what is in them; message objects that come again are
only looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from everlong.caching.blocks import Block, Count, Layout, head_blocks, message_blocks, system_count
from everlong.caching.view import extend_chain, link, switches_of
from everlong.model import Message

__all__ = ["Measure", "Prompt", "PromptReader"]

Measure: TypeAlias = Callable[[Mapping[str, Any]], Sequence[int]]
"""Gives the tokens of every block of a request in order: tools, system, messages."""


class Prompt(NamedTuple):
    """One request: ``blocks[i]`` ends the prefix with the hash ``chain[i]`` and ``sizes[i]`` tokens."""

    blocks: list[Block]
    chain: list[bytes]
    sizes: list[int]
    marks: list[tuple[int, str]]
    """The marked blocks in order, and for how long each is to be kept."""

    @property
    def tokens(self) -> int:
        """The size of the whole."""
        return self.sizes[-1] if self.sizes else 0

    def upto(self, at: int) -> int:
        """The tokens of the prefix that a block ends; none before the first."""
        return self.sizes[at] if at >= 0 else 0


class PromptReader:
    """Reads the requests of a session; what it read before costs a look. ``measure`` stands above ``count``."""

    def __init__(self, count: Count, measure: Measure | None = None) -> None:
        self._count = count
        self._measure = measure
        self._blocks: dict[tuple[int, Layout, bool], tuple[Message, list[Block]]] = {}
        self._last: tuple[tuple[Any, ...], list[bytes], list[bytes], list[int]] | None = None

    def read(self, body: Mapping[str, Any], layout: Layout, root: str) -> Prompt:
        """One request; ``root`` names what its cache is not shared with others of, such as the model."""
        messages = list(body.get("messages") or ())
        leading = system_count(messages, layout)
        blocks = head_blocks(body, layout, self._count)
        head = len(blocks) if not leading else -1
        for at, message in enumerate(messages):
            if at == leading:
                head = len(blocks)
            blocks += self._read(at, message, layout, leads=at < leading)
        if head < 0:
            head = len(blocks)
        if self._measure is not None:
            blocks = _measured(blocks, self._measure(body))
        marks = [(at, block.marker) for at, block in enumerate(blocks) if block.marker]
        automatic = body.get("cache_control") if layout == "anthropic" else None
        if isinstance(automatic, Mapping):
            last = next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at].can_mark), None)
            if last is not None and last not in dict(marks):
                marks.append((last, "1h" if automatic.get("ttl") == "1h" else "5m"))
        chain, sizes = self._chain(blocks, root, head, switches_of(body))
        return Prompt(blocks, chain, sizes, marks)

    def _read(self, at: int, message: Message, layout: Layout, *, leads: bool) -> list[Block]:
        key = (id(message), layout, leads)
        found = self._blocks.get(key)
        if found is None or found[0] is not message:  # holding the message keeps its id from being given away
            found = self._blocks[key] = (message, message_blocks(at, message, layout, self._count, leads=leads))
        return found[1]

    def _chain(
        self, blocks: list[Block], root: str, head: int, switches: tuple[str, str]
    ) -> tuple[list[bytes], list[int]]:
        has_images = any(block.kind == "image" for block in blocks)
        circumstances = (root, head, switches, has_images)
        digests = [block.digest for block in blocks]
        chain: list[bytes] = []
        sizes: list[int] = []
        if self._last is not None and self._last[0] == circumstances:
            _, before, chain, sizes = self._last
            pairs = zip(digests, before, strict=False)
            same = next((at for at, (new, old) in enumerate(pairs) if new != old), min(len(before), len(digests)))
            chain, sizes = chain[:same], sizes[:same]
        extend_chain(chain, sizes, blocks, link(b"", root.encode()), head, switches, has_images)
        self._last = (circumstances, digests, chain, sizes)
        return chain, sizes


def _measured(blocks: Sequence[Block], sizes: Sequence[int]) -> list[Block]:
    if len(sizes) != len(blocks):
        raise ValueError(
            f"measure gave {len(sizes)} numbers for a request of {len(blocks)} blocks; give one for each tool, each "
            "block of the system prompt and each block of a message"
        )
    return [block._replace(tokens=tokens) for block, tokens in zip(blocks, sizes, strict=True)]
