"""Running other people's code: one call at a time, in one thread of its own, and only for so long.

All calls to a plugin's object come from the same thread, as SQLite connections and much else expect it. A call that
takes too long is left behind; what it still does, it does alone. Knows nothing of engines.
"""

from __future__ import annotations

import contextvars
import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

__all__ = ["Failed", "Overrun", "Runner", "time_of_others"]

T = TypeVar("T")


_LOOK_SECONDS = 0.1
"""How often a wait that may be ended looks whether it is to end."""


class Overrun(Exception):  # noqa: N818 - reads as the fact that it states
    """A call took longer than it may."""


class Failed(Exception):  # noqa: N818 - as above
    """A call raised ``error``; wrapped, so that nobody takes it for an interrupt of the one who waits."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(f"{type(error).__name__}: {error}")


class _PluginCall:
    """One call: what is to be done, what came of it, and how much of its time others have taken."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.context = contextvars.copy_context()
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.started = time.monotonic()
        self.others = 0.0
        self.others_since: float | None = None

    def run(self) -> None:
        before, _of_thread.job = _of_thread.job, self
        try:
            self.value = self.context.run(self.work)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self.error = error
        finally:
            _of_thread.job = before
            self.done.set()

    def seconds(self) -> float:
        """The time that the call itself has taken so far."""
        now = time.monotonic()
        waiting = self.others_since
        return now - self.started - self.others - (now - waiting if waiting is not None else 0.0)

    def result(self) -> Any:
        if self.error is not None:
            raise Failed(self.error) from self.error
        return self.value


class _OfThread(threading.local):
    job: _PluginCall | None = None


_of_thread = _OfThread()


@contextmanager
def time_of_others() -> Iterator[None]:
    """In a ``with`` block, the time is not the plugin's: it waits for a model that Everlong asks on its behalf."""
    job = _of_thread.job
    if job is None or job.others_since is not None:
        yield
        return
    job.others_since = time.monotonic()
    try:
        yield
    finally:
        since, job.others_since = job.others_since, None
        job.others += time.monotonic() - since


class Runner:
    """A thread for the calls of one plugin's object; ``seconds`` is what each may take."""

    def __init__(self, name: str, seconds: float) -> None:
        self.seconds = seconds
        self._name = name
        self._jobs: queue.SimpleQueue[_PluginCall | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stays_here = False
        weakref.finalize(self, self._jobs.put, None)

    def call(self, work: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        """What ``work`` returns; ``check`` is called while it is waited for, and ends that by raising.

        Raises:
            Failed: it raised something.
            Overrun: it took too long; it may still be at it.
        """
        # A plugin may come back to itself by way of the host.
        if self._stays_here or threading.current_thread() is self._thread:
            return self._here(work)
        if self._thread is None:
            self._thread = threading.Thread(target=_run_all, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()
        job = _PluginCall(work)
        self._jobs.put(job)
        longest = self.seconds if check is None else _LOOK_SECONDS
        while not job.done.wait(max(0.0, min(longest, self.seconds - job.seconds()))):
            if check is not None:
                check()
            if job.seconds() >= self.seconds and not job.done.is_set():
                raise Overrun(f"it took longer than {self.seconds:g} seconds")
        if _wants_its_thread(job.error):
            self._stays_here = True
            return self._here(work)
        return cast("T", job.result())

    def _here(self, work: Callable[[], T]) -> T:
        """In the caller's thread, where something the plugin opened cannot be used from another."""
        job = _PluginCall(work)
        job.run()
        if job.error is None and job.seconds() > self.seconds:
            raise Overrun(f"it took longer than {self.seconds:g} seconds")
        return cast("T", job.result())

    def close(self) -> None:
        """Let the thread end when it has done what it has to do."""
        self._jobs.put(None)


def _wants_its_thread(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.ProgrammingError) and "thread" in str(error)


def _run_all(jobs: queue.SimpleQueue[_PluginCall | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job
