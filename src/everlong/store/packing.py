"""Packed messages: checked, traced, encoded and compressed, so that only their rows are left to be written.

This takes most of the time that an import needs and no database, so that another process can do it. Messages that
identify nothing are few and stay as they are; of all others only the role is told, and the rest can be unpacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import starmap

from everlong.context.engine import MESSAGE_TAG
from everlong.model import HashChain, Message, Node, Trace, checked_messages
from everlong.store.content import Blob, blob, encoded, value_of

__all__ = ["PackedMessages", "cleaned_message", "pack_messages"]


def cleaned_message(message: Message, redact: Callable[[Message], Message] | None) -> Message:
    """Return a message as it may be stored: without our own tag and, if the store redacts, without secrets."""
    if MESSAGE_TAG in message:
        message = {key: value for key, value in message.items() if key != MESSAGE_TAG}
    return message if redact is None else redact(message)


@dataclass(slots=True)
class PackedMessages:
    """Messages that follow one another, as they are stored."""

    start: bytes
    """The id of the node before them."""
    trace: Trace
    outlines: list[Message]
    """Each message with its role alone; one that identifies nothing is whole."""
    contents: list[tuple[bytes, bytes, int]]
    """The fields of each message's `Blob`."""

    def blobs(self) -> dict[int, Blob]:
        """Return the contents by the ids of the outlines, as a request to record them wants it."""
        return dict(zip(map(id, self.outlines), starmap(Blob, self.contents), strict=True))

    def unpack(self, first: int = 0) -> list[Message]:
        """Return the messages themselves, without so many at the beginning."""
        return [value_of(data, codec) for _, data, codec in self.contents[first:]]

    def trace_after(self, chain: HashChain, start: bytes, first: int = 0) -> Trace:
        """Return the chain over the messages if they follow a node, without system messages at their beginning."""
        ids = self.trace.ids if start == self.start else chain.rechain(self.outlines, self.trace, start)
        return Trace(ids, self.trace.blocks, self.trace.ends[first:])


def pack_messages(
    chain: HashChain, start: bytes, messages: Iterable[Message], redact: Callable[[Message], Message] | None = None
) -> PackedMessages:
    """Pack messages that follow a node.

    Raises:
        MessageError: one of them is no message.
    """
    said = [cleaned_message(message, redact) for message in checked_messages(messages)]
    trace = chain.trace(said, Node(start, 0))
    outlines: list[Message] = []
    before = 0
    for message, end in zip(said, trace.ends, strict=True):
        outlines.append(message if end == before else {"role": message["role"]})
        before = end
    blobs = [blob(chain.tenant, encoded(message)) for message in said]
    contents = [(one.digest, one.bytes, one.codec) for one in blobs]  # plain tuples go to another process sooner
    return PackedMessages(start, trace, outlines, contents)
