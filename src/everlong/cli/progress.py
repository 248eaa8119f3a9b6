"""A progress bar on stderr for work over many conversations, only where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def tracked(items: Sequence[Item], doing: str) -> Iterator[Item]:
    """The items one by one, with a bar that shows how far they are."""
    if len(items) < 2 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console  # noqa: PLC0415 - only where a bar is shown
    from rich.progress import track  # noqa: PLC0415 - as above

    yield from track(items, description=doing, console=Console(stderr=True), transient=True)
