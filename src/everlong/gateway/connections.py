"""Connections to upstreams that are kept open and used again, and knowing which of them had lain idle.

An upstream closes what was idle for long, maybe at the very moment when a request is sent there: nobody has seen that
request, and it may be sent once more. On a connection that was new or busy a moment ago, and where the break came later
than at once, somebody may have acted on it. Knows nothing of requests.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from aiohttp import ClientOSError, ServerDisconnectedError, TCPConnector

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ["Pool", "begin", "was_stale"]

_IDLE_SECONDS = 2.0
"""Servers close connections that were idle for longer than this, and none sooner."""
_AT_ONCE_SECONDS = 0.5
"""A connection that was closed before is known to be so within this time."""

_only_new: ContextVar[bool] = ContextVar("only_new", default=False)
_was_idle: ContextVar[bool] = ContextVar("was_idle", default=False)
_since: ContextVar[float] = ContextVar("since", default=0.0)


class Pool(TCPConnector):
    """Connections, of which is known how long they were not used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._released: WeakKeyDictionary[object, float] = WeakKeyDictionary()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A free connection, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            released = None if connection.protocol is None else self._released.get(connection.protocol)
            if released is None or not _only_new.get():
                break
            connection.close()  # as old as the one that was stale
        now = time.monotonic()
        _was_idle.set(released is not None and now - released >= _IDLE_SECONDS)
        _since.set(now)
        return connection

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        self._released[protocol] = time.monotonic()
        super()._release(key, protocol, should_close=should_close)


def begin(*, only_new: bool) -> None:
    """Say that a request is sent from here; ``only_new`` for one that needs a connection of its own."""
    _only_new.set(only_new)
    _was_idle.set(False)


def was_stale(error: ClientOSError | ServerDisconnectedError) -> bool:
    """Whether the request that was sent from here last has failed because its connection was old."""
    has_begun = isinstance(error, ServerDisconnectedError) and not isinstance(error.message, str)
    return _was_idle.get() and not has_begun and time.monotonic() - _since.get() <= _AT_ONCE_SECONDS
