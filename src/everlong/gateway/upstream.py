"""The upstream's side: kept-open connections, proxies and certificates, and answers passed on as they come."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import getproxies_environment, proxy_bypass
from weakref import WeakKeyDictionary

from aiohttp import (
    ClientConnectorCertificateError,
    ClientError,
    ClientHttpProxyError,
    ClientOSError,
    ClientProxyConnectionError,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
    web,
)
from multidict import CIMultiDict
from yarl import URL

from everlong.errors import ConfigError
from everlong.gateway.auth import Refused, is_loopback
from everlong.gateway.body import BrokenBody, parse_json
from everlong.gateway.bounds import is_light, read_apart, readable_of
from everlong.wire.event_stream import EventPiece, EventStream

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from aiohttp import ClientRequest, ClientResponse, StreamReader
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

    from everlong.errors import ProviderError

__all__ = [
    "BUFFER_BYTES",
    "MAX_HEADER_BYTES",
    "ClientGone",
    "Network",
    "Pool",
    "ReadAnswer",
    "Relay",
    "Stream",
    "Tap",
    "UsageFilter",
    "check_connection",
    "comes_whole",
    "failure",
    "forwarded_headers",
    "is_whole",
    "next_chunk",
    "read_in_steps",
    "stream_response",
    "target_of",
    "was_stale",
    "whole_of",
    "whole_response",
]

_IDLE_SECONDS = 2.0
"""Seconds of idleness after which servers close connections; none closes them sooner."""
_READ_BYTES = 1 << 14
_AT_ONCE_SECONDS = 0.5
"""Seconds within which a connection that was closed before is known to be so."""

_only_new: ContextVar[bool] = ContextVar("only_new", default=False)
"""True if the request that this task sends needs a connection of its own."""
_was_idle: ContextVar[bool] = ContextVar("was_idle", default=False)
_since: ContextVar[float] = ContextVar("since", default=0.0)


class Pool(TCPConnector):
    """A pool of connections that knows how long each was idle."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._released: WeakKeyDictionary[object, float] = WeakKeyDictionary()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """Return a free connection, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            released = None if connection.protocol is None else self._released.get(connection.protocol)
            if released is None or not _only_new.get():
                break
            connection.close()  # as old as the one that was stale
        if released is None:
            read_in_steps(connection.transport)
        now = time.monotonic()
        _was_idle.set(released is not None and now - released >= _IDLE_SECONDS)
        _since.set(now)
        return connection

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        self._released[protocol] = time.monotonic()
        super()._release(key, protocol, should_close=should_close)


def read_in_steps(transport: BaseTransport | None) -> None:
    """Have a connection read 16 KB at a time: in 64 KB of tiny chunks, ten connections keep others waiting a second."""
    if transport is not None and hasattr(transport, "max_size"):  # of asyncio's own transports on POSIX
        transport.max_size = _READ_BYTES


def was_stale(error: ClientOSError | ServerDisconnectedError) -> bool:
    """Return whether the last request of this task failed because its connection was old."""
    has_begun = isinstance(error, ServerDisconnectedError) and not isinstance(error.message, str)
    return _was_idle.get() and not has_begun and time.monotonic() - _since.get() <= _AT_ONCE_SECONDS


_log = logging.getLogger("everlong.gateway")

_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name certificates to OpenSSL, Python, curl and Node."""


class Network:
    """The way to upstreams, as the environment names it.

    Raises:
        ConfigError: a proxy is of a kind that is not supported.
    """

    def __init__(self) -> None:
        named = getproxies_environment()
        self._proxies: dict[str, URL] = {name: _proxy(name, named[name]) for name in ("http", "https") if name in named}
        self.ssl = _context(os.environ)
        """The verification of connections; True for the HTTP client's usual way."""

    def proxy_for(self, url: URL) -> URL | None:
        """Return the proxy for an address; None if it is reached directly, as this machine always is."""
        host = url.host or ""
        if is_loopback(host) or proxy_bypass(f"{host}:{url.port}"):
            return None
        return self._proxies.get(url.scheme)


def _proxy(scheme: str, value: str) -> URL:
    try:
        found = URL(value if "://" in value else f"http://{value}")
        is_proxy = found.scheme in {"http", "https"} and bool(found.host)
    except ValueError:
        is_proxy = False
    if not is_proxy:
        name = f"{scheme.upper()}_PROXY"
        raise ConfigError(f"{name} has a value of another form, but a proxy must be http://HOST:PORT", key=name)
    return found


def _context(env: Mapping[str, str]) -> ssl.SSLContext | bool:
    named = {name: env[name] for name in _BUNDLES if env.get(name)}
    if not named and not env.get("SSL_CERT_DIR"):
        return True
    context = ssl.create_default_context()  # which reads SSL_CERT_FILE and SSL_CERT_DIR in the place of the system's
    for path, name in {path: name for name, path in named.items()}.items():  # they often name the same file
        try:
            _trust(context, path)
        except OSError as error:  # maybe meant for another program: whoever needs it is told where a connection fails
            _log.warning("%s is %s, which cannot be read as certificates: %s", name, path, _why(error))
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    given = Path(path).expanduser()
    files = sorted(path for path in given.iterdir() if path.suffix in {".pem", ".crt"}) if given.is_dir() else [given]
    if not files:
        raise OSError(errno.ENOENT, "it has no .pem or .crt file")
    for found in files:
        context.load_verify_locations(cafile=found)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)) if not isinstance(error, ssl.SSLError) else "no certificate in it"


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
"""Headers that decide about a request; they never belong to one connection."""
_OURS = frozenset({"host", "content-length", "expect", "x-everlong", "x-everlong-session", "x-everlong-key"})
_LENGTH = frozenset({"content-length"})
_RELAY_IDLE_SECONDS = 600.0
"""Seconds that an upstream may be silent; clients give up earlier."""
_MOMENT_SECONDS = 0.05
_PIECE_BYTES = 1_000_000
BUFFER_BYTES = 1 << 14
"""Bytes that a connection buffers; of tiny chunks a quarter as many, which are read at once."""
MAX_HEADER_BYTES = 65_536
"""Bytes of one header: lists of beta features grow long."""

Tap = Callable[[bytes], Awaitable[bool]]
"""A listener that sees each chunk and returns whether the stream ends with it."""


class ClientGone(Exception):  # noqa: N818 - what has happened, not whose fault it is
    """The client has hung up."""


class Relay:
    """The connections to upstreams."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None
        self.network = Network()

    async def start(self) -> None:
        """Open the pool of connections."""
        self._session = ClientSession(
            connector=Pool(limit=0, keepalive_timeout=60, ssl=self.network.ssl),
            timeout=ClientTimeout(total=None, sock_connect=20, sock_read=_RELAY_IDLE_SECONDS),
            cookie_jar=DummyCookieJar(),  # what an upstream sets is one client's
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            read_bufsize=BUFFER_BYTES,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def send(self, method: str, url: str, headers: CIMultiDict[str], body: bytes | None) -> ClientResponse:
        """Send a request; the answer's head is there when this returns.

        If it met a connection that the upstream was just closing, it is sent once more, on a new one.
        """
        assert self._session is not None  # noqa: S101 - started before anything is sent
        address = URL(url, encoded=True)  # as the client wrote it, whatever could be written otherwise
        proxy = self.network.proxy_for(address)
        for is_second in (False, True):
            # A large body goes out in pieces, so that others get their turn.
            data = io.BytesIO(body) if body is not None and len(body) > _PIECE_BYTES else body
            _only_new.set(is_second)
            _was_idle.set(False)
            try:
                return await self._session.request(
                    method, address, headers=headers, data=data, proxy=proxy, allow_redirects=False
                )
            except (ClientOSError, ServerDisconnectedError) as error:
                if is_second or not was_stale(error):
                    raise
        raise AssertionError("unreachable")


def failure(where: str, error: BaseException) -> str:
    """Return in words why an upstream did not answer; without its own words."""
    if isinstance(error, ServerDisconnectedError):
        return f"the upstream {where} closed the connection before it had answered"
    if isinstance(error, ClientHttpProxyError):
        return f"the proxy on the way to {where} answered with status {error.status}; see HTTPS_PROXY and NO_PROXY"
    if isinstance(error, ClientProxyConnectionError):
        said = error.os_error.strerror or type(error.os_error).__name__
        return f"the proxy on the way to {where} could not be reached: {said}; see HTTPS_PROXY and NO_PROXY"
    if isinstance(error, ClientConnectorCertificateError):
        said = str(getattr(error.certificate_error, "verify_message", "")) or "it could not be verified"
        return f"the certificate of {where} is not trusted: {said}; name your network's own in SSL_CERT_FILE"
    if isinstance(error, ClientResponseError):
        return f"the upstream {where} answered with something that is no HTTP"
    return f"the upstream {where} could not be reached: {str(error) or type(error).__name__}"


def forwarded_headers(
    headers: Iterable[tuple[str, str]], *, without: frozenset[str] = _OURS, is_read: bool = True
) -> CIMultiDict[str]:
    """Return the headers that go on, in their order, without those of one connection.

    If the answer ``is_read`` here, the client's accepted encodings are limited to those that we can read.
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


def check_connection(headers: Iterable[tuple[str, str]]) -> None:
    """Refuse a request that calls a deciding header one of its connection.

    Such a header would be seen here and not upstream: a client could have the one left out by which it was let in.
    """
    named = (name.strip().lower() for key, value in headers if key.lower() == "connection" for name in value.split(","))
    for name in named:
        if name in _NOT_OF_A_CONNECTION:
            raise Refused(400, f"the header {name} is none of one connection, but Connection names it", close=True)


def target_of(request: web.Request) -> str:
    """Return the path and query that a client asked for, as it wrote them, without a host."""
    url = request.rel_url
    return f"{url.raw_path}?{url.raw_query_string}" if url.raw_query_string else url.raw_path


def is_whole(upstream: ClientResponse) -> bool:
    """Return whether an answer comes in one piece, which is of no use before its end."""
    kind = upstream.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind != "text/event-stream" and "Content-Length" in upstream.headers)


async def comes_whole(upstream: ClientResponse) -> bool:
    """Return whether an answer is one piece, and all of it is there or comes in a moment: most come with the head."""
    if not is_whole(upstream):
        return False
    if not upstream.content.is_eof():
        try:
            async with asyncio.timeout(_MOMENT_SECONDS):
                await upstream.content.wait_eof()
        except (ClientError, OSError, TimeoutError):
            return False
    return upstream.content.exception() is None


class ReadAnswer(NamedTuple):
    """An answer as far as it was read."""

    data: bytes = b""
    is_cut: bool = False
    """True if it has broken off."""
    is_all: bool = True
    """True if nothing more can come."""
    error: ProviderError | None = None
    """The error that it is, if it was looked for."""


async def whole_of(upstream: ClientResponse, most: int) -> ReadAnswer:
    """Return an answer; of one that is longer than so many bytes, the beginning."""
    parts: list[bytes] = []
    size, is_cut = 0, False
    while not is_cut:
        part, is_cut = await next_chunk(upstream.content)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > most:
            return ReadAnswer(b"".join(parts), is_cut, is_all=False)
    return ReadAnswer(b"".join(parts), is_cut)


def whole_response(
    upstream: ClientResponse, data: bytes, extra: dict[str, str], *, is_head: bool = False
) -> web.Response:
    """Return a whole answer as it came; the answer to a HEAD request has the length of the body that is not sent."""
    headers = forwarded_headers(upstream.headers.items(), without=frozenset() if is_head else _LENGTH)
    headers.update(extra)
    return web.Response(status=upstream.status, reason=upstream.reason, headers=headers, body=None if is_head else data)


_NO_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class UsageFilter:
    """A filter that takes the last chunk of a stream of chat completions out: the one with nothing but the usage."""

    def __init__(self) -> None:
        self._events = EventStream()

    def take(self, data: bytes) -> bytes:
        """Return the events that end in some bytes, without the usage."""
        return b"".join(map(self._shown, self._events.take(data)))

    def end(self) -> bytes:
        """Return the rest."""
        return self._shown(self._events.end())

    @staticmethod
    def _shown(piece: EventPiece) -> bytes:
        if piece.data is None or not _NO_CHOICE.search(piece.data):
            return piece.raw
        with suppress(BrokenBody):
            event = parse_json(piece.data)
            if isinstance(event, dict) and event.get("choices") == [] and event.get("usage"):
                return b""
        return piece.raw


class Stream:
    """A stream to the client that begins and ends as the upstream's does; a ``usage`` filter may take its usage out."""

    def __init__(
        self, request: web.Request, upstream: ClientResponse, extra: dict[str, str], usage: UsageFilter | None = None
    ) -> None:
        headers = forwarded_headers(upstream.headers.items(), without=frozenset())
        headers.update(extra)
        self._request = request
        self.response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
        self.is_cut = False
        """True if the upstream has broken off."""
        self._usage = usage
        if usage is not None:
            self.unpacked()

    def unpacked(self) -> None:
        """Drop the encoding from the headers, because other bytes are sent than came."""
        for name in ("Content-Length", "Content-Encoding"):
            self.response.headers.popall(name, None)

    async def open(self) -> None:
        """Send the head."""
        try:
            await self.response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error

    async def chunks(self, upstream: ClientResponse, ahead: bytes = b"") -> AsyncIterator[bytes]:
        """Yield the upstream's chunks as they come, after those that were read already."""
        if ahead:
            yield ahead
        while not self.is_cut:
            chunk, self.is_cut = await next_chunk(upstream.content)
            if not chunk:
                return
            yield chunk

    async def write(self, data: bytes) -> None:
        """Send a piece."""
        if self._usage is not None:
            data = self._usage.take(data) if is_light(data) else await read_apart(self._usage.take, data)
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        try:
            await self.response.write(data)
        except ConnectionError as error:
            raise ClientGone from error

    async def end(self) -> web.StreamResponse:
        """End the stream, or break it off so that the client notices."""
        if self._usage is not None:
            await self._write(self._usage.end())
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


async def stream_response(
    request: web.Request,
    upstream: ClientResponse,
    tap: Tap | None,
    before_end: Callable[[], Awaitable[None]],
    extra: dict[str, str],
    ahead: bytes = b"",
    usage: UsageFilter | None = None,
) -> web.StreamResponse:
    """Pass a stream on, chunk by chunk; `before_end` is awaited before its last bytes.

    ``ahead`` is what was read of it already; ``usage`` takes the usage out.
    """
    stream = Stream(request, upstream, extra, usage)
    left = upstream.content_length
    try:
        await stream.open()
        async for chunk in stream.chunks(upstream, ahead):
            left = None if left is None else left - len(chunk)
            if (tap is not None and await tap(chunk)) or left == 0:
                await before_end()
            await stream.write(chunk)
        await before_end()
        return await stream.end()
    finally:
        upstream.release()


async def next_chunk(content: StreamReader) -> tuple[bytes, bool]:
    """Return the next bytes, and whether the upstream has broken off; no bytes at the end."""
    try:
        return await content.readany(), False
    except (ClientError, OSError, TimeoutError):
        return content._read_nowait(-1), True  # noqa: SLF001 - what came before the break is the client's


def _sendable(value: str) -> str:
    """Return a header's value as it can be sent; bytes that are no UTF-8 are replaced."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value
