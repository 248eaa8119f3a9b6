"""A pause between two screens: it ends by itself, any key ends it at once, and the space bar makes it stay."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.control import Control
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Pause"]

_HINT = "any key: next · space: wait"
_WAITING = "any key: next"


class Pause:
    """A pause of some seconds.

    Args:
        seconds: How long it lasts if no key is pressed.
        out: The terminal, for a line that says which keys there are.
    """

    def __init__(self, seconds: float, out: Console) -> None:
        self._seconds = seconds
        self._out = out

    def __call__(self) -> None:
        """Wait."""
        with _keys() as is_readable:
            if not is_readable:
                time.sleep(self._seconds)
                return
            self._hint(_HINT)
            if _key_within(self._seconds) == b" ":
                self._hint(_WAITING)
                _key_within(None)
            self._hint("")

    def _hint(self, text: str) -> None:
        self._out.control(Control.move_to_column(0))
        self._out.print(Text(f"{text:<{len(_HINT)}}", style="dim"), end="")
        self._out.control(Control.move_to_column(0))


if sys.platform == "win32":
    import msvcrt

    @contextmanager
    def _keys() -> Iterator[bool]:
        yield sys.stdin.isatty()

    def _key_within(seconds: float | None) -> bytes:
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            if msvcrt.kbhit():
                return msvcrt.getch()
            time.sleep(0.05)
        return b""

else:
    import os
    import select
    import termios
    import tty

    @contextmanager
    def _keys() -> Iterator[bool]:
        """Let single keys through while the block runs; yield whether there is a keyboard."""
        if not sys.stdin.isatty():
            yield False
            return
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
        tty.setcbreak(number, termios.TCSADRAIN)
        try:
            yield True
        finally:
            termios.tcsetattr(number, termios.TCSADRAIN, before)

    def _key_within(seconds: float | None) -> bytes:
        """Return the key that is pressed within some seconds; empty if none is."""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 64) if ready else b""
