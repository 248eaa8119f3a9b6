"""The sizes of stored messages, without reading one: for pictures of a context of any length. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import zstandard
from sqlalchemy import Connection

from everlong.store.content import ZSTD
from everlong.store.paths import Segment

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

__all__ = ["MessageSize", "sizes_along"]

_BYTES_PER_TOKEN = 4
"""Bytes of a stored message for each token, where nobody counted its tokens."""
_HEADER_BYTES = 18
"""The longest beginning of a packed content that tells the size of the whole."""


class MessageSize(NamedTuple):
    """A message as its depth, its role and its tokens, estimated where they were not counted."""

    depth: int
    role: str
    tokens: int


def sizes_along(
    core: StoreCore, connection: Connection, path: Sequence[Segment], low: int, high: int
) -> list[MessageSize]:
    """Return the sizes of the messages at depths in ``(low, high]`` of a path, in order."""
    statement = core.database.sql(
        "SELECT n.depth, n.role, n.tokens, c.codec, coalesce(length(c.bytes), 0), substr(c.bytes, 1, ?)"
        " FROM node n JOIN content c ON c.digest = n.digest"
        " WHERE n.branch = ? AND n.depth > ? AND n.depth <= ? ORDER BY n.depth"
    )
    found: list[MessageSize] = []
    for part in path:
        bottom, top = max(low, part.low), min(high, part.high)
        if bottom < top:
            rows = connection.exec_driver_sql(statement, (_HEADER_BYTES, part.branch, bottom, top)).all()
            found += [
                MessageSize(depth, role, _estimate(codec, length, start) if tokens is None else tokens)
                for depth, role, tokens, codec, length, start in rows
            ]
    return found


def _estimate(codec: int, length: int, start: bytes | None) -> int:
    if codec == ZSTD and start is not None:
        with suppress(zstandard.ZstdError):  # of a damaged content the stored length is the best guess
            length = max(length, zstandard.frame_content_size(bytes(start)))
    return max(1, length // _BYTES_PER_TOKEN)
