"""Group commit for the gateway: what many requests store at once shares one transaction.

One thread does the writing (a file lets only one in at a time anyway); a database server is written to by several, and
what belongs to one conversation stays in one of them. Whoever waits is told after the commit. Knows no table.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from everlong.store.database import Database

__all__ = ["Writer"]

T = TypeVar("T")

_AT_ONCE = 64
"""Works that share a commit at most."""
_THREADS = 4
_GATHER_SECONDS = 0.02
"""How long work that can wait does."""


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]
    can_wait: bool


class Writer:
    """Does work that writes to one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        count = 1 if database.backend.name == "sqlite" else _THREADS
        self._queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._work, args=(one,), name="everlong-writer", daemon=True)
            for one in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T], key: int = 0, *, can_wait: bool = False) -> asyncio.Future[T]:
        """Do work; the future is there when it is committed. Works with one key are done in order.

        Work that ``can_wait`` does so for a moment, to share its commit with more.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def done(value: Any, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(settle, value, error)

        self._queues[key % len(self._queues)].put(_Job(work, done, can_wait))
        return future

    @property
    def waiting(self) -> int:
        """Works that have not begun."""
        return sum(one.qsize() for one in self._queues)

    def close(self) -> None:
        """Do what was submitted, and stop."""
        for one in self._queues:
            one.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, waiting: queue.SimpleQueue[_Job | None]) -> None:
        while (job := waiting.get()) is not None:
            jobs = [job]
            until = time.monotonic() + _GATHER_SECONDS
            while len(jobs) < _AT_ONCE and job is not None:
                left = until - time.monotonic() if all(one.can_wait for one in jobs) else 0.0
                try:
                    job = waiting.get(timeout=left) if left > 0 else waiting.get_nowait()
                except queue.Empty:
                    break
                if job is not None:
                    jobs.append(job)
            self._together(jobs)
            if job is None:
                return

    def _together(self, jobs: list[_Job]) -> None:
        results: list[tuple[_Job, Any, BaseException | None]] = []
        try:
            with self._database.batch():
                for job in jobs:
                    try:
                        results.append((job, job.work(), None))
                    except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                        results.append((job, None, error))
        except Exception as error:  # noqa: BLE001 - nothing was committed, so nobody may believe it
            results = [(job, None, error) for job in jobs]
        for job, value, problem in results:
            job.done(value, problem)
