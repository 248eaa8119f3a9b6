"""Waiting for what may take too long: a stream or a function, given up when told to or when time is up.

What is waited for runs in a thread of its own. One that is given up goes on until it notices; nothing waits for it.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Interrupted", "OutOfTime", "Watch", "ctrl_c_raises", "ctrl_c_sets"]

T = TypeVar("T")

_LOOK_SECONDS = 0.05
"""How often a wait looks whether it is to end."""


class Interrupted(BaseException):
    """Whoever watches was told to stop; like `KeyboardInterrupt`, nothing that merely handles failures catches it."""


class OutOfTime(BaseException):
    """The time is up."""


class _Item(NamedTuple, Generic[T]):
    value: T | None = None
    error: BaseException | None = None
    is_end: bool = False


class Watch:
    """Waits until something is there, ``interrupted`` is set, or the clock reaches ``deadline``."""

    def __init__(
        self,
        interrupted: threading.Event,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interrupted = interrupted
        self.deadline = deadline
        self._clock = clock

    def check(self) -> None:
        """Raise `Interrupted` or `OutOfTime` where it is time to stop."""
        if self.interrupted.is_set():
            raise Interrupted
        if self.deadline is not None and self._clock() >= self.deadline:
            raise OutOfTime

    def each(self, make: Callable[[], Iterable[T]]) -> Iterator[T]:
        """What an iterable gives, as it comes."""
        items: queue.SimpleQueue[_Item[T]] = queue.SimpleQueue()
        given_up = threading.Event()

        def pull() -> None:
            try:
                source = make()
                try:
                    for value in source:
                        items.put(_Item(value))
                        if given_up.is_set():
                            break
                finally:
                    close = getattr(source, "close", None)
                    if close is not None:
                        close()
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                items.put(_Item(error=error))
            else:
                items.put(_Item(is_end=True))

        threading.Thread(target=pull, name="everlong-watched", daemon=True).start()
        try:
            while True:
                item = self._next(items)
                if item.error is not None:
                    raise item.error
                if item.is_end:
                    return
                yield item.value  # type: ignore[misc]  # an item that is no error and no end has a value
        finally:
            given_up.set()

    def call(self, function: Callable[[], T]) -> T:
        """What a function returns."""
        (result,) = self.each(lambda: (function() for _ in range(1)))
        return result

    def _next(self, items: queue.SimpleQueue[_Item[T]]) -> _Item[T]:
        while True:
            self.check()
            wait = _LOOK_SECONDS
            if self.deadline is not None:
                wait = max(0.0, min(wait, self.deadline - self._clock()))
            try:
                return items.get(timeout=wait)
            except queue.Empty:
                continue


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
