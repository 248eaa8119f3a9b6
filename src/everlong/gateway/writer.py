"""Group commit: the writes of many requests at the same time share one transaction.

One thread writes everything in order; only work that takes long has another one. Tenants take turns, so that nobody
waits for all that somebody else has to say. Work that can wait is gathered for a moment and handed over together,
because waking a thread costs more than the work. Knows no table.

The work that `turn_queue` submits is a method of a `recorder` with plain values as arguments, so that it can also be
done in a process of its own: `storing_process` takes the place of these threads under ``everlong serve``.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from everlong.errors import StoreBusy
from everlong.store.database import STEP_SECONDS

if TYPE_CHECKING:
    from everlong.gateway.recorder import ConversationRecorder
    from everlong.store.database import Database

__all__ = ["StoreWriter", "Writer", "recorder_of"]

T = TypeVar("T")

_AT_ONCE = 64
"""Writes that share a commit at most."""
_GATHER_SECONDS = 0.02
"""Seconds that a write that can wait is held back."""
_LOCKED_SECONDS = 2.0
"""Seconds to wait for another process that has locked the file; after that, turns wait in the journal."""
_REFUSE_SECONDS = 1.0
"""Seconds after a lock during which writes fail at once."""


class _Write(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]

    @property
    def tenant(self) -> str:
        """The tenant of the recorder that does the work, if it is one's."""
        recorder = recorder_of(self.work)
        return "" if recorder is None else recorder.store.tenant


def recorder_of(work: Callable[[], Any]) -> ConversationRecorder | None:
    """Return the recorder of which some work is a `functools.partial` of a method; None for other work."""
    found: ConversationRecorder | None = getattr(getattr(work, "func", None), "__self__", None)
    return found


class _FairQueue:
    """Writes in order, of which the tenants have one each in turn."""

    def __init__(self) -> None:
        self._writes: dict[str, deque[_Write]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._writes.values()))

    def add(self, writes: Iterable[_Write]) -> None:
        for one in writes:
            self._writes.setdefault(one.tenant, deque()).append(one)

    def take(self) -> _Write:
        tenant = next(iter(self._writes))
        writes = self._writes.pop(tenant)
        taken = writes.popleft()
        if writes:
            self._writes[tenant] = writes  # behind the others
        return taken


class _Lane:
    """One writing thread with its queue."""

    def __init__(self, database: Database, *, shares_commit: bool = True) -> None:
        self._database = database
        self._shares_commit = shares_commit
        self._handed: queue.SimpleQueue[list[_Write] | None] = queue.SimpleQueue()
        self._waiting = _FairQueue()
        self._is_over = False
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
        """Finish the queue and stop; called from another thread after the loop has ended."""
        self._handed.put(self._gathered)
        self._handed.put(None)
        self._thread.join()

    def hand_over(self) -> None:
        """Give the gathered writes to the thread now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        jobs, self._gathered = self._gathered, []
        if jobs:
            self._handed.put(jobs)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._is_over or self._waiting:
            if not self._waiting:
                self._take(self._handed.get())
            self._take_in()
            results = self._commit()
            if results:
                loop = results[0][0].future.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._settle, results)

    def _take_in(self) -> None:
        """Queue everything that was handed over by now."""
        while not self._handed.empty():
            self._take(self._handed.get())

    def _take(self, jobs: list[_Write] | None) -> None:
        self._is_over = self._is_over or jobs is None
        self._waiting.add(jobs or [])

    def _commit(self) -> list[tuple[_Write, Any, BaseException | None]]:
        """Do the next writes, and commit them together: some, or as many as a moment allows.

        Work that is handed over meanwhile takes its turn, so that no tenant waits for a commit full of another's.
        """
        results: list[tuple[_Write, Any, BaseException | None]] = []
        until, most = time.monotonic() + STEP_SECONDS, min(_AT_ONCE, len(self._waiting))
        try:
            with self._database.batch(_LOCKED_SECONDS) if self._shares_commit else nullcontext():
                while len(results) < most and (not results or time.monotonic() < until):
                    self._take_in()
                    job = self._waiting.take()
                    try:
                        results.append((job, self._do(job), None))
                    except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                        results.append((job, None, error))
        except Exception as error:  # noqa: BLE001 - nothing was committed, so nobody may believe it
            return [(job, None, error) for job, _, _ in results]
        return results

    def _do(self, job: _Write) -> Any:
        """Do one write; right after the file was found locked, fail at once, so that not all others wait in turn."""
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


class StoreWriter(ABC):
    """The part of a gateway that does the work of recorders, in order, and commits it."""

    writes_index = False
    """True if it also writes the index."""

    async def start(self) -> None:
        """Begin, in the running loop."""
        return

    @abstractmethod
    def submit(self, work: Callable[[], T], *, can_wait: bool = False, is_heavy: bool = False) -> asyncio.Future[T]:
        """Have work done, in order; the future is done after the commit.

        Work that ``can_wait`` is held back for a moment to share its commit. Work that ``is_heavy`` has a thread of its
        own, and no order with other work.
        """

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Writes that are not committed yet."""

    @abstractmethod
    def hurry(self) -> None:
        """Begin at once with all writes that wait to share a commit."""

    @abstractmethod
    async def close(self) -> None:
        """Finish all submitted work, and stop."""


class Writer(StoreWriter):
    """The two writing threads of one database."""

    def __init__(self, database: Database) -> None:
        self._lane = _Lane(database)
        self._heavy = _Lane(database, shares_commit=False)
        """The lane for writes that take so long that others would notice."""

    def submit(self, work: Callable[[], T], *, can_wait: bool = False, is_heavy: bool = False) -> asyncio.Future[T]:
        """Do work in a writing thread; see `StoreWriter.submit`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane = self._heavy if is_heavy else self._lane
        lane.add(_Write(work, future), can_wait=can_wait)
        return future

    def hurry(self) -> None:
        """Begin at once with all writes that wait to share a commit."""
        self._lane.hand_over()

    @property
    def waiting(self) -> int:
        """Writes waiting for the next commit."""
        return self._lane.waiting + self._heavy.waiting

    async def close(self) -> None:
        """Finish all submitted work, and stop."""
        for lane in (self._lane, self._heavy):
            await asyncio.to_thread(lane.close)
