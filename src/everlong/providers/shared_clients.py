"""Official clients that all providers of one endpoint share.

A client reads every certificate of the system and keeps its own connections. Hundreds of agents of one process would
each pay for that again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

__all__ = ["SharedClients"]


@dataclass
class _Held:
    client: Any
    holders: int = 0


class SharedClients:
    """Clients by endpoint. The last holder of a client closes it.

    >>> clients = SharedClients()
    >>> clients.take("an endpoint", list) is clients.take("an endpoint", list)
    True
    """

    def __init__(self) -> None:
        # Making a client may collect garbage, and with it a holder of another one, which gives that back.
        self._lock = threading.RLock()
        self._held: dict[Hashable, _Held] = {}

    def take(self, endpoint: Hashable, make: Callable[[], Any]) -> Any:
        """Return the client of an endpoint; the first holder makes it."""
        with self._lock:
            held = self._held.get(endpoint)
            if held is None:
                held = self._held[endpoint] = _Held(make())
            held.holders += 1
            return held.client

    def give_back(self, endpoint: Hashable) -> None:
        """Say that one holder does not need the client of an endpoint any more."""
        with self._lock:
            held = self._held[endpoint]
            held.holders -= 1
            if held.holders:
                return
            del self._held[endpoint]
        held.client.close()
