"""Connections to upstreams that are kept open and used again, and knowing which of them had been.

An upstream closes what was idle for long, maybe at the very moment when a request is sent there: nobody has seen that
request, and it may be sent once more. On a connection that was opened for it, somebody may have acted on it. Knows
nothing of requests.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from aiohttp import ClientOSError, ServerDisconnectedError, TCPConnector

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ["Pool", "begin", "was_stale"]

_only_new: ContextVar[bool] = ContextVar("only_new", default=False)
_was_used: ContextVar[bool] = ContextVar("was_used", default=False)


class Pool(TCPConnector):
    """Connections, of which is known whether they were used before."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[object] = WeakSet()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A free connection, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            is_used = connection.protocol in self._used
            if not (is_used and _only_new.get()):
                break
            connection.close()  # as old as the one that was stale
        if connection.protocol is not None:
            self._used.add(connection.protocol)
        _was_used.set(is_used)
        return connection


def begin(*, only_new: bool) -> None:
    """Say that a request is sent from here; ``only_new`` for one that needs a connection of its own."""
    _only_new.set(only_new)
    _was_used.set(False)


def was_stale(error: ClientOSError | ServerDisconnectedError) -> bool:
    """Whether the request that was sent from here last has failed because its connection was old."""
    has_begun = isinstance(error, ServerDisconnectedError) and not isinstance(error.message, str)
    return _was_used.get() and not has_begun
