"""What happens to requests after clients have their answers: what came of them goes from the journal into the store.

Clients wait for that only where there is no journal, or where they are quicker than the database. Knows no API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.errors import EverlongError
from everlong.gateway.spool import AWAY
from everlong.gateway.storing import Storing, Underway

if TYPE_CHECKING:
    from everlong.gateway.keeper import Ended
    from everlong.gateway.writing import Writer

__all__ = ["Finishing"]

U = TypeVar("U", bound=Underway)

_log = logging.getLogger("everlong.gateway")

_MOST_WAITING = 256
"""So many turns may wait for the database before clients do."""
_MOST_BYTES = 16_000_000
"""Or turns of so many bytes."""
_LAST_SECONDS = 10.0


class Finishing:
    """Follows up on the requests of one gateway."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._bytes = 0
        self.under_way: set[asyncio.Future[Any]] = set()

    async def finish(self, storing: Storing[U, Any], one: U, ended: Ended) -> str:
        """Have written down what became of a request; what went wrong with that, where something did."""
        try:
            stored = storing.finish(one, ended)
        except OSError as problem:  # no journal: then the answer has to wait for the database
            return await self._in_store(storing, one, ended, problem)
        self.under_way.add(stored)
        self._bytes += one.weight
        stored.add_done_callback(partial(self._finished, one.weight))
        if self._writer.waiting > _MOST_WAITING or self._bytes > _MOST_BYTES:  # slower than the clients
            await asyncio.wait([stored])
        return ""

    async def _in_store(self, storing: Storing[U, Any], one: U, ended: Ended, problem: OSError) -> str:
        try:
            await storing.finish_in_store(one, ended)
        except (EverlongError, OSError) as error:
            _log.error("a turn could not be stored: %s", type(error).__name__)
            return f"neither in the journal nor in the database: {error}"
        return f"not in the journal: {problem}"

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def close(self) -> None:
        """Wait for what is under way."""
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=_LAST_SECONDS)

    def _finished(self, weight: int, stored: asyncio.Future[Any]) -> None:
        self.under_way.discard(stored)
        self._bytes -= weight
        error = None if stored.cancelled() else stored.exception()
        if error is not None and not isinstance(error, AWAY):  # those are in the journal, for later
            _log.error("a turn could not be stored: %s", type(error).__name__)  # what it says may have words in it
