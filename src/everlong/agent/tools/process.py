"""A command in a process group of its own, with a time limit and an end that reaches all its processes.

A thread reads the output as fast as it comes, and keeps its beginning and its end. So neither a program that prints for
ever nor one that leaves a child with the output open can fill memory or keep the caller waiting.

A child that leaves the group is found by a mark in its environment, if the system shows that. In a sandbox with
processes of its own, the end of the first is the end of all.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FIRST_BYTES = 4_000_000
LAST_BYTES = 1_000_000
"""Bytes of the beginning and of the end of an output that are kept."""

GRACE = 2.0
"""Seconds between asking a process group to end and ending it."""

HASTE = 0.4
"""The same seconds where the user is waiting for the end."""

QUIET = 0.3
"""Seconds without output after which an ended command is done, though a child holds its output open."""

LAST_WORDS = 2.0
"""Seconds for which the output of such a child is read, at most."""

TOLD_SECONDS = 5.0
"""Seconds to wait for a sandbox to report its first process."""

MARK = "EVERLONG_COMMAND"
"""The variable that marks every process of a command, even one that has left its process group."""

MOST_ROUNDS = 10

_TICK = 0.02


class Collector:
    """The output so far: its first bytes, its last ones, and their total number."""

    def __init__(self, heard: Callable[[bytes], None] | None = None) -> None:
        self._heard = heard
        self._first = bytearray()
        self._last: deque[bytes] = deque()
        self._last_size = 0
        self._lock = threading.Lock()
        self.total = 0
        self.is_open = True
        self.newest = time.monotonic()

    def add(self, data: bytes) -> None:
        """Add output, unless the collector is closed."""
        with self._lock:
            if not self.is_open:
                return
            self.total += len(data)
            self.newest = time.monotonic()
            room = FIRST_BYTES - len(self._first)
            self._first += data[:room]
            if rest := data[room:] if room > 0 else data:
                self._last.append(rest)
                self._last_size += len(rest)
                while self._last_size - len(self._last[0]) >= LAST_BYTES:
                    self._last_size -= len(self._last.popleft())
        if self._heard is not None:
            self._heard(data)

    def close(self) -> bytes:
        """Close the collector, and return the kept output, with a line where some was left out."""
        with self._lock:
            self.is_open = False
            last = b"".join(self._last)[-LAST_BYTES:]
            left_out = self.total - len(self._first) - len(last)
            gap = f"\n[… {left_out:,} bytes were not kept …]\n".encode() if left_out else b""
            return bytes(self._first) + gap + last


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The outcome of a command."""

    output: bytes
    code: int | None
    """Its exit code, negative for the signal that ended it; None where `run` stopped it."""
    end: Literal["exited", "time", "interrupt"]
    has_child: bool
    """True if a process that it started still runs and holds its output open."""
    seconds: float
    is_all_ended: bool = False
    """True if certainly no process of the command is left."""
    has_inside: bool = False
    """True while a process of the sandbox still runs."""


Wrap = Callable[[list[str], int], list[str]]
"""Returns the command line that runs another one in a sandbox, which reports its first process to a descriptor."""


def run(
    command: str,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    interrupted: threading.Event,
    wrap: Wrap | None = None,
    heard: Callable[[bytes], None] | None = None,
) -> ProcessResult:
    """Run a shell command to its end, its time limit or the user's interrupt, whichever comes first.

    Args:
        command: the command, in the syntax of the shell.
        cwd: its working directory.
        env: its environment.
        timeout: the seconds that it may take.
        interrupted: set when the user wants it to stop.
        wrap: puts it into a sandbox.
        heard: called with the output as it comes, in another thread.
    """
    began = time.monotonic()
    job = _Command(command, cwd, env, wrap, heard)
    try:
        end = _wait(job.process, began + timeout, interrupted)
        if end != "exited":
            job.stop(HASTE if end == "interrupt" else GRACE)
    except BaseException:  # a keyboard interrupt must leave nothing running
        job.stop(GRACE)
        job.let_go()
        raise
    job.listen()
    code = job.process.returncode if end == "exited" else None
    is_all_ended = end != "exited" and job.first is not None
    has_inside = job.has_inside()
    job.let_go()
    has_child, seconds = job.reader.is_alive(), time.monotonic() - began
    return ProcessResult(job.collector.close(), code, end, has_child, seconds, is_all_ended, has_inside)


class _Command:
    """A running command, and the thread that reads its output.

    The thread goes on reading after `run` returns, so that a server in the background is not killed by its own log.
    """

    def __init__(
        self,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        wrap: Wrap | None,
        heard: Callable[[bytes], None] | None,
    ) -> None:
        self.collector = Collector(heard)
        self._mark = secrets.token_hex(16)
        self._read_end, write_end = os.pipe()
        try:
            self.process, self.first = _start(command, cwd, {**env, MARK: self._mark}, wrap, write_end)
        except BaseException:
            os.close(self._read_end)
            raise
        finally:
            os.close(write_end)
        self.reader = threading.Thread(target=self._read, daemon=True, name="everlong-command")
        self.reader.start()

    def _read(self) -> None:
        with os.fdopen(self._read_end, "rb", buffering=0) as pipe:
            while data := pipe.read(65_536):
                self.collector.add(data)

    def stop(self, grace: float) -> None:
        """End the process, its group, and marked processes that have left it, after a time of grace."""
        _stop(self.process, grace)
        if self.first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
        _end_marked(self._mark)

    def has_inside(self) -> bool:
        """Return whether a process still runs in the sandbox, after a moment for those that end with the command."""
        if self.first is None:
            return False
        ended = select.poll()
        ended.register(self.first, select.POLLIN)
        return not ended.poll(QUIET * 1000)

    def let_go(self) -> None:
        """Close the descriptor of the sandbox."""
        if self.first is not None:
            os.close(self.first)
            self.first = None

    def listen(self) -> None:
        """Wait for the rest of the output, but not for ever if another process holds it open."""
        now = ended = time.monotonic()
        while self.reader.is_alive() and now < ended + LAST_WORDS:
            if now >= max(ended, self.collector.newest) + QUIET and not self._has_waiting():
                return
            self.reader.join(_TICK)
            now = time.monotonic()

    def _has_waiting(self) -> bool:
        """Return whether there is unread output, because the machine is busy."""
        if sys.platform == "win32":
            return False
        waiting = select.poll()
        try:
            waiting.register(self._read_end, select.POLLIN)
            return bool(waiting.poll(0))
        except (OSError, ValueError):  # closed just now, because all is read
            return False


def _start(
    command: str, cwd: Path, env: Mapping[str, str], wrap: Wrap | None, output: int
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start the command; return its process, and a descriptor of the first one in its sandbox, if any."""
    options: dict[str, Any] = {"cwd": cwd, "env": dict(env), "stdin": subprocess.DEVNULL}
    if sys.platform == "win32":
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        process = subprocess.Popen(  # noqa: S602 - a shell command is what was asked for, and approved
            command, shell=True, stdout=output, stderr=subprocess.STDOUT, creationflags=flags, **options
        )
        return process, None
    shell = next((path for path in ("/bin/bash", "/usr/bin/bash") if Path(path).exists()), "/bin/sh")
    line, told = [shell, "-c", command], None
    if wrap is not None:
        told, tells = os.pipe()
        line, options["pass_fds"] = wrap(line, tells), (tells,)
    try:
        # A session of its own has no terminal, so that nothing can wait there for a password.
        process = subprocess.Popen(  # noqa: S603 - as above
            line, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options
        )
    except BaseException:
        if told is not None:
            os.close(told)
        raise
    finally:
        if wrap is not None:
            os.close(tells)
    if told is None:
        return process, None
    try:
        return process, _first_process(told)
    except BaseException:  # a keyboard interrupt
        _stop(process, GRACE)
        raise


def _first_process(told: int) -> int | None:
    """Return a descriptor of the first process of a sandbox; None where the sandbox reports none."""
    text = b""
    with os.fdopen(told, "rb", buffering=0) as pipe:
        while not text.rstrip().endswith(b"}") and select.select([pipe], [], [], TOLD_SECONDS)[0]:
            if not (more := pipe.read(4_096)):
                break
            text += more
    try:
        return os.pidfd_open(int(json.loads(text)["child-pid"]))
    except (ValueError, LookupError, TypeError, OSError, AttributeError):  # it reports nothing, or is over already
        return None


def _wait(
    process: subprocess.Popen[bytes], deadline: float, interrupted: threading.Event
) -> Literal["exited", "time", "interrupt"]:
    while True:
        try:
            process.wait(_TICK)
        except subprocess.TimeoutExpired:
            if interrupted.is_set():
                return "interrupt"
            if time.monotonic() >= deadline:
                return "time"
        else:
            return "exited"


def _stop(process: subprocess.Popen[bytes], grace: float) -> None:
    """End a process and its group: first with SIGTERM, then with SIGKILL."""
    if sys.platform == "win32":
        subprocess.run(  # noqa: S603 - a number that we know
            [f"{os.environ['SYSTEMROOT']}\\System32\\taskkill.exe", "/F", "/T", "/PID", str(process.pid)],
            capture_output=True,
            check=False,
        )
        process.wait()
        return
    _signal(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    deadline = time.monotonic() + (grace if process.poll() is not None else 0)
    while time.monotonic() < deadline and _signal(process.pid, 0):  # its children may need a moment too
        time.sleep(_TICK)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _end_marked(mark: str) -> None:
    """End every process with the mark in its environment, if the system shows that."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(MOST_ROUNDS):  # an ended process may just have started another one
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # another user's, or gone
                if wanted in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return False if it is gone."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of it runs as another user; the rest got the signal
        return True
    return True
