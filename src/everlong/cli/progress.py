"""Signs of life on stderr for work that takes a while, only where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

from everlong.cli.screen import console

Item = TypeVar("Item")


def tracked(items: Sequence[Item], doing: str) -> Iterator[Item]:
    """The items one by one: with a bar that shows how far they are, or a moving sign where there is only one."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track  # noqa: PLC0415 - only where somebody watches

    watched = console(stderr=True)
    if len(items) > 1:
        yield from track(items, description=doing, console=watched, transient=True)
        return
    with watched.status(f"{doing} …"):
        yield from items
