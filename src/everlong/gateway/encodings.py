"""Compressed bodies: reading them beside what passes, and which encodings an upstream may use so that they can be read.

What is passed on stays as it came. Knows gzip, deflate, Brotli and zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli
import zstandard

__all__ = ["MAX_PLAIN_BYTES", "TooLarge", "Unreadable", "decoder", "is_compressed", "plain", "readable_of"]

MAX_PLAIN_BYTES = 256_000_000
"""What a compressed body may come to; a few bytes can be made to stand for very many."""

_READABLE = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "identity"})
_ERRORS = (zlib.error, zstandard.ZstdError, brotli.error)
_MAGIC = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}


class Unreadable(ValueError):  # noqa: N818 - what a body is that cannot be read
    """Bytes in an encoding that is not known here, or that are not what it says."""


class TooLarge(Unreadable):
    """Bytes that come to more than is allowed once they are unpacked."""


def readable_of(accepted: str) -> str:
    """What a client accepts, without the encodings that nobody here can read."""
    offers = [offer.strip() for offer in accepted.split(",")]
    kept = [offer for offer in offers if offer.partition(";")[0].strip().lower() in _READABLE]
    if len(kept) == len(offers):
        return accepted
    return ", ".join(kept) or "identity"


def is_compressed(data: bytes, encoding: str) -> bool:
    """Whether a body still is in the encoding that its headers name; some servers unpack it and leave the header."""
    kind = encoding.strip().lower()
    magic = _MAGIC.get(kind)
    return kind not in {"", "identity"} and (magic is None or data.startswith(magic))


def plain(data: bytes, encoding: str, most: int = MAX_PLAIN_BYTES) -> bytes:
    """A whole body without its encoding; `Unreadable` where that is not possible or comes to too much."""
    kind = encoding.strip().lower()
    if kind in {"", "identity"}:
        return data
    try:
        if kind == "zstd":
            reader = zstandard.ZstdDecompressor().stream_reader(data)
            found, is_over = reader.read(most), not reader.read(1)
        elif kind == "br":
            found, is_over = _unbrotlied(data, most)
        elif kind in _READABLE:
            inflating = zlib.decompressobj(_bits(kind))
            found, is_over = inflating.decompress(data, most), not inflating.unconsumed_tail
        else:
            raise Unreadable(f"the encoding {kind[:40]!r} is not known")
    except _ERRORS as error:
        raise Unreadable(str(error)) from error
    if not is_over:
        raise TooLarge(f"the body is larger than {most:,} bytes")
    return found


def decoder(encoding: str) -> Callable[[bytes], bytes]:
    """Reads a stream in an encoding, piece by piece; `Unreadable` where a piece cannot be read."""
    kind = encoding.strip().lower()
    if kind in {"", "identity"}:
        return lambda data: data
    if kind not in _READABLE:
        raise Unreadable(f"the encoding {kind[:40]!r} is not known")
    decompress = _decompressing(kind)

    def decode(data: bytes) -> bytes:
        try:
            return decompress(data)
        except _ERRORS as error:
            raise Unreadable(str(error)) from error

    return decode


def _decompressing(kind: str) -> Callable[[bytes], bytes]:
    if kind == "br":
        unbrotli: Callable[[bytes], bytes] = brotli.Decompressor().process
        return unbrotli
    return (
        zstandard.ZstdDecompressor().decompressobj() if kind == "zstd" else zlib.decompressobj(_bits(kind))
    ).decompress


def _unbrotlied(data: bytes, most: int) -> tuple[bytes, bool]:
    """What some bytes in Brotli stand for, up to about so many; and whether that is all."""
    decompressor = brotli.Decompressor()
    found = decompressor.process(data, output_buffer_limit=most + 1)
    while not decompressor.is_finished() and len(found) <= most:
        more = decompressor.process(b"", output_buffer_limit=most + 1 - len(found))
        if not more:
            raise Unreadable("the body breaks off")
        found += more
    return found, len(found) <= most


def _bits(kind: str) -> int:
    return zlib.MAX_WBITS if kind == "deflate" else zlib.MAX_WBITS | 16
