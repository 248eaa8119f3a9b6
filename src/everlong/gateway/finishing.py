"""What is kept of requests: themselves before they go upstream, and after that what came of them.

What nothing takes is not passed on, unless the settings prefer answers to records. Clients wait for the store only
where there is no journal, or where they are quicker than the database. Knows no API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.errors import EverlongError
from everlong.gateway.limits import Refused
from everlong.gateway.spool import AWAY
from everlong.gateway.storing import Storing, Underway

if TYPE_CHECKING:
    from everlong.gateway.account import Account
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
_RETRY_SECONDS = 5
"""When a client may try again whose request could not be kept."""


class Finishing:
    """Follows up on the requests of one gateway; ``refuses`` those that cannot be kept."""

    def __init__(self, writer: Writer, *, refuses: bool = True) -> None:
        self._writer = writer
        self._refuses = refuses
        self._bytes = 0
        self.under_way: set[asyncio.Future[Any]] = set()
        self.has_unkept = False
        """Whether nothing took a request, since the journal last had room."""

    async def note(self, storing: Storing[U, Any], one: U, account: Account) -> str:
        """Have a request kept before it goes upstream; a warning where it is not and passes all the same.

        Raises:
            Refused: nothing takes it.
        """
        try:
            await storing.note(one)
        except (EverlongError, OSError) as error:
            try:
                return self.unkept(error, account)
            except Refused:
                storing.turn_away(one)
                raise
        return ""

    def unkept(self, error: Exception, account: Account) -> str:
        """Return the warning that goes with a request that nothing takes; `Refused` unless it may pass."""
        _log.error("a request is neither in the journal nor in the database: %s", type(error).__name__)
        self.has_unkept = True
        account.problem = type(error).__name__
        if not self._refuses:
            return f"neither in the journal nor in the database: {error}"
        said = (
            "the gateway can keep this request neither in its journal nor in its database, so it was not passed on; "
            "try again when its disk has room (gateway.when_full: pass prefers answers to records)"
        )
        raise Refused(503, said, _RETRY_SECONDS)

    async def finish(self, storing: Storing[U, Any], one: U, ended: Ended) -> str:
        """Have written down what became of a request; what went wrong with that, where something did."""
        try:
            stored = await storing.finish(one, ended)
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
            is_held = storing.hold(one, ended)
            _log.error("an answer is neither in the journal nor in the database: %s", type(error).__name__)
            kept = "kept in memory until there is room" if is_held else "lost"
            return f"neither in the journal nor in the database, {kept}: {error}"
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
