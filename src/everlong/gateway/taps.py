"""Reading an answer while it passes: a stream's events added up to the reply that they make.

Sees copies of the bytes and changes none. What cannot be read is no reply; the client gets it all the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everlong.gateway.raw import Broken, meant

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.providers.base import Reply

__all__ = ["StreamTap", "plain", "reply_of"]


def reply_of(dialect: Dialect, data: bytes, encoding: str = "") -> Reply | None:
    """The reply that a whole answer holds; None where it holds none."""
    try:
        answer = meant(plain(data, encoding))
    except (Broken, zlib.error):
        return None
    try:
        return dialect.reply(answer) if isinstance(answer, dict) else None
    except (KeyError, TypeError, ValueError, AttributeError):  # whatever a server makes up
        return None


def plain(data: bytes, encoding: str) -> bytes:
    """An answer without its compression."""
    kind = encoding.strip().lower()
    if kind in {"gzip", "deflate", "x-gzip"}:
        return zlib.decompress(data, 47 if "gzip" in kind else zlib.MAX_WBITS)
    return data


class StreamTap:
    """Listens to one stream."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._chunks: list[bytes] = []
        self._last = b""

    def __call__(self, chunk: bytes) -> bool:
        """Take a chunk; whether the stream's last event has come with it."""
        self._chunks.append(chunk)
        seam = self._last + chunk
        self._last = chunk[-32:]
        return self._dialect.last_event in seam

    def reply(self) -> Reply | None:
        """What was said; None where the stream broke off or cannot be read."""
        gathering = self._dialect.gathering()
        try:
            for event in _events(b"".join(self._chunks)):
                for _ in gathering.take(event):
                    pass
            whole = gathering.whole()
            return None if whole is None else self._dialect.reply(whole)
        except (Broken, KeyError, IndexError, TypeError, ValueError, AttributeError):  # whatever a server makes up
            return None


def _events(data: bytes) -> Iterator[dict[str, Any]]:
    for block in data.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].lstrip() for line in block.split(b"\n") if line.startswith(b"data:")]
        text = b"\n".join(lines)
        if text and text != b"[DONE]":
            value = meant(text)
            if isinstance(value, dict):
                yield value
