"""What the gateway does on the side: store what had to wait for the database, and index what was said for the search.

Both run in threads, a bit at a time, and give way whenever the database is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from everlong.gateway.dialects import ANTHROPIC, OPENAI
from everlong.gateway.items import RESPONSES
from everlong.gateway.keeper import Keeper
from everlong.gateway.response_keeper import RESPONSES_API, ResponseKeeper
from everlong.gateway.spool import AWAY, Spool, Spooled

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["Upkeep"]

_log = logging.getLogger("everlong.gateway")

_REPLAY_SECONDS = 5.0
_INDEX_SECONDS = 1.0
_LAST_SECONDS = 10.0
_AT_ONCE = 100
"""Messages that are indexed in one transaction, for which others have to wait."""


class Upkeep:
    """Looks after one gateway's database.

    Args:
        spool: the journal.
        store_of: opens the store of a tenant.
        is_busy: whether clients are being served, who come first.
    """

    def __init__(self, spool: Spool, store_of: Callable[[str], Store], is_busy: Callable[[], bool]) -> None:
        self._spool = spool
        self._store_of = store_of
        self._is_busy = is_busy
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = asyncio.Event()

    def start(self) -> None:
        """Begin, in the loop that runs."""
        self._tasks = [asyncio.create_task(self._replay()), asyncio.create_task(self._index())]

    async def close(self) -> None:
        """Stop; what is under way comes to its end first, because it uses the database."""
        self._is_over.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
        for task in self._tasks:
            task.cancel()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_over.wait()

    async def _replay(self) -> None:
        while not self._is_over.is_set():
            try:
                await asyncio.to_thread(self._spool.take_over, self._replay_one)
                await asyncio.to_thread(self._spool.retry, self._replay_one)
                await asyncio.to_thread(self._spool.tidy)
            except AWAY:
                pass  # in a moment again
            except Exception as error:  # noqa: BLE001 - whatever it is, the next entries must not wait for ever
                _log.error("what waits in the journal could not be stored: %s", type(error).__name__)
            await self._pause(_REPLAY_SECONDS)

    def _replay_one(self, entry: Spooled) -> None:
        store = self._store_of(entry.tenant)
        if entry.api == RESPONSES_API:
            ResponseKeeper(store).replayed(entry)
        else:
            Keeper(store, next(one for one in (OPENAI, ANTHROPIC, RESPONSES) if one.name == entry.api)).replayed(entry)

    async def _index(self) -> None:
        searcher = self._store_of("local").searcher  # the index is one for all tenants
        while not self._is_over.is_set():
            taken = 0
            try:
                taken = await asyncio.to_thread(searcher.index_pending, _AT_ONCE)
            except AWAY:
                pass  # as above
            except Exception as error:  # noqa: BLE001 - the search also looks at what is not indexed
                _log.error("what was said could not be indexed: %s", type(error).__name__)
            has_more = taken == _AT_ONCE and not self._is_busy()
            await self._pause(_INDEX_SECONDS / 20 if has_more else _INDEX_SECONDS)
