"""Processes that read logs ahead, so that reading and storing happen at once.

A process gets tasks through its standard input and answers with their steps (`everlong.cli.archive.log_reading`). It
reads no further than a few steps ahead of what is stored, so that memory stays flat, and ends when the archiver does,
however that ends. A log that a process cannot read is read by the archiver itself, which then tells why.
"""

from __future__ import annotations

import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import IO, TypeAlias

from everlong.cli.archive.log_reading import LogEnd, LogOpened, LogStep, LogTask, read_steps
from everlong.processes import OWN_FOLDER, own_command

__all__ = ["ReadingFailed", "ReadingProcesses"]

Step: TypeAlias = LogOpened | LogStep | LogEnd

_AHEAD = 2
"""Steps of one process that wait to be stored."""
_END_SECONDS = 5.0


class _Sign(Enum):
    """What a process says instead of a step."""

    FAILED = "failed"
    """The log cannot be read."""
    ENDED = "ended"
    """The process has ended."""


class ReadingFailed(Exception):  # noqa: N818 - a sign to the archiver, which reads the log itself
    """A sign that a process did not read a log to its end."""


class ReadingProcesses:
    """Processes that read logs one after the other; the steps come in the order in which the logs were given."""

    def __init__(self, count: int, on_wait: Callable[[], None] = lambda: None) -> None:
        self._on_wait = on_wait
        self._all = [_ReadingProcess() for _ in range(count)]
        self._next = 0

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [one.pid for one in self._all]

    def submit(self, task: LogTask) -> Iterator[Step]:
        """Have a log read; return its steps, to be taken after those of all logs before it.

        Raises:
            ReadingFailed: from the steps, if it was not read to its end.
        """
        process = self._all[self._next % len(self._all)]
        self._next += 1
        process.submit(task)
        return process.steps(self._on_wait)

    def close(self) -> None:
        """End the processes."""
        for one in self._all:
            one.close()


class _ReadingProcess:
    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            own_command(__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=OWN_FOLDER
        )
        self.pid = self._process.pid
        self._answers: queue.Queue[Step | _Sign] = queue.Queue(_AHEAD)
        self._is_closing = False
        self._receiver = threading.Thread(target=self._receive, name="log reader", daemon=True)
        self._receiver.start()

    def submit(self, task: LogTask) -> None:
        """Give the process a task; one that has ended says so when its steps are taken."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        with suppress(OSError):
            pickle.dump(task, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()

    def steps(self, on_wait: Callable[[], None]) -> Iterator[Step]:
        """Yield the steps of the oldest task; call a function before each wait."""
        while True:
            try:
                step = self._answers.get_nowait()
            except queue.Empty:
                on_wait()
                step = self._answers.get()
            if step is _Sign.ENDED:
                self._answers.put(step)  # for the tasks after this one
            if isinstance(step, _Sign):
                raise ReadingFailed
            yield step
            if isinstance(step, LogEnd):
                return

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._is_closing = True
        self._process.kill()
        while True:  # the thread may wait for room
            try:
                self._answers.get_nowait()
            except queue.Empty:
                break
        self._receiver.join(_END_SECONDS)
        self._process.wait(_END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a task that it did not take any more
                    pipe.close()

    def _receive(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        while not self._is_closing:
            try:
                self._answers.put(pickle.load(self._process.stdout))  # noqa: S301 - from ourselves
            except Exception:  # noqa: BLE001 - whatever it is, the archiver reads on by itself
                break
        self._answers.put(_Sign.ENDED)


def run() -> None:
    """Read the logs that standard input names, and write their steps to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the archiver
    tasks, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    try:
        while True:
            _answer(pickle.load(tasks), answers)  # noqa: S301 - from the archiver
    except (EOFError, BrokenPipeError):  # the archiver has ended
        return


def _answer(task: LogTask, answers: IO[bytes]) -> None:
    try:
        for step in read_steps(task):
            pickle.dump(step, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
    except BrokenPipeError:
        raise
    except Exception:  # noqa: BLE001 - the archiver reads the log again and tells what is wrong
        pickle.dump(_Sign.FAILED, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    from everlong.cli.archive import reading_processes  # noqa: PLW0406 - the archiver knows its classes by this name

    reading_processes.run()
