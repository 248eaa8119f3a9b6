"""How a request gets into the store with what came of it: together where that comes soon, else before it.

A request is in the journal or in the database before it goes upstream, so what a user said outlives a gateway that is
killed while the model thinks. What came of it is in the journal before the client has its last byte, and in the
database soon after; where that is away, it stays in the journal.
Runs in the event loop, and hands what blocks to the writer. What a request is, and how it is stored, say those who
build on this.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from everlong.gateway.keeper import Ended
from everlong.gateway.spool import AWAY, OPEN, Spool, Spooled

if TYPE_CHECKING:
    from everlong.gateway.writing import Writer

__all__ = ["Stored", "Storing", "Underway"]

T = TypeVar("T")
W = TypeVar("W")
U = TypeVar("U", bound="Underway")

_CATCH_UP_SECONDS = 1.0
"""Longer than this nobody waits for a database that is slow or away."""
_PATIENCE = 0.1
"""Seconds after which a request is stored though nothing has come of it yet."""


@dataclass(slots=True, kw_only=True)
class Underway:
    """A request of which it is not stored yet what came of it."""

    turn: asyncio.Future[int] | None = None
    """The number of its turn, once it is begun."""
    began: float = field(default_factory=time.time)
    timer: asyncio.TimerHandle | None = None
    noted: int | None = None
    """The number of its entry in the journal, from before it went upstream."""

    is_large: bool = False
    """True if so much is written about it that others would notice."""

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory until it is stored, about."""
        return 0


class Stored(NamedTuple, Generic[T]):
    """What storing a request came to: the number of its turn, and what else whoever stored it wants to know."""

    turn: int
    also: T


class Storing(ABC, Generic[U, T]):
    """Stores the requests of one tenant by one API."""

    def __init__(self, writer: Writer, spool: Spool) -> None:
        self._writer = writer
        self._spool = spool
        self._unsettled: set[asyncio.Future[Any]] = set()
        """Futures of finished requests that are not stored yet."""
        self._late: set[asyncio.Future[Any]] = set()
        """Those of them that came to their end before it was stored that they had begun."""

    # -- what a request is ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _lane(self, one: U) -> int:
        """What requests have in common that are stored one after the other."""

    @abstractmethod
    def _entry(self, one: U, ended: Ended) -> Spooled:
        """What is written down of a request, and from which it can be stored later; without secrets."""

    @abstractmethod
    def _work(self, one: U, ended: Ended | None) -> Callable[[], Stored[T]]:
        """What stores a request, in the writer's thread: as a turn that is begun, or one that is over."""

    @abstractmethod
    def _end(self, one: U, turn: int, ended: Ended) -> None:
        """Say what became of a turn that was begun; in the writer's thread."""

    @abstractmethod
    def _settled(self, one: U, stored: Stored[T] | None, *, is_away: bool) -> None:
        """Hear that a request was stored; or that it was not, because the database is away or for another reason."""

    def _is_stored(self, one: U) -> bool:
        """Return whether the words of a request are in the database."""
        return one.turn is not None and one.turn.done() and not one.turn.cancelled() and one.turn.exception() is None

    # -- storing -------------------------------------------------------------------------------------------------------

    async def note(self, one: U) -> None:
        """See to it that a request is in the journal or in the database before it goes upstream.

        Raises:
            EverlongError: neither takes it.
            OSError: as above.
        """
        if self._is_stored(one):
            return
        try:
            one.noted = await self._apart(one, lambda: self._spool.put_request(self._open_entry(one)))
        except OSError:
            await self.begin(one)

    def _open_entry(self, one: U) -> Spooled:
        return self._entry(one, Ended())._replace(status=OPEN, error=None)

    @staticmethod
    async def _apart(one: U, work: Callable[[], W]) -> W:
        """Do something about a request: in another thread where it is large."""
        return await asyncio.to_thread(work) if one.is_large else work()

    def turn_away(self, one: U) -> None:
        """Forget a request that is not passed on."""
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None

    def hold(self, one: U, ended: Ended) -> bool:
        """Keep in memory what became of a request, where nothing else takes it; False where too much is kept."""
        return self._spool.hold(self._entry(one, ended), one.noted)

    def _watch(self, one: U) -> None:
        """Store a request that takes its time before anything has come of it."""
        one.timer = asyncio.get_running_loop().call_later(_PATIENCE, self._overdue, one)

    def _overdue(self, one: U) -> None:
        self.begin(one)

    def begin(self, one: U) -> asyncio.Future[int]:
        """Store a request before anything has come of it."""
        return one.turn if one.turn is not None else self._store(one, None)

    async def finish(self, one: U, ended: Ended) -> asyncio.Future[Any]:
        """Write down what became of a request, and see to it that it gets into the store.

        It is in the journal when this returns, so that nobody has to wait for what it returns; `OSError` says that the
        journal cannot be written.
        """
        entry = await self._apart(one, lambda: self._entry(one, ended))
        number = await self._apart(one, lambda: self._spool.put(entry))
        self._drop_note(one)
        stored = self.finish_in_store(one, ended)
        self._unsettled.add(stored)
        stored.add_done_callback(self._unsettled.discard)
        stored.add_done_callback(partial(self._spool.settle, number, entry))
        return stored

    async def caught_up(self, *, is_parallel: bool = False) -> None:
        """Wait until replies that clients have are in the store, so that what follows them is known by them.

        One writing thread does everything in order, so nobody has to wait for it; except for ends that it has not got
        yet, because they wait for their beginnings. A heavy request has another thread.
        """
        if waited_for := list(self._unsettled if is_parallel or self._writer.is_parallel else self._late):
            self._writer.hurry()
            await asyncio.wait(waited_for, timeout=_CATCH_UP_SECONDS)

    def finish_in_store(self, one: U, ended: Ended) -> asyncio.Future[Any]:
        """Store what became of a request, without the journal; done when it is there."""
        if one.turn is None:
            return self._store(one, ended)
        later = asyncio.ensure_future(self._finished_later(one, one.turn, ended))
        if not one.turn.done():
            self._late.add(later)
            later.add_done_callback(self._late.discard)
        return later

    async def _finished_later(self, one: U, turn: asyncio.Future[int], ended: Ended) -> None:
        number = await turn
        await self._writer.submit(lambda: self._end(one, number, ended), self._lane(one), can_wait=True)

    def _drop_note(self, one: U) -> None:
        """Say that the entry from before the request went upstream is not needed any more."""
        if one.noted is not None:
            self._spool.done(one.noted)
            one.noted = None

    def _store(self, one: U, ended: Ended | None) -> asyncio.Future[int]:
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        stored = self._writer.submit(self._work(one, ended), self._lane(one), can_wait=ended is not None)
        one.turn = turn = stored.get_loop().create_future()
        stored.add_done_callback(partial(self._settle, one, turn))
        return turn

    def _settle(self, one: U, turn: asyncio.Future[int], stored: asyncio.Future[Stored[T]]) -> None:
        """Say what became of a request's storing to whoever waits for it."""
        error = None if stored.cancelled() else stored.exception()
        is_away = isinstance(error, AWAY)
        if is_away:
            one.turn = None  # it may be tried again
        has_failed = stored.cancelled() or error is not None
        self._settled(one, None if has_failed else stored.result(), is_away=is_away)
        if not has_failed:
            self._drop_note(one)
        if turn.cancelled():
            return
        if error is not None:
            turn.set_exception(error)
            turn.exception()  # seen, whether somebody waits for it or not
        elif stored.cancelled():
            turn.cancel()
        else:
            turn.set_result(stored.result().turn)
