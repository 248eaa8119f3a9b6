"""The terminal that a person looks at, given only what it shows: every command writes through here.

Titles, names, messages and errors may hold what a terminal obeys, what turns words round, or what cannot be seen. So
while a command runs, standard output and standard error spell such characters out wherever they are a terminal. Colours
of our own go through `styled` and `console`. In a pipe everything stays as it is.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "is_guarded", "show_in_pager", "spelling_out", "styled", "unguarded"]

_OURS = f"\ufdd0{secrets.token_hex(8)}\ufdd1"
"""Stands for the escape character in colours of our own; nobody else knows it."""


class _Screen:
    """A stream to a terminal."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text with what a terminal would obey spelled out."""
        if not isinstance(text, str):
            raise TypeError(f"a terminal is given text, and no {type(text).__name__}")
        self.terminal.write(_spelled_out(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


@contextmanager
def spelling_out() -> Iterator[None]:
    """Guard what is a terminal of standard output and standard error while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_guard(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def unguarded() -> Iterator[None]:
    """Hand over the terminal itself, to something that draws on it and sees to what it shows."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_terminal_of(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def is_guarded(stream: object) -> bool:
    """Return whether a stream spells out what its terminal would obey."""
    return isinstance(stream, _Screen)


def styled(text: str, **style: Any) -> str:
    """Return a text in a colour, as `click.style` does."""
    made = click.style(text, **style)
    if not is_guarded(sys.stdout):
        return made
    begun, found, ended = made.partition(text) if text else (made, "", "")
    return begun.replace("\x1b", _OURS) + found + ended.replace("\x1b", _OURS)


def console(*, stderr: bool = False, **options: Any) -> Console:
    """Return a console of rich that shows only what can be seen."""
    from rich.console import Console  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.segment import Segment  # noqa: PLC0415 - as above

    from everlong.agent.text import visible  # noqa: PLC0415 - as above

    class ScreenConsole(Console):
        """A console whose texts are spelled out."""

        def render(self, renderable: Any, options: Any = None) -> Any:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible(text), style, control)

    stream = _terminal_of(sys.stderr if stderr else sys.stdout)
    is_terminal = is_guarded(sys.stderr if stderr else sys.stdout)
    return (ScreenConsole if is_terminal or stream.isatty() else Console)(
        file=stream if is_terminal else None, stderr=stderr, **options
    )


def show_in_pager(texts: Iterable[str]) -> None:
    """Show texts one after the other, in the pager where somebody looks."""
    click.echo_via_pager(map(_spelled_out, texts) if is_guarded(sys.stdout) else texts)


def _spelled_out(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    from everlong.agent.text import visible  # noqa: PLC0415 - keeps `everlong --help` quick

    return "\x1b".join(map(visible, text.split(_OURS)))


def _guard(stream: TextIO) -> TextIO:
    if is_guarded(stream) or not _is_terminal(stream):
        return stream
    return cast("TextIO", _Screen(stream))


def _terminal_of(stream: TextIO) -> TextIO:
    return stream.terminal if isinstance(stream, _Screen) else stream


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
