"""Live updates: a stream of events that says when the database has changed, so that open pages look again."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from everlong.errors import StoreError
from everlong.inspector.security import HEADERS, VISITOR
from everlong.store.turn_figures import newest_change

if TYPE_CHECKING:
    from everlong.inspector.handlers import Reader

__all__ = ["LiveHandler"]

_SECONDS = 1.0
"""Seconds between two looks at the store, for all open pages together."""
_BEAT_SECONDS = 15.0
_MOST_READERS = 50


class LiveHandler:
    """Looks at the store once a second while a page is open, and tells every open page of a change."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._readers = 0
        self._seen: tuple[float, tuple[int, int, int]] | None = None
        self._looking = asyncio.Lock()
        self._closing = asyncio.Event()

    async def close(self, _app: web.Application) -> None:
        """End every stream, because the process stops."""
        self._closing.set()

    async def listen(self, request: web.Request) -> web.StreamResponse:
        """Send an event for each change until the page is closed."""
        if self._readers >= _MOST_READERS:
            return web.Response(status=503, text="too many open pages")
        self._readers += 1
        try:
            return await self._send(request, request[VISITOR].tenant)
        finally:
            self._readers -= 1

    async def _send(self, request: web.Request, tenant: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        seen, beat = await self._look(tenant), time.monotonic()
        await response.write(b"retry: 3000\n\n")
        try:
            while not self._closing.is_set() and not _has_left(request):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _SECONDS)
                now = await self._look(tenant)
                if now != seen:
                    seen = now
                    await response.write(b"event: change\ndata: 1\n\n")
                elif time.monotonic() - beat > _BEAT_SECONDS:
                    beat = time.monotonic()
                    await response.write(b": still here\n\n")
        except ConnectionError:
            pass  # the page was closed
        return response

    async def _look(self, tenant: str) -> tuple[int, int, int]:
        """Return the numbers of the newest change; pages that ask in the same second share one look."""
        async with self._looking:
            now = time.monotonic()
            if self._seen is not None and now - self._seen[0] < _SECONDS / 2:
                return self._seen[1]
            try:
                found = await asyncio.to_thread(newest_change, self._reader.store(tenant))
            except StoreError:
                found = self._seen[1] if self._seen is not None else (0, 0, 0)
            self._seen = (now, found)
            return found


def _has_left(request: web.Request) -> bool:
    """Return whether the page was closed; nothing may be written for long, so nothing else would tell."""
    return request.transport is None or request.transport.is_closing()
