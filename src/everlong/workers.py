"""Worker threads whose callers stop waiting in time.

Code that may hang runs in a daemon thread: a `Worker` runs one call after another. Work that the caller has given up
goes on in its thread until it returns; nothing waits for it.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

__all__ = ["Failed", "Job", "Overrun", "Worker"]

T = TypeVar("T")

_CHECK_SECONDS = 0.1
"""Seconds between two calls of the ``check`` that may end a wait."""


class Overrun(Exception):  # noqa: N818 - reads as the fact that it states
    """A call took longer than it may; it may still be running."""


class Failed(Exception):  # noqa: N818 - as above
    """A call raised ``error``; wrapped, so that nobody takes it for an interrupt of the thread that waits."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


class Job(Generic[T]):
    """One call: its work, its outcome and the time it has taken."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._value: T | None = None
        self.started = time.monotonic()
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Do the work and keep its outcome; never raises."""
        try:
            self._value = self._work()
        except BaseException as error:  # noqa: BLE001 - also sys.exit(); `result` raises it where it is waited for
            self.error = error
        finally:
            self.done.set()

    def seconds(self) -> float:
        """Return the seconds that count against the job's limit so far."""
        return time.monotonic() - self.started

    def result(self) -> T:
        """Return what the work returned; raises `Failed` where it raised something."""
        if self.error is not None:
            raise Failed(self.error) from self.error
        return cast("T", self._value)


class Worker:
    """A daemon thread that runs jobs one after another, so that they may share what is bound to a thread.

    The thread starts with the first job and ends with `close`, or when the worker is forgotten.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Lock()
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: Job[Any] | None = None

    @property
    def is_stuck(self) -> bool:
        """True while a job that took too long is still running."""
        return self._late is not None and not self._late.done.is_set()

    @property
    def is_current(self) -> bool:
        """True in the worker's own thread, which cannot wait for itself."""
        return threading.current_thread() is self._thread

    def call(self, work: Callable[[], T], seconds: float) -> T:
        """Return what ``work`` returns in the worker's thread. See `run`."""
        return self.run(Job(work), seconds)

    def run(self, job: Job[T], seconds: float, check: Callable[[], None] | None = None) -> T:
        """Run a job in the worker's thread, after those of other callers, and return its result.

        Args:
            job: what to run; its clock starts when it has its turn.
            seconds: the time that it may take.
            check: called again and again during the wait; ends it by raising.

        Raises:
            Failed: the job raised something.
            Overrun: it took too long, or an earlier one that did is still running.
        """
        with self._turn:
            if self.is_stuck:
                raise Overrun("an earlier call is still running")
            self._start()
            job.started = time.monotonic()
            self._jobs.put(job)
            if not _finished(job, seconds, check):
                self._late = job
                raise Overrun(f"it took longer than {seconds:g} seconds")
        return job.result()

    def close(self) -> None:
        """Let the thread end when its work is done; a later call starts another one."""
        with self._turn:
            if self._thread is not None and not self.is_stuck:
                self._jobs.put(None)
                self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_run_all, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()
            # A worker that nobody closes must not leave its thread behind.
            weakref.finalize(self, self._jobs.put, None).atexit = False


def _finished(job: Job[Any], seconds: float, check: Callable[[], None] | None) -> bool:
    """Wait for a job and return whether it ended in time; tests put another measure of time in its place."""
    longest = seconds if check is None else _CHECK_SECONDS
    while not job.done.wait(max(0.0, min(longest, seconds - job.seconds()))):
        if check is not None:
            check()
        if job.seconds() >= seconds and not job.done.is_set():
            return False
    return True


def _run_all(jobs: queue.SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # or its arguments would be kept until the next one
