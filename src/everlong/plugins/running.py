"""Calls of plugin code: one at a time, in one thread of their own, with a time limit.

All calls to a plugin's object come from the same thread, as SQLite connections and much else expect it. A call that
takes too long is left behind.
"""

from __future__ import annotations

import contextvars
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from everlong.workers import Failed, Job, Overrun, Worker

__all__ = ["CALL_SECONDS", "Failed", "Overrun", "Runner", "time_of_others"]

T = TypeVar("T")

CALL_SECONDS = 60.0
"""Seconds that one call of an engine may take; the built-in one needs less than one."""


class _PluginCall(Job[T]):
    """A call in its caller's context, whose time does not include that of models asked on its behalf."""

    def __init__(self, work: Callable[[], T]) -> None:
        context = contextvars.copy_context()
        super().__init__(lambda: context.run(work))
        self._others = 0.0
        self._others_since: float | None = None

    def run(self) -> None:
        before, _of_thread.call = _of_thread.call, self
        try:
            super().run()
        finally:
            _of_thread.call = before

    def seconds(self) -> float:
        since = self._others_since
        waiting = time.monotonic() - since if since is not None else 0.0
        return super().seconds() - self._others - waiting

    @contextmanager
    def stop_clock(self) -> Iterator[None]:
        """Count no time in a ``with`` block."""
        if self._others_since is not None:
            yield
            return
        since = self._others_since = time.monotonic()
        try:
            yield
        finally:
            self._others_since = None
            self._others += time.monotonic() - since


class _OfThread(threading.local):
    call: _PluginCall[Any] | None = None


_of_thread = _OfThread()


@contextmanager
def time_of_others() -> Iterator[None]:
    """Stop the plugin's clock in a ``with`` block, while Everlong asks a model on its behalf."""
    if _of_thread.call is None:
        yield
        return
    with _of_thread.call.stop_clock():
        yield


class Runner:
    """A thread for the calls of one plugin's object; each may take ``seconds``, `CALL_SECONDS` by default."""

    def __init__(self, name: str, seconds: float | None = None) -> None:
        self.seconds = CALL_SECONDS if seconds is None else seconds
        self._worker = Worker(name)
        self._stays_here = False

    def call(self, work: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        """Return what ``work`` returns; ``check`` is called during the wait, and ends it by raising.

        Raises:
            Failed: it raised something.
            Overrun: it took too long; it may still be at it.
        """
        # A plugin may come back to itself by way of the host.
        if self._stays_here or self._worker.is_current:
            return self._call_here(work)
        try:
            return self._worker.run(_PluginCall(work), self.seconds, check)
        except Failed as failed:
            if not isinstance(failed.error, sqlite3.ProgrammingError) or "thread" not in str(failed.error):
                raise
        self._stays_here = True
        return self._call_here(work)

    def close(self) -> None:
        """Let the thread end when its work is done."""
        self._worker.close()

    def _call_here(self, work: Callable[[], T]) -> T:
        """Call in the caller's thread, for what the plugin opened there and cannot use in another."""
        call = _PluginCall(work)
        call.run()
        if call.error is None and call.seconds() > self.seconds:
            raise Overrun(f"it took longer than {self.seconds:g} seconds")
        return call.result()
