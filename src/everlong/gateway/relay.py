"""Passing a request on and an answer back: headers, status and bytes as they are, each chunk as it comes.

Knows HTTP and nothing of conversations. A tap may look at the chunks that pass; the last one waits until whoever taps
has stored what it saw. An answer that breaks off breaks off for the client too.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from aiohttp import (
    ClientConnectorCertificateError,
    ClientError,
    ClientHttpProxyError,
    ClientOSError,
    ClientProxyConnectionError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    ServerDisconnectedError,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from everlong.gateway.connections import Pool, begin, was_stale
from everlong.gateway.encodings import readable_of
from everlong.gateway.network import Network

if TYPE_CHECKING:
    from aiohttp import ClientResponse, StreamReader

__all__ = [
    "MAX_HEADER_BYTES",
    "ClientGone",
    "Relay",
    "Stream",
    "Tap",
    "answered",
    "comes_whole",
    "cut_off",
    "failure",
    "forwarded_headers",
    "is_whole",
    "misnamed_header",
    "next_chunk",
    "streamed",
    "target_of",
    "whole_of",
]

_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to one connection."""
_NOT_OF_A_CONNECTION = frozenset(
    {
        *("accept-encoding", "anthropic-beta", "anthropic-version", "api-key", "authorization", "content-encoding"),
        *("content-length", "content-type", "cookie", "expect", "host", "openai-beta", "openai-organization"),
        *("openai-project", "origin", "x-api-key", "x-everlong", "x-everlong-key", "x-everlong-session"),
        "x-goog-api-key",
    }
)
"""Headers by which it is decided what becomes of a request; they are never those of one connection."""
_OURS = frozenset({"host", "content-length", "expect", "x-everlong", "x-everlong-session", "x-everlong-key"})
_LENGTH = frozenset({"content-length"})
_IDLE_SECONDS = 600.0
"""How long an upstream may be silent; clients give up earlier."""
_MOMENT_SECONDS = 0.05
_PIECE_BYTES = 1_000_000
MAX_HEADER_BYTES = 65_536
"""Of one header: lists of beta features grow long."""

Tap = Callable[[bytes], bool]
"""Sees each chunk; says whether the stream ends with it."""


class ClientGone(Exception):  # noqa: N818 - what has happened, not whose fault it is
    """The client has hung up."""


class Relay:
    """Connections to where requests go."""

    def __init__(self, network: Network | None = None, limit: int = 0) -> None:
        self._session: ClientSession | None = None
        self.network = network or Network()
        self._limit = limit

    async def start(self) -> None:
        """Open the pool of connections."""
        self._session = ClientSession(
            connector=Pool(limit=self._limit, keepalive_timeout=60, ssl=self.network.ssl),
            timeout=ClientTimeout(total=None, sock_connect=20, sock_read=_IDLE_SECONDS),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def send(self, method: str, url: str, headers: CIMultiDict[str], body: bytes | None) -> ClientResponse:
        """Send a request; the answer's head is there when this returns.

        Where it met a connection that the upstream was just closing, it is sent once more, on a new one.
        """
        assert self._session is not None  # noqa: S101 - started before anything is sent
        address = URL(url, encoded=True)  # as the client wrote it, whatever could be written otherwise
        proxy = self.network.proxy_for(address)
        for is_second in (False, True):
            # A large body goes out in pieces, so that others get their turn.
            data = io.BytesIO(body) if body is not None and len(body) > _PIECE_BYTES else body
            begin(only_new=is_second)
            try:
                return await self._session.request(
                    method, address, headers=headers, data=data, proxy=proxy, allow_redirects=False
                )
            except (ClientOSError, ServerDisconnectedError) as error:
                if is_second or not was_stale(error):
                    raise
        raise AssertionError("unreachable")


def failure(where: str, error: BaseException) -> str:
    """Why an upstream did not answer, in words; none of its own."""
    if isinstance(error, ServerDisconnectedError):
        return f"the upstream {where} closed the connection before it had answered"
    if isinstance(error, ClientHttpProxyError):
        return f"the proxy on the way to {where} answered with status {error.status}; see HTTPS_PROXY and NO_PROXY"
    if isinstance(error, ClientProxyConnectionError):
        said = error.os_error.strerror or type(error.os_error).__name__
        return f"the proxy on the way to {where} could not be reached: {said}; see HTTPS_PROXY and NO_PROXY"
    if isinstance(error, ClientConnectorCertificateError):
        said = str(getattr(error.certificate_error, "verify_message", "")) or "it could not be verified"
        return f"the certificate of {where} is not trusted: {said}; name your network's own with gateway.ca_bundle"
    if isinstance(error, ClientResponseError):
        return f"the upstream {where} answered with something that is no HTTP"
    return f"the upstream {where} could not be reached: {str(error) or type(error).__name__}"


def forwarded_headers(
    headers: Iterable[tuple[str, str]], *, without: frozenset[str] = _OURS, is_read: bool = True
) -> CIMultiDict[str]:
    """The headers that go on, in their order; those of one connection stay behind.

    Where the answer ``is_read`` here, it must not come in an encoding that cannot be.
    """
    given = list(headers)
    named = {name.strip().lower() for key, value in given if key.lower() == "connection" for name in value.split(",")}
    passed: CIMultiDict[str] = CIMultiDict()
    spelled: dict[str, str] = {}
    for name, value in given:
        lowered = name.lower()
        if lowered in _HOP or lowered in without or lowered in named:
            continue
        sent = readable_of(value) if is_read and lowered == "accept-encoding" else value
        # The HTTP client keeps only the last of several headers that are spelled differently.
        passed.add(spelled.setdefault(lowered, name), _sendable(sent))
    return passed


def misnamed_header(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return a header that a request calls one of its connection though it is not; None where it calls none so.

    Such a header would be seen here and not upstream: whoever was let in by it could have it left out.
    """
    named = (name.strip().lower() for key, value in headers if key.lower() == "connection" for name in value.split(","))
    return next((name for name in named if name in _NOT_OF_A_CONNECTION), None)


def target_of(request: web.Request) -> str:
    """The path and query that a client asked for, as it wrote them; a host that it named with them is left out."""
    url = request.rel_url
    return f"{url.raw_path}?{url.raw_query_string}" if url.raw_query_string else url.raw_path


def is_whole(upstream: ClientResponse) -> bool:
    """Whether an answer is one piece, which is of no use before it has come to its end."""
    kind = upstream.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind != "text/event-stream" and "Content-Length" in upstream.headers)


async def comes_whole(upstream: ClientResponse) -> bool:
    """Whether an answer is one piece, and all of it is there or comes in a moment: most come with their heads."""
    if not is_whole(upstream):
        return False
    if not upstream.content.is_eof():
        try:
            async with asyncio.timeout(_MOMENT_SECONDS):
                await upstream.content.wait_eof()
        except (ClientError, OSError, TimeoutError):
            return False
    return upstream.content.exception() is None


async def whole_of(upstream: ClientResponse) -> tuple[bytes, bool]:
    """All that comes of an answer, and whether it has broken off."""
    parts: list[bytes] = []
    is_cut = False
    while not is_cut:
        part, is_cut = await next_chunk(upstream.content)
        if not part:
            break
        parts.append(part)
    return b"".join(parts), is_cut


def answered(upstream: ClientResponse, data: bytes, extra: dict[str, str], *, is_head: bool = False) -> web.Response:
    """A whole answer as it came; the answer to a question for its head has the length of what is not sent."""
    headers = forwarded_headers(upstream.headers.items(), without=frozenset() if is_head else _LENGTH)
    headers.update(extra)
    return web.Response(status=upstream.status, reason=upstream.reason, headers=headers, body=None if is_head else data)


async def cut_off(
    request: web.Request, upstream: ClientResponse, data: bytes, extra: dict[str, str]
) -> web.StreamResponse:
    """An answer that has broken off, as far as it came; it breaks off for the client too."""
    stream = Stream(request, upstream, extra)
    stream.is_cut = True
    await stream.open()
    if data:
        await stream.write(data)
    return await stream.end()


class Stream:
    """A stream to the client that begins as the upstream's does, and ends as it ends."""

    def __init__(self, request: web.Request, upstream: ClientResponse, extra: dict[str, str]) -> None:
        headers = forwarded_headers(upstream.headers.items(), without=frozenset())
        headers.update(extra)
        self._request = request
        self.response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
        self.is_cut = False
        """Whether the upstream has broken off."""

    def unpacked(self) -> None:
        """Say that other bytes are sent than came, in no encoding."""
        for name in ("Content-Length", "Content-Encoding"):
            self.response.headers.popall(name, None)

    async def open(self) -> None:
        """Send the head."""
        try:
            await self.response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error

    async def chunks(self, upstream: ClientResponse, ahead: bytes = b"") -> AsyncIterator[bytes]:
        """What comes from upstream, as it comes, after what was read of it already."""
        if ahead:
            yield ahead
        while not self.is_cut:
            chunk, self.is_cut = await next_chunk(upstream.content)
            if not chunk:
                return
            yield chunk

    async def write(self, data: bytes) -> None:
        """Send a piece."""
        try:
            await self.response.write(data)
        except ConnectionError as error:
            raise ClientGone from error

    async def end(self) -> web.StreamResponse:
        """Come to an end, or break off, so that the client knows."""
        if not self.is_cut:
            try:
                await self.response.write_eof()
            except ConnectionError as error:
                raise ClientGone from error
            return self.response
        self.response.force_close()
        if self._request.transport is not None:
            self._request.transport.close()
        return self.response


async def streamed(
    request: web.Request,
    upstream: ClientResponse,
    tap: Tap,
    before_end: Callable[[], Awaitable[None]],
    extra: dict[str, str],
    ahead: bytes = b"",
) -> web.StreamResponse:
    """Pass a stream on, chunk by chunk; `before_end` is awaited before its last bytes.

    ``ahead`` is what was read of it already.
    """
    stream = Stream(request, upstream, extra)
    left = upstream.content_length
    try:
        await stream.open()
        async for chunk in stream.chunks(upstream, ahead):
            left = None if left is None else left - len(chunk)
            if tap(chunk) or left == 0:
                await before_end()
            await stream.write(chunk)
        await before_end()
        return await stream.end()
    finally:
        upstream.release()


async def next_chunk(content: StreamReader) -> tuple[bytes, bool]:
    """What has come next, and whether the upstream has broken off; nothing at the end."""
    try:
        return await content.readany(), False
    except (ClientError, OSError, TimeoutError):
        return content._read_nowait(-1), True  # noqa: SLF001 - what came before the break is the client's


def _sendable(value: str) -> str:
    """A header's value; bytes that are no text in UTF-8 cannot be written as they came."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value
