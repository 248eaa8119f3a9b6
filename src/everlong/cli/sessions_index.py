"""Work on the store that shows how far it is: indexing what is pending, checking everything."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from everlong.cli.screen import console

if TYPE_CHECKING:
    from everlong.store import Store

BATCH = 500

Step: TypeAlias = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@contextmanager
def bar(doing: str) -> Iterator[Step]:
    """A bar on stderr while work goes on, only where a person watches."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def index_what_is_pending(store: Store, seconds: float | None = None) -> int:
    """Index what is stored and not indexed, for so long at most; how many were left. A busy store is left alone."""
    from everlong.errors import StoreError  # noqa: PLC0415 - keeps `everlong --help` quick

    left = _pending(store)
    total = left
    until = None if seconds is None else time.monotonic() + seconds
    if not left:
        return 0
    with bar("indexing") as step:
        while left and (until is None or time.monotonic() < until):
            try:
                taken = store.searcher.index_pending(BATCH)
            except StoreError:
                if seconds is None:
                    raise
                break  # a search looks through what is not indexed, so it need not wait for the index
            if not taken:
                break
            left = max(0, left - taken)
            step(total - left, total)
    return left


def _pending(store: Store) -> int:
    from sqlalchemy import func, select  # noqa: PLC0415 - keeps `everlong --help` quick

    from everlong.store.schema import pending  # noqa: PLC0415 - as above

    with store.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(pending)).scalar_one())
