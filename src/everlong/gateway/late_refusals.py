"""Refusals that come inside of a stream: an API may begin to answer and then say that the request is too long.

Reads the beginning of a stream until it says something, and hands on all that was read. Sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everlong.gateway.encodings import Unreadable, decoder
from everlong.gateway.raw import Broken, dumped
from everlong.gateway.relay import is_whole, next_chunk
from everlong.gateway.taps import events_in
from everlong.providers.failures import classify_answer

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.errors import ProviderError

__all__ = ["read_beginning"]

_SECONDS = 10.0
"""So long the first words of an answer are held back; refusals come at once."""
_MOST_BYTES = 1_000_000
_BEGINNING = frozenset({"response.created", "response.queued", "response.in_progress", "keepalive"})
_FAILED = frozenset({"response.failed", "error"})


async def read_beginning(upstream: ClientResponse) -> tuple[bytes, ProviderError | None]:
    """Read a stream of the Responses API until its first output; the bytes, and the error that it begins with."""
    ahead, plain = b"", b""
    if is_whole(upstream):
        return ahead, None
    try:
        decode = decoder(upstream.headers.get("Content-Encoding", ""))
        async with asyncio.timeout(_SECONDS):
            while len(ahead) < _MOST_BYTES:
                chunk, is_cut = await next_chunk(upstream.content)
                ahead += chunk
                plain += decode(chunk)
                is_settled, error = _settled(plain)
                if is_settled or is_cut or not chunk:
                    return ahead, error
    except (TimeoutError, Unreadable, Broken):
        pass  # the client gets it as it came
    return ahead, None


def _settled(data: bytes) -> tuple[bool, ProviderError | None]:
    """Return whether a stream has said more than that it begins, and the error where that is what it says."""
    for event in events_in(data.replace(b"\r\n", b"\n").rpartition(b"\n\n")[0]):
        kind = event.get("type")
        if kind in _FAILED:
            return True, _error_in(event)
        if kind not in _BEGINNING:
            return True, None
    return False, None


def _error_in(event: Mapping[str, Any]) -> ProviderError:
    told = event.get("response") if isinstance(event.get("response"), dict) else event
    inner = told.get("error") if isinstance(told, Mapping) else None
    error = inner if isinstance(inner, dict) else {name: event.get(name) for name in ("code", "message")}
    return classify_answer(400, dumped({"error": error}))
