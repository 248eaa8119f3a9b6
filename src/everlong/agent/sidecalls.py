"""Calls on the side of a conversation: what they cost is added up for whoever asks, and each leaves a receipt.

Summaries, memory flushes and pings are paid for like any request, but are no part of the conversation. Knows a store
and prices; who calls, and why, it is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from everlong.errors import StoreError
from everlong.providers.connection import Connection

if TYPE_CHECKING:
    from everlong.providers.base import Provider, Usage
    from everlong.store import Store
    from everlong.store.receipts import Kind

__all__ = ["SideCalls"]


class SideCalls:
    """Keeps account of the calls on the side of one conversation.

    Args:
        store: where receipts are kept.
        session: tells the session that calls are for now.
        warn: told where a receipt could not be kept.
    """

    def __init__(self, store: Store, session: Callable[[], str], warn: Callable[[str], None]) -> None:
        self._store = store
        self._session = session
        self._warn = warn
        self._spent = 0.0
        self._lock = threading.Lock()  # parts of a summary are written several at a time

    def paid(self, kind: Kind, provider: Provider, usage: Usage) -> None:
        """Take in what a call used; that its receipt cannot be kept stops nothing."""
        model, cost = f"{provider.name}:{provider.model}", None
        if isinstance(provider, Connection):
            model, cost = str(provider.model_name), provider.cost(usage)
        with self._lock:
            self._spent += cost or 0.0
        try:
            self._store.receipts.add(self._session(), kind, model=model, usage=usage.to_dict(), cost=cost)
        except StoreError as error:
            self._warn(f"what a {kind} call used could not be noted, so it is missing in `everlong usage`: {error}")

    def spent(self) -> float | None:
        """US dollars since this was last asked; None where nothing was spent that has a price."""
        with self._lock:
            spent, self._spent = self._spent, 0.0
        return spent or None
