"""The sizes of stored messages, without reading one: for pictures of a context of any length. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import zstandard
from sqlalchemy import Connection

from everlong.store.content import PLAIN, ZSTD
from everlong.store.paths import Segment

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


MOST_BLOCKS = 2_000
"""The blocks of a stretch whose messages are all looked at."""
_BYTES_PER_TOKEN = 4
"""Bytes of a stored message for each token, where nobody counted its tokens."""
_HEADER_BYTES = 18
"""The longest beginning of a packed content that tells the size of the whole."""


class StretchSize(NamedTuple):
    """The size of a stretch of messages; tokens are estimated where they were not counted."""

    messages: int
    tokens: int


def size_along(core: StoreCore, connection: Connection, path: Sequence[Segment], low: int, high: int) -> StretchSize:
    """Return the size of the messages at depths in ``(low, high]`` of a path.

    Of a stretch longer than `MOST_BLOCKS`, the newest messages stand for all.
    """
    if high - low <= MOST_BLOCKS:
        return _size(core, connection, path, low, high)
    newest = _size(core, connection, path, high - MOST_BLOCKS, high)
    counting = core.database.sql("SELECT count(*) FROM node WHERE branch = ? AND depth > ? AND depth <= ?")
    messages = 0
    for part in path:
        place = (part.branch, max(low, part.low), min(high, part.high))
        if place[1] < place[2]:
            messages += int(connection.exec_driver_sql(counting, place).scalar_one())
    return StretchSize(messages, newest.tokens * messages // max(1, newest.messages))


def _size(core: StoreCore, connection: Connection, path: Sequence[Segment], low: int, high: int) -> StretchSize:
    tables = "node n JOIN content c ON c.digest = n.digest WHERE n.branch = ? AND n.depth > ? AND n.depth <= ?"
    sums = core.database.sql(
        "SELECT count(*), coalesce(sum(n.tokens), 0),"  # noqa: S608 - our own names
        f" coalesce(sum(CASE WHEN n.tokens IS NULL AND c.codec = {PLAIN} THEN length(c.bytes) ELSE 0 END), 0)"
        f" FROM {tables}"
    )
    packed = core.database.sql(
        f"SELECT length(c.bytes), substr(c.bytes, 1, {_HEADER_BYTES}) FROM {tables}"  # noqa: S608 - our own names
        f" AND n.tokens IS NULL AND c.codec = {ZSTD}"
    )
    messages = tokens = size = 0
    for part in path:
        place = (part.branch, max(low, part.low), min(high, part.high))
        if place[1] < place[2]:
            count, counted, plain = connection.exec_driver_sql(sums, place).one()
            messages, tokens, size = messages + int(count), tokens + int(counted), size + int(plain)
            size += sum(_unpacked(length, start) for length, start in connection.exec_driver_sql(packed, place))
    return StretchSize(messages, tokens + size // _BYTES_PER_TOKEN)


def _unpacked(length: int | None, start: bytes | None) -> int:
    """Return the size that a packed content says it has."""
    with suppress(zstandard.ZstdError):  # of a damaged content the stored length is the best guess
        return max(length or 0, zstandard.frame_content_size(bytes(start or b"")))
    return length or 0
