"""A terminal with a program in it: what it is told, what it shows, and a screen to look at meanwhile."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte

__all__ = ["Terminal"]

_BUSY = re.compile(r"(?<!waiting for you) · Ctrl-C")
"""In the chat's status line while it works."""


class _Screen(pyte.Screen):
    """Answers what a program asks of its terminal."""

    def __init__(self, columns: int, lines: int, reply: Any) -> None:
        super().__init__(columns, lines)
        self._reply = reply

    def write_process_input(self, data: str) -> None:
        self._reply(data)


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, command: Sequence[str], columns: int, lines: int, env: Mapping[str, str], cwd: Path) -> None:
        self.shown: list[tuple[str, bytes]] = []
        """The program's output in order: ``typed`` while a key was echoed, else ``shown``."""
        self._screen = _Screen(columns, lines, self._reply)
        self._stream = pyte.ByteStream(self._screen)
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], list(command), dict(env))  # noqa: S606 - the program that is to be recorded
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Press keys, and wait until they are echoed."""
        os.write(self._file, keys.encode())
        self._read("typed", quiet=0.03)

    def wait(self, pattern: str, seconds: float = 90.0) -> None:
        """Wait until the screen has a pattern and the program has nothing more to do."""
        wanted = re.compile(pattern, re.MULTILINE)
        ends = time.monotonic() + seconds
        while not wanted.search(self.text) or _BUSY.search(self.text):
            if time.monotonic() > ends:
                raise TimeoutError(f"no {pattern!r} on the screen:\n{self.text}")
            self._read("shown", quiet=0.05)
        self._read("shown", quiet=0.3)

    @property
    def text(self) -> str:
        """The text on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def close(self) -> None:
        """End the program."""
        os.close(self._file)
        os.kill(self._pid, signal.SIGHUP)
        os.waitpid(self._pid, 0)

    def _reply(self, data: str) -> None:
        os.write(self._file, data.encode())

    def _read(self, kind: str, quiet: float) -> None:
        while select.select([self._file], [], [], quiet)[0]:
            try:
                data = os.read(self._file, 65_536)
            except OSError:  # the program is gone
                return
            self.shown.append((kind, data))
            self._stream.feed(data)
