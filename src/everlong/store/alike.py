"""Contents that hold one of some blocks: the same words in another shape, split, merged or marked, wherever they stand.

The search index names the messages that may hold a block, and those are looked at; so are the few contents that are in
no index. Where a block has no words to look up (a picture), all contents are looked at. Either way the answer is exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, exists, select, union

from everlong.model import Message, blocks_of, part_text, parts_of
from everlong.store.content import value_of
from everlong.store.schema import annex, content, node, pending, turn, view, view_item

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

MOST_LOOKUPS = 200
"""Texts that are looked up one by one; with more of them one pass over everything is quicker."""

_WORDS = 4
"""Words of a block that are looked up, the longest ones."""

_AT_ONCE = 500
_WORD = re.compile("[A-Za-z0-9]{3,}")


def contents_with(core: StoreCore, connection: Connection, messages: Sequence[Message]) -> set[bytes]:
    """The names of all contents that hold a block of one of the messages."""
    trace = core.chain.trace
    blocks = {block for message in messages for block in trace([message]).blocks}
    found: set[bytes] = set()
    for row in _rows(core, connection, messages) if blocks else ():
        value = value_of(row.bytes, row.codec)
        if isinstance(value, dict) and "role" in value and not blocks.isdisjoint(trace([value]).blocks):
            found.add(bytes(row.digest))
    return found


def _rows(core: StoreCore, connection: Connection, messages: Sequence[Message]) -> Iterator[Any]:
    from everlong.store.search.words import INDEX_VERSION  # noqa: PLC0415 - loaded only where it is used

    live = select(content.c.digest, content.c.bytes, content.c.codec).where(
        content.c.tenant == core.tenant, content.c.state == "live"
    )
    wanted = [needles for message in messages for needles in needles_of(message)]
    has_index = core.searcher.index.version(connection) == INDEX_VERSION
    if not has_index or not all(wanted) or len(wanted) > MOST_LOOKUPS:
        yield from connection.execute(live)
        return
    digests = _in_no_index(core, connection)  # first: what is indexed meanwhile is found below
    seqs = {seq for needles in dict.fromkeys(wanted) for seq in _containing(core, connection, needles)}
    for part in _parts(sorted(seq for seq in seqs if seq > 0)):
        said = select(node.c.digest).where(node.c.seq.in_(part))
        digests.update(bytes(digest) for digest in connection.execute(said).scalars())
    for part in _parts(sorted(digests)):
        yield from connection.execute(live.where(content.c.digest.in_(part)))


def _containing(core: StoreCore, connection: Connection, needles: tuple[str, ...]) -> Iterator[int]:
    """Numbers of the messages that may contain all of some texts."""
    from everlong.store.search.index import Scope, Wanted  # noqa: PLC0415 - as above

    scope = Scope(core.tenant, is_messages_only=True)
    after = None
    while True:
        places = core.searcher.index.containing(connection, Wanted(needles), scope, after, _AT_ONCE, by_time=False)
        yield from (place.seq for place in places)
        if len(places) < _AT_ONCE:
            return
        after = places[-1]


def _in_no_index(core: StoreCore, connection: Connection) -> set[bytes]:
    """The contents of messages that wait for the index, and of all that never gets there."""
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
    """For each block of a message words that every text has that holds the same block; none where it has no words."""
    return [_needles(block.identity, piece) for piece in _pieces(message) for block in blocks_of(piece)]


def _pieces(message: Message) -> list[Message]:
    """A message for each part and each call."""
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
    # Whole runs of plain letters and digits stand in the index however the text around them is folded or escaped.
    words = sorted(set(_WORD.findall(text)), key=lambda word: (-len(word), word))
    if words or kind == b"call":
        return tuple(word.lower() for word in words[:_WORDS])
    from everlong.store.search.query import normal  # noqa: PLC0415 - loaded only where it is used

    return tuple(sorted(normal(text).split(), key=len)[-1:])


def _texts(parts: Sequence[Message]) -> Iterator[str]:
    for part in parts:
        yield part_text(part)
        if part.get("type") == "tool_result":
            yield from _texts(parts_of(part))


def _call_text(identity: bytes) -> str:
    """The name of a call and the texts in its arguments, without what is no part of its identity."""
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


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]
