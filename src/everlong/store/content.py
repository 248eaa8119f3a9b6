"""Contents: messages as JSON bytes, compressed over a size, named by a digest that is keyed by tenant.

Whatever a client sends comes back equal: lone surrogates, huge numbers and NaN take the slower way through the standard
library. This module knows no table; it makes and reads the values of rows.
"""

from __future__ import annotations

import hashlib
import json
import threading
from functools import lru_cache, partial
from typing import Any, NamedTuple

import orjson
import zstandard

from everlong.errors import MessageError, StoreDamaged
from everlong.model.long_texts import read_in_steps, write_in_steps

PLAIN, ZSTD = 0, 1
"""Codecs of stored bytes."""

COMPRESS_OVER = 512
"""Contents of more bytes than this are compressed."""

LEVEL = 1

_LARGE = 200_000
"""The characters of text above which a value counts as large."""

SLOWLY = b" "
"""The mark of bytes that the standard library wrote and must read: only it keeps numbers of more than 64 bits."""

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_local = threading.local()


class Blob(NamedTuple):
    """One content as a row holds it."""

    digest: bytes
    bytes: bytes
    codec: int


def encoded(value: Any) -> bytes:
    """Return a message, or any other JSON value, as bytes that `decoded` turns into an equal one."""
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError):  # surrogates, numbers of more than 64 bits, keys that are no text
        return _encoded_slowly(value)
    # NaN and infinities become null, silently; only where a null stands need that be looked at.
    return _encoded_slowly(value) if b"null" in data and _has_odd_float(value) else data


def encoded_in_steps(value: Any) -> bytes:
    """Return the same bytes as `encoded`; a long text keeps no other thread waiting."""
    try:
        data = write_in_steps(value, partial(orjson.dumps, option=_OPTIONS))
    except (TypeError, ValueError):
        return _encoded_slowly(value)
    return _encoded_slowly(value) if b"null" in data and _has_odd_float(value) else data


def _encoded_slowly(value: Any) -> bytes:
    try:
        return SLOWLY + write_in_steps(value, _dumped)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"cannot be written as JSON: {error}") from error


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")


def _has_odd_float(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float):
            if item - item != 0:
                return True
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return False


def decoded(data: bytes) -> Any:
    """Return the value that was encoded."""
    if data.startswith(SLOWLY):
        return read_in_steps(data, json.loads)
    try:
        return read_in_steps(data, orjson.loads)
    except ValueError:
        return json.loads(data)


@lru_cache(maxsize=1024)
def _keyed(tenant: str) -> Any:
    key = hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return hashlib.blake2b(digest_size=16, key=key, person=b"content")


def digest_of(tenant: str, data: bytes) -> bytes:
    """Return the name of a content: a hash keyed by tenant, so that equal texts of two tenants are unrelated."""
    hasher = _keyed(tenant).copy()
    hasher.update(data)
    digest: bytes = hasher.digest()
    return digest


def blob(tenant: str, data: bytes) -> Blob:
    """Return encoded bytes as they are stored: with their digest, and compressed if they are long."""
    digest = digest_of(tenant, data)
    if len(data) > COMPRESS_OVER:
        packed = _compressor().compress(data)
        if len(packed) < len(data):
            return Blob(digest, packed, ZSTD)
    return Blob(digest, data, PLAIN)


def is_large(value: Any) -> bool:
    """Return whether packing a value takes so long that it is better done before a transaction than in it."""
    waiting, size = [value], 0
    while waiting and size <= _LARGE:
        item = waiting.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return size > _LARGE


def unpacked(data: bytes | None, codec: int) -> bytes:
    """Return the encoded bytes of a row."""
    if data is None:
        raise StoreDamaged("a content has lost its bytes; run `everlong sessions verify`")
    if codec == PLAIN:
        return bytes(data)
    if codec != ZSTD:
        raise StoreDamaged(f"a content is packed in an unknown way ({codec}); it was written by a newer version")
    try:
        return _decompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise StoreDamaged(f"a content cannot be unpacked: {error}; run `everlong sessions verify`") from error


def value_of(data: bytes | None, codec: int) -> Any:
    """Return the message, or other value, of a row."""
    try:
        return decoded(unpacked(data, codec))
    except ValueError as error:
        raise StoreDamaged(f"a content cannot be read: {error}; run `everlong sessions verify`") from error


def _compressor() -> zstandard.ZstdCompressor:
    found: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if found is None:
        found = _local.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)
    return found


def _decompressor() -> zstandard.ZstdDecompressor:
    found: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = _local.decompressor = zstandard.ZstdDecompressor()
    return found
