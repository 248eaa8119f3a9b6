"""The bounds of bodies under way, of requests and of answers: the memory that they may take, and how they are unpacked.

A body is held in memory from its first byte to the end of its request, so all bodies together may take only so much. A
tenant may take three quarters of what the others leave, and a little more for small requests, so that nobody keeps
others out. A request that finds no room is refused with 503; an answer is passed on all the same, and no longer read.

Packed bodies and answers are unpacked in small steps, because a few bytes can stand for very many.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import zstandard

from everlong.gateway.auth import Refused

if TYPE_CHECKING:
    from aiohttp import web

__all__ = [
    "BodyMemory",
    "HeldMemory",
    "TooLarge",
    "Unpacking",
    "Unreadable",
    "encoding_of",
    "is_compressed",
    "is_light",
    "plain",
    "read_apart",
    "readable_of",
    "receive",
    "unpack",
]

_STEP = 1 << 18
"""Bytes that are unpacked at once; for zstd about sixteen times as many."""
_ZSTD_STEP = 128
"""Packed bytes that are read at once: four of them can stand for 128 KB."""
_ZSTD_WINDOW = 1 << 23
"""Bytes of the largest window that zstd may have in HTTP."""
_READABLE = frozenset({"gzip", "x-gzip", "deflate", "zstd", "identity"})
_ERRORS = (zlib.error, zstandard.ZstdError)
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
        self.window = _ZSTD_WINDOW if kind == "zstd" else 0
        """Bytes of the answer that it keeps in memory."""
        self._state: Any = None
        self._steps: Callable[[bytes], Iterator[bytes]] = _whole
        if kind == "zstd":
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
        if not state.eof or state.unused_data:
            raise Unreadable(_FOLLOWED if state.eof else "the body breaks off")

    def _zlib(self, data: bytes) -> Iterator[bytes]:
        while not self._state.eof:
            found = self._state.decompress(data, _STEP)
            yield found
            data = self._state.unconsumed_tail
            if not data and len(found) < _STEP:
                return
        if data:
            raise Unreadable(_FOLLOWED)

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


T = TypeVar("T")

LEAST_MEMORY = 80_000_000
"""Bytes that all bodies may take; a body costs five to eight times its bytes until it is stored."""
BODY_SECONDS = 120.0
"""Seconds that a client may take to send a request: 32 MB over a line of 2.5 Mbit a second."""
_SMALL_BYTES = 1_000_000
"""Bytes of a small request, with what is kept of its answer."""
_RETRY_SECONDS = 2
_LIGHT_BYTES, _LIGHT_LINES = 64_000, 400
"""Bytes and lines of an answer that are read in the event loop."""
_reader = ThreadPoolExecutor(1, thread_name_prefix="everlong-answers")
"""Reads answers; a second thread would only take the interpreter from the event loop."""


class BodyMemory:
    """The memory of all bodies under way; there is room for one of the ``largest``, if there is no other."""

    def __init__(self, largest: int = 0) -> None:
        self.largest = largest
        self.most = max(LEAST_MEMORY, 2 * largest)
        self.held: Counter[str] = Counter()
        """Bytes by tenant."""
        self.total = 0
        self.lock = threading.Lock()

    def room(self, tenant: str, size: int) -> int:
        """Return the bytes that a tenant may still take for a request of so many bytes."""
        own = self.held[tenant]
        return (self.most - (self.total - own)) * (7 if size <= _SMALL_BYTES else 6) // 8 - own


class HeldMemory:
    """The memory of one request: its body, what that unpacks to, and what is kept of its answer."""

    def __init__(self, memory: BodyMemory | None = None, tenant: str = "") -> None:
        self._memory = memory or BodyMemory()
        self.tenant = tenant
        """The tenant for whom it is taken."""
        self._size = 0
        self.most = self._memory.largest
        """Bytes of the largest body, also when it is unpacked."""

    def take(self, size: int) -> bool:
        """Take more bytes; False if there is no room."""
        memory = self._memory
        with memory.lock:
            if size > memory.room(self.tenant, self._size + size):
                return False
            memory.held[self.tenant] += size
            memory.total += size
            self._size += size
            return True

    def need(self, size: int) -> None:
        """Take more bytes.

        Raises:
            Refused: there is no room, with the status 503.
        """
        if not self.take(size):
            raise _no_room()

    def check_room(self, size: int) -> None:
        """Refuse a request for which there would be no room, before it has come."""
        if size > self._memory.room(self.tenant, size):
            raise _no_room()

    def release(self) -> None:
        """Give everything back; what is taken afterwards counts again."""
        memory = self._memory
        with memory.lock:
            memory.total -= self._size
            memory.held[self.tenant] -= self._size
            self._size = 0
            if not memory.held[self.tenant]:
                del memory.held[self.tenant]


async def receive(request: web.Request, held: HeldMemory) -> bytes:
    """Return the body of a request as it comes; it stays with the request.

    Raises:
        Refused: it is too large (413), there is no room for it (503), or it takes too long (408).
    """
    if (length := request.content_length or 0) > held.most:
        raise _too_large(held.most)
    held.check_room(length)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(None if request.content.is_eof() else BODY_SECONDS):
            while part := await request.content.readany():
                size += len(part)
                if size > held.most:
                    raise _too_large(held.most)
                held.need(len(part))
                parts.append(part)
    except TimeoutError as error:
        said = f"the request took longer than {BODY_SECONDS:g} seconds to come"
        raise Refused(408, said, close=True) from error
    body = b"".join(parts) if size <= _SMALL_BYTES else await asyncio.to_thread(b"".join, parts)
    request._read_bytes = body  # noqa: SLF001 - where `request.read` looks for it
    return body


async def unpack(body: bytes, encoding: str, held: HeldMemory) -> bytes:
    """Return a body without its encoding.

    Raises:
        Unreadable: the encoding is not known, or the bytes are not in it.
        Refused: it is too large (413), or there is no room for it (503).
    """
    if not is_compressed(body, encoding):
        return body
    try:
        return await asyncio.to_thread(plain, body, encoding, held.most, held.need)
    except TooLarge as error:
        raise _too_large(held.most, "; it is packed") from error


def _too_large(most: int, why: str = "") -> Refused:
    return Refused(413, f"the request is larger than {most:,} bytes, which is the most here{why}", close=True)


def _no_room() -> Refused:
    said = "requests under way take all the memory that the gateway has for them; try again in a moment"
    return Refused(503, said, _RETRY_SECONDS, close=True)


def is_light(data: bytes, most: int = _LIGHT_BYTES) -> bool:
    """Return whether a piece of an answer is read in a moment."""
    return len(data) <= most and data.count(b"\n") + data.count(b"\r") <= _LIGHT_LINES


async def read_apart(work: Callable[..., T], *given: Any) -> T:
    """Read a piece of an answer in another thread."""
    return await asyncio.get_running_loop().run_in_executor(_reader, work, *given)
