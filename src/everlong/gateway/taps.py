"""Reading an answer while it passes: a stream's events added up to the reply that they make.

Sees copies of the bytes and changes none. What cannot be read is no reply; the client gets it all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from everlong.gateway.encodings import Unreadable, decoder, plain
from everlong.gateway.raw import Broken, meant
from everlong.gateway.relay import is_whole

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.model import Message
    from everlong.providers.base import Reply
    from everlong.providers.client import Gathering

__all__ = ["StreamTap", "Tapped", "WholeTap", "events_in", "reply_of", "tap_for"]

_MADE_UP = (Broken, Unreadable, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""What reading whatever a server makes up may come to."""
_SEAM = 64
"""The beginning of a last event is no longer than this."""
_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Tapped(Protocol):
    """What has to be known of an API in order to read its answers."""

    @property
    def last_event(self) -> re.Pattern[bytes]:
        """How the last event of a stream begins."""

    def gathering(self) -> Gathering:
        """Adds up the events of a stream."""

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """What a whole answer says."""


def reply_of(dialect: Tapped, data: bytes, encoding: str = "") -> Reply | None:
    """The reply that a whole answer holds; None where it holds none."""
    try:
        answer = meant(plain(data, encoding))
        return dialect.reply(answer) if isinstance(answer, dict) else None
    except _MADE_UP:
        return None


class WholeTap:
    """Listens to an answer in one piece that comes bit by bit."""

    otherwise = "the answer holds no reply"
    """What is wrong where there is none."""

    def __init__(self, dialect: Tapped, encoding: str = "") -> None:
        self._dialect = dialect
        self._encoding = encoding
        self._chunks: list[bytes] = []

    def __call__(self, chunk: bytes) -> bool:
        """Take a chunk; where the answer ends is not seen from it."""
        self._chunks.append(chunk)
        return False

    def reply(self) -> Reply | None:
        """What was said; None where the answer broke off or cannot be read."""
        return reply_of(self._dialect, b"".join(self._chunks), self._encoding)

    def partial(self) -> Message | None:
        """Return nothing: an answer in one piece is of no use before it has come to its end."""
        return None


class StreamTap:
    """Listens to one stream."""

    otherwise = "the stream broke off"
    """What is wrong where there is no reply."""

    def __init__(self, dialect: Tapped, encoding: str = "") -> None:
        self._dialect = dialect
        self._chunks: list[bytes] = []
        self._seam = b"\n"
        self._ending: bytes | None = None
        """What has come from the beginning of the last event on."""
        self._is_readable = True
        try:
            self._decode = decoder(encoding)
        except Unreadable:
            self._is_readable = False

    def __call__(self, chunk: bytes) -> bool:
        """Take a chunk; whether the stream's last event has come to its end with it."""
        if not self._is_readable:
            return False
        try:
            said = self._decode(chunk)
        except Unreadable:
            self._is_readable = False
            return False
        self._chunks.append(said)
        if self._ending is not None:
            self._ending += said
        else:
            seam = self._seam + said
            self._seam = seam[-_SEAM:]
            found = self._dialect.last_event.search(seam)
            if found is None:
                return False
            self._ending = seam[found.end() :]
        return _BLANK.search(self._ending) is not None

    def reply(self) -> Reply | None:
        """What was said; None where the stream broke off or cannot be read."""
        return self._read(lambda gathering: gathering.whole())

    def partial(self) -> Message | None:
        """Return what came of an answer that broke off; None where nothing did that can be read."""
        found = self._read(lambda gathering: gathering.so_far())
        return None if found is None else found.message

    def _read(self, take: Callable[[Gathering], dict[str, Any] | None]) -> Reply | None:
        if not self._is_readable:
            return None
        gathering = self._dialect.gathering()
        try:
            for event in events_in(b"".join(self._chunks)):
                for _ in gathering.take(event):
                    pass
        except _MADE_UP:
            return None
        try:
            answer = take(gathering)
            return None if answer is None else self._dialect.reply(answer)
        except _MADE_UP:
            return None


def tap_for(dialect: Tapped, upstream: ClientResponse) -> StreamTap | WholeTap:
    """What listens to an answer while it comes."""
    encoding = upstream.headers.get("Content-Encoding", "")
    return WholeTap(dialect, encoding) if is_whole(upstream) else StreamTap(dialect, encoding)


def events_in(data: bytes) -> Iterator[dict[str, Any]]:
    """Return the events of a stream, as far as they are JSON objects; `Broken` where one is no JSON."""
    lines: list[bytes] = []
    for line in [*_LINE_END.split(data.removeprefix(b"\xef\xbb\xbf")), b""]:
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            text = b"\n".join(lines)
            lines = []
            if text.strip() not in {b"", b"[DONE]"}:
                value = meant(text)
                if isinstance(value, dict):
                    yield value
