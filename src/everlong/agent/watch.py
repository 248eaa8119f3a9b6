"""Interrupts: waits for streams and functions that end when the user stops the work or its time is up."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

__all__ = ["Interrupted", "OutOfTime", "WorkWatch", "ctrl_c_raises", "ctrl_c_sets"]

T = TypeVar("T")

_LOOK_SECONDS = 0.05
"""Seconds between two looks whether a wait is to end."""


class Interrupted(BaseException):
    """The work was stopped; like `KeyboardInterrupt`, nothing that merely handles failures catches it."""


class OutOfTime(BaseException):
    """The time for the work is up."""


@dataclass
class WorkWatch:
    """Waits that end when ``interrupted`` is set or the clock reaches ``deadline``."""

    interrupted: threading.Event
    deadline: float | None = None
    clock: Callable[[], float] = time.monotonic

    def check(self) -> None:
        """Raise `Interrupted` or `OutOfTime` if it is time to stop."""
        if self.interrupted.is_set():
            raise Interrupted
        if self.deadline is not None and self.clock() >= self.deadline:
            raise OutOfTime

    def each(self, make: Callable[[], Iterable[T]]) -> Iterator[T]:
        """Yield what an iterable yields in a thread of its own, as it comes; raise what it raises, or as `check`.

        An iterable that is given up goes on in its thread until its next item, and is closed; nothing waits for it.
        """
        items: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
        given_up = threading.Event()

        def pull() -> None:
            end: BaseException | None = None
            try:
                source = make()
                try:
                    for value in source:
                        items.put((value,))
                        if given_up.is_set():
                            break
                finally:
                    if (close := getattr(source, "close", None)) is not None:
                        close()
            except BaseException as error:  # noqa: BLE001 - also sys.exit(); it is raised where it is waited for
                end = error
            items.put(end)

        threading.Thread(target=pull, name="everlong-watched", daemon=True).start()
        try:
            while True:
                self.check()
                left = _LOOK_SECONDS if self.deadline is None else self.deadline - self.clock()
                try:
                    item = items.get(timeout=max(0.0, min(_LOOK_SECONDS, left)))
                except queue.Empty:
                    continue
                if not isinstance(item, tuple):
                    break
                yield item[0]
        finally:
            given_up.set()
        if item is not None:
            raise item

    def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns; raises as `check` does."""
        (result,) = self.each(lambda: (function() for _ in range(1)))
        return result


@contextmanager
def ctrl_c_sets(interrupted: threading.Event) -> Iterator[None]:
    """Let Ctrl-C set an event instead of raising wherever the program happens to be; a second one raises.

    Only in the main thread, and only where nobody else has taken the signal.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            signal.default_int_handler(number, frame)
        interrupted.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Inside `ctrl_c_sets`: let Ctrl-C raise after all, for as long as a person is asked something."""
    is_ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_ours or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
