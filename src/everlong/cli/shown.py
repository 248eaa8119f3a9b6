"""What the program writes for people: nothing in it steers their terminal, whoever chose its words.

Names of folders, settings of a clone, models and tools of a transcript, an upstream's errors: all of them are others'
words. Every line goes through here, so that no command has to think of it. Colours of the program's own pass.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["echo", "echo_data", "safe", "safe_console"]

_OWN_COLOURS = re.compile(r"(\x1b\[(?:0|1|2|3[1-79]|9[1-7])m)")
"""What `click.style` puts around words here; neither can hide any."""


def safe(text: str) -> str:
    """The text with all spelled out that a terminal would obey, but colours."""
    from everlong.agent.text import visible  # noqa: PLC0415 - keeps `everlong --help` quick

    if text.isascii() and text.isprintable():
        return text
    parts = _OWN_COLOURS.split(text)
    return "".join(part if place % 2 else visible(part) for place, part in enumerate(parts))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print words for a person."""
    click.echo(safe(text), err=err, nl=nl)


def echo_data(text: str, *, nl: bool = True) -> None:
    """Print data for a program: as it is, unless a terminal is all that reads it."""
    click.echo(safe(text) if sys.stdout.isatty() else text, nl=nl)


def safe_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console for tables and pictures, with the same care."""
    from rich.console import Console, ConsoleOptions, RenderableType  # noqa: PLC0415 - keeps `everlong --help` quick
    from rich.segment import Segment  # noqa: PLC0415 - as above

    from everlong.agent.text import visible  # noqa: PLC0415 - as above

    class Careful(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for one in super().render(renderable, options):
                yield one if one.control else Segment(visible(one.text), one.style)

    return Careful(stderr=stderr, highlight=False, width=width)
