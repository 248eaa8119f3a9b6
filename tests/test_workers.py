"""Worker threads: calls one after another, time limits, errors, and streams that can be given up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from everlong.workers import Failed, Overrun, Worker, iterate
from tests.waiting import PATIENCE, until


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_whatever_a_call_raises_comes_back_wrapped(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(Failed) as caught:
        Worker("two").call(fail, PATIENCE)
    assert caught.value.error is error


def test_a_call_that_takes_too_long_blocks_the_worker_until_it_returns() -> None:
    worker, released = Worker("three"), threading.Event()
    with pytest.raises(Overrun, match=r"longer than 0\.01 seconds"):
        worker.call(released.wait, 0.01)
    assert worker.is_stuck
    with pytest.raises(Overrun, match="still running"):
        worker.call(int, PATIENCE)
    released.set()
    until(lambda: not worker.is_stuck)
    assert worker.call(int, PATIENCE) == 0


def test_a_forgotten_worker_leaves_no_thread_behind() -> None:
    worker = Worker("five")
    thread = worker.call(threading.current_thread, PATIENCE)
    del worker
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_stream_gives_its_values_and_raises_its_error() -> None:
    def values() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("torn")

    found: list[int] = []
    with pytest.raises(ValueError, match="torn"):
        found.extend(iterate(values, lambda: PATIENCE, "six"))
    assert found == [1, 2]


def test_a_stream_that_hangs_is_given_up_and_closed_when_it_goes_on() -> None:
    released, closed = threading.Event(), threading.Event()

    def values() -> Iterator[int]:
        try:
            yield 1
            released.wait()
            yield 2
        finally:
            closed.set()

    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        if looks > 3:
            raise TimeoutError
        return 0.01

    stream = iterate(values, look, "seven")
    assert next(stream) == 1
    with pytest.raises(TimeoutError):
        next(stream)
    released.set()
    assert closed.wait(PATIENCE)
