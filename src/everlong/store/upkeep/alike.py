"""Contents that are alike: the same words in another shape, split, merged or marked.

The search index names the contents that may hold a block of a message; only these are read and compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, exists, select, union

from everlong.model import Message, blocks_of, part_text, parts_of
from everlong.store.content import value_of
from everlong.store.database import in_batches
from everlong.store.schema import annex, content, node, pending, turn, view, view_item
from everlong.store.search.upkeep import index_for

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

MOST_LOOKUPS = 200
"""The most texts that are looked up one by one; for more, one pass over everything is quicker."""

_PLACES_AT_ONCE = 20_000
"""Places that are asked for at once: the index looks through all of them again for each page."""

_MOST_WORDS = 4
"""The most words of a block that are looked up, the longest ones."""


def contents_with(core: StoreCore, connection: Connection, messages: Sequence[Message]) -> set[bytes]:
    """Return the digests of all contents that hold a block of one of the messages."""
    return contents_among(core, rows_to_compare(core, connection, messages), messages)


def contents_among(core: StoreCore, rows: Iterable[Any], messages: Sequence[Message]) -> set[bytes]:
    """Return the digests of those contents that hold a block of one of the messages."""
    trace = core.chain.trace
    blocks = {block for message in messages for block in trace([message]).blocks}
    found: set[bytes] = set()
    for row in rows if blocks else ():
        value = value_of(row.bytes, row.codec)
        if isinstance(value, dict) and "role" in value and not blocks.isdisjoint(trace([value]).blocks):
            found.add(bytes(row.digest))
    return found


def rows_to_compare(core: StoreCore, connection: Connection, messages: Sequence[Message]) -> Iterator[Any]:
    """Yield the contents that may hold a block of one of the messages, as far as the search index can tell."""
    from everlong.store.search.text import INDEX_VERSION  # noqa: PLC0415 - loaded only where it is used

    live = select(content.c.digest, content.c.bytes, content.c.codec).where(
        content.c.tenant == core.tenant, content.c.state == "live"
    )
    wanted = [needles for message in messages for needles in needles_of(message)]
    has_index = index_for(core.database).version(connection) == INDEX_VERSION
    if not has_index or not all(wanted) or len(wanted) > MOST_LOOKUPS:
        yield from connection.execute(live)
        return
    digests = _unindexed_contents(core, connection)  # first: what is indexed meanwhile is found below
    seqs = {seq for needles in dict.fromkeys(wanted) for seq in _containing(core, connection, needles)}
    for part in in_batches(sorted(seq for seq in seqs if seq > 0)):
        said = select(node.c.digest).where(node.c.seq.in_(part))
        digests.update(bytes(digest) for digest in connection.execute(said).scalars())
    for some in in_batches(sorted(digests)):
        yield from connection.execute(live.where(content.c.digest.in_(some)))


def _containing(core: StoreCore, connection: Connection, needles: tuple[str, ...]) -> Iterator[int]:
    """Yield the numbers of the messages that may contain all of some texts."""
    from everlong.store.search.index import SearchScope  # noqa: PLC0415 - as above

    index, scope = index_for(core.database), SearchScope(core.tenant, is_messages_only=True)
    after = None
    while True:
        places = index.offer(connection, [(one,) for one in needles], scope, after, _PLACES_AT_ONCE, by_time=False)
        yield from (place.seq for place in places)
        if len(places) < _PLACES_AT_ONCE:
            return
        after = places[-1]


def _unindexed_contents(core: StoreCore, connection: Connection) -> set[bytes]:
    """Return the contents of messages that wait for the index, and of everything that is never indexed."""
    said = exists().where(node.c.digest == turn.c.reply)
    beside = [
        select(node.c.digest).join(pending, pending.c.seq == node.c.seq).where(node.c.tenant == core.tenant),
        select(annex.c.digest).where(annex.c.tenant == core.tenant),
        select(view_item.c.digest)
        .join(view, view.c.id == view_item.c.view)
        .where(view.c.tenant == core.tenant, view_item.c.digest.is_not(None)),
        select(turn.c.reply).where(turn.c.tenant == core.tenant, turn.c.reply.is_not(None), ~said),
    ]
    return {bytes(digest) for digest in connection.execute(union(*beside)).scalars()}


def needles_of(message: Message) -> list[tuple[str, ...]]:
    """Return for each block of a message terms that every text with the same block has, if it has any."""
    return [_needles(block.identity, piece) for piece in _pieces(message) for block in blocks_of(piece)]


def _pieces(message: Message) -> list[Message]:
    """Return each part and each call as a message of its own."""
    if message.get("role") == "tool":
        return [message]
    calls = message.get("tool_calls")
    return [
        *({"role": message.get("role"), "content": [part]} for part in parts_of(message)),
        *({"role": "assistant", "tool_calls": [call]} for call in (calls if isinstance(calls, list) else [])),
    ]


def _needles(identity: bytes, piece: Message) -> tuple[str, ...]:
    kind = identity.partition(b":")[0]
    if kind == b"call":
        text = _call_text(identity)
    elif kind in {b"text", b"result"}:
        text = "\n".join(_texts(parts_of(piece)))
    else:
        return ()
    from everlong.store.search.query import normal  # noqa: PLC0415 - loaded only where it is used
    from everlong.store.search.text import required_terms  # noqa: PLC0415 - as above

    return tuple(sorted(required_terms(normal(text), is_whole=True), key=len)[-_MOST_WORDS:])


def _texts(parts: Sequence[Message]) -> Iterator[str]:
    for part in parts:
        yield part_text(part)
        if part.get("type") == "tool_result":
            yield from _texts(parts_of(part))


def _call_text(identity: bytes) -> str:
    """Return the name of a call and the texts in its arguments, as far as they are part of its identity."""
    try:
        _, name, waiting = json.loads(identity.partition(b":")[2])
    except (ValueError, RecursionError):  # nested too deep to be read back
        return ""
    leaves, stack = [str(name)], [waiting]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, str):
            leaves.append(value)
    return "\n".join(leaves)
