"""Passing a request on and an answer back: headers, status and bytes as they are, each chunk as it comes.

Knows HTTP and nothing of conversations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from multidict import CIMultiDict

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["Relay", "answered", "forwarded_headers", "opened_stream"]

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
_OURS = frozenset({"host", "content-length", "accept-encoding", "expect", "x-everlong-session", "x-everlong-key"})
_IDLE_SECONDS = 600.0
"""How long an upstream may be silent; clients give up earlier."""


class Relay:
    """Connections to where requests go."""

    def __init__(self, limit: int = 0) -> None:
        self._session: ClientSession | None = None
        self._limit = limit

    async def start(self) -> None:
        """Open the pool of connections."""
        self._session = ClientSession(
            connector=TCPConnector(limit=self._limit, keepalive_timeout=60),
            timeout=ClientTimeout(total=None, sock_connect=20, sock_read=_IDLE_SECONDS),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def send(self, method: str, url: str, headers: CIMultiDict[str], body: bytes | None) -> ClientResponse:
        """Send a request; the answer's head is there when this returns."""
        assert self._session is not None  # noqa: S101 - started before anything is sent
        return await self._session.request(method, url, headers=headers, data=body, allow_redirects=False)


def forwarded_headers(headers: Iterable[tuple[str, str]], *, without: frozenset[str] = _OURS) -> CIMultiDict[str]:
    """The headers that go on, in their order; those of one connection stay behind."""
    given = list(headers)
    named = {name.strip().lower() for key, value in given if key.lower() == "connection" for name in value.split(",")}
    passed: CIMultiDict[str] = CIMultiDict()
    for name, value in given:
        lowered = name.lower()
        if lowered not in _HOP and lowered not in without and lowered not in named:
            passed.add(name, value)
    return passed


def answered(upstream: ClientResponse, data: bytes, extra: dict[str, str]) -> web.Response:
    """A whole answer as it came."""
    headers = forwarded_headers(upstream.headers.items(), without=frozenset({"content-length"}))
    headers.update(extra)
    return web.Response(status=upstream.status, reason=upstream.reason, headers=headers, body=data)


async def opened_stream(request: web.Request, upstream: ClientResponse, extra: dict[str, str]) -> web.StreamResponse:
    """A stream to the client that begins as the upstream's does."""
    headers = forwarded_headers(upstream.headers.items(), without=frozenset({"content-length"}))
    headers.update(extra)
    response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
    await response.prepare(request)
    return response
