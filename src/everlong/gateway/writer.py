"""Group commit for the gateway: what many requests store at once shares one transaction.

One thread does the writing (a file lets only one in at a time anyway); a database server is written to by several, and
what belongs to one conversation stays in one of them. Work that can wait is gathered for a moment, and handed over
together: to wake a thread for each would cost more than the work. Whoever waits is told after the commit. Knows no
table.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from everlong.errors import StoreBusy

if TYPE_CHECKING:
    from everlong.store.database import Database

__all__ = ["Writer"]

T = TypeVar("T")

_AT_ONCE = 64
"""Works that share a commit at most."""
_THREADS = 4
_GATHER_SECONDS = 0.02
"""How long work that can wait does."""
_LOCKED_SECONDS = 2.0
"""How long to wait for another process that has locked the file; what is not stored then waits in the journal."""
_REFUSE_SECONDS = 1.0
"""How long nobody waits for it again."""


class _Write(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]


class _Lane:
    """One writing thread, and what waits for it."""

    def __init__(self, database: Database, *, shares_commit: bool = True) -> None:
        self._database = database
        self._shares_commit = shares_commit
        self._handed: queue.SimpleQueue[list[_Write] | None] = queue.SimpleQueue()
        self._gathered: list[_Write] = []
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = 0
        self._locked: StoreBusy | None = None
        self._locked_until = 0.0
        self._thread = threading.Thread(target=self._work, name="everlong-writer", daemon=True)
        self._thread.start()

    def add(self, job: _Write, *, can_wait: bool) -> None:
        self.waiting += 1
        self._gathered.append(job)
        if not can_wait or len(self._gathered) >= _AT_ONCE:
            self.hand_over()
        elif self._timer is None:
            self._timer = job.future.get_loop().call_later(_GATHER_SECONDS, self.hand_over)

    def close(self) -> None:
        """Called in another thread than the loop's, which has ended."""
        self._handed.put(self._gathered)
        self._handed.put(None)
        self._thread.join()

    def hand_over(self) -> None:
        """Give what has gathered to the thread now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        jobs, self._gathered = self._gathered, []
        if jobs:
            self._handed.put(jobs)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (jobs := self._handed.get()) is not None:
            is_over = False
            while len(jobs) < _AT_ONCE and not self._handed.empty():
                more = self._handed.get()
                is_over = more is None
                jobs += more or []
            results = self._together(jobs)
            if results:
                loop = results[0][0].future.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._settle, results)
            if is_over:
                return

    def _together(self, jobs: list[_Write]) -> list[tuple[_Write, Any, BaseException | None]]:
        results: list[tuple[_Write, Any, BaseException | None]] = []
        try:
            with self._database.batch(_LOCKED_SECONDS) if self._shares_commit else nullcontext():
                for job in jobs:
                    try:
                        results.append((job, self._done(job), None))
                    except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                        results.append((job, None, error))
        except Exception as error:  # noqa: BLE001 - nothing was committed, so nobody may believe it
            return [(job, None, error) for job in jobs]
        return results

    def _done(self, job: _Write) -> Any:
        """Do one job; right after a file was found locked, say so at once rather than make everyone wait in turn."""
        if self._locked is not None and time.monotonic() < self._locked_until:
            raise StoreBusy(str(self._locked))
        try:
            return job.work()
        except StoreBusy as error:
            if self._database.backend.name == "sqlite":  # a server's locks are on rows that others do not need
                self._locked, self._locked_until = error, time.monotonic() + _REFUSE_SECONDS
            raise

    def _settle(self, results: list[tuple[_Write, Any, BaseException | None]]) -> None:
        self.waiting -= len(results)
        for job, value, error in results:
            if job.future.cancelled():
                continue
            if error is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(error)


class Writer:
    """Does work that writes to one database."""

    def __init__(self, database: Database) -> None:
        count = 1 if database.backend.name == "sqlite" else _THREADS
        self._lanes = [_Lane(database) for _ in range(count)]
        self._heavy = _Lane(database, shares_commit=False)
        """For work that takes so long that others would notice if they had to wait for it."""

    def submit(
        self, work: Callable[[], T], key: int = 0, *, can_wait: bool = False, is_heavy: bool = False
    ) -> asyncio.Future[T]:
        """Do work; the future is there when it is committed. Works with one key are done in order.

        Work that ``can_wait`` does so for a moment, to share its commit with more. Work that ``is_heavy`` is done by
        itself, beside all other, and in no order with it.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane = self._heavy if is_heavy else self._lanes[key % len(self._lanes)]
        lane.add(_Write(work, future), can_wait=can_wait)
        return future

    @property
    def is_parallel(self) -> bool:
        """Whether several threads write, so that works with different keys are done in any order."""
        return len(self._lanes) > 1

    def hurry(self) -> None:
        """Begin at once with all that waits to share a commit."""
        for lane in self._every:
            lane.hand_over()

    @property
    def waiting(self) -> int:
        """Works that are not committed yet."""
        return sum(lane.waiting for lane in self._every)

    @property
    def _every(self) -> list[_Lane]:
        return [*self._lanes, self._heavy]

    def close(self) -> None:
        """Do what was submitted, and stop."""
        for lane in self._every:
            lane.close()
