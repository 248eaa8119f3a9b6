"""Content encodings: bodies and answers unpacked in small steps, because a few bytes can stand for very many."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import brotli
import zstandard

__all__ = ["TooLarge", "Unpacking", "Unreadable", "encoding_of", "is_compressed", "plain", "readable_of"]

_STEP = 1 << 18
"""Bytes that are unpacked at once; for zstd about sixteen times as many."""
_ZSTD_STEP = 128
"""Packed bytes that are read at once: four of them can stand for 128 KB."""
_WINDOWS = {"br": 1 << 24, "zstd": 1 << 23}
"""Bytes of the largest windows that the encodings allow in HTTP."""
_READABLE = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "identity"})
_ERRORS = (zlib.error, zstandard.ZstdError, brotli.error)
_FOLLOWED = "something follows the end of the body"
_MAGIC = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}


class Unreadable(ValueError):  # noqa: N818 - what a body is that cannot be read
    """Bytes in an unknown encoding, or not in the encoding that was named."""


class TooLarge(Unreadable):
    """Bytes that unpack to more than is allowed."""


def encoding_of(headers: Mapping[str, str]) -> str:
    """Return the encoding that a message says its body is in; several headers say one after the other."""
    every = getattr(headers, "getall", None)
    return ", ".join(every("Content-Encoding", [])) if every is not None else headers.get("Content-Encoding", "")


def readable_of(accepted: str) -> str:
    """Return the encodings that a client accepts, without those that the gateway cannot read."""
    offers = [offer.strip() for offer in accepted.split(",")]
    kept = [offer for offer in offers if offer.partition(";")[0].strip().lower() in _READABLE]
    if len(kept) == len(offers):
        return accepted
    return ", ".join(kept) or "identity"


def is_compressed(data: bytes, encoding: str) -> bool:
    """Return whether a body is in the encoding that its headers name; some servers unpack it and leave the header."""
    kind = encoding.strip().lower()
    magic = _MAGIC.get(kind)
    return kind not in {"", "identity"} and (magic is None or data.startswith(magic))


class Unpacking:
    """The unpacking of one body, piece by piece; `Unreadable` if its encoding is not known."""

    def __init__(self, encoding: str) -> None:
        kind = encoding.strip().lower() or "identity"
        if kind not in _READABLE:
            raise Unreadable(f"the encoding {kind[:40]!r} is not known")
        self.window = _WINDOWS.get(kind, 0)
        """Bytes of the answer that it keeps in memory."""
        self._state: Any = None
        self._steps: Callable[[bytes], Iterator[bytes]] = _whole
        if kind == "br":
            self._state, self._steps = brotli.Decompressor(), self._brotli
        elif kind == "zstd":
            unpacker = zstandard.ZstdDecompressor(max_window_size=self.window)
            self._state, self._steps = unpacker.decompressobj(), self._zstd
        elif kind != "identity":
            bits = zlib.MAX_WBITS if kind == "deflate" else zlib.MAX_WBITS | 16
            self._state, self._steps = zlib.decompressobj(bits), self._zlib

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yield what more bytes unpack to, in small pieces; `Unreadable` if they are broken."""
        try:
            yield from self._steps(data)
        except _ERRORS as error:
            raise Unreadable(str(error)) from error

    def check_end(self) -> None:
        """Raise `Unreadable` if the body breaks off, or if something follows it that another reader might read."""
        state = self._state
        if state is None:
            return
        is_over = state.is_finished() if self._steps == self._brotli else state.eof and not state.unused_data
        if not is_over:
            raise Unreadable(_FOLLOWED if self._steps != self._brotli and state.eof else "the body breaks off")

    def _zlib(self, data: bytes) -> Iterator[bytes]:
        while not self._state.eof:
            found = self._state.decompress(data, _STEP)
            yield found
            data = self._state.unconsumed_tail
            if not data and len(found) < _STEP:
                return
        if data:
            raise Unreadable(_FOLLOWED)

    def _brotli(self, data: bytes) -> Iterator[bytes]:
        if data and self._state.is_finished():
            raise Unreadable(_FOLLOWED)
        while found := self._state.process(data, output_buffer_limit=_STEP):
            yield found
            data = b""

    def _zstd(self, data: bytes) -> Iterator[bytes]:
        for place in range(0, len(data), _ZSTD_STEP):
            if self._state.eof:
                raise Unreadable(_FOLLOWED)
            yield self._state.decompress(data[place : place + _ZSTD_STEP])


def _whole(data: bytes) -> Iterator[bytes]:
    yield data


def plain(data: bytes, encoding: str, most: int, take: Callable[[int], None] | None = None) -> bytes:
    """Return a whole body without its encoding; ``take`` is called with the size of each piece, and may raise an error.

    Raises:
        Unreadable: the encoding is not known, or the bytes are not in it.
        TooLarge: it unpacks to more than ``most`` bytes.
    """
    if encoding.strip().lower() in {"", "identity"}:
        return data
    unpacking = Unpacking(encoding)
    parts: list[bytes] = []
    size = 0
    for part in unpacking.take(data):
        size += len(part)
        if size > most:
            raise TooLarge(f"the body is larger than {most:,} bytes")
        if take is not None:
            take(len(part))
        parts.append(part)
    unpacking.check_end()
    return b"".join(parts)
