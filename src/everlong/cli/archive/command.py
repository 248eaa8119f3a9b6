"""``everlong archive``: imports the logs of other clients."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from sqlalchemy import select

from everlong.cli.archive.log_import import (
    AIDER,
    FileImport,
    LogFolder,
    LogImport,
    describe_outcomes,
    log_folders,
    stamp_of,
)
from everlong.cli.chosen_store import index_pending, open_chosen_store, print_json, store_option
from everlong.cli.output import counted, json_option, progress_bar, say
from everlong.errors import EverlongError, StoreError
from everlong.store.imports import FileStamp, LogFiles
from everlong.store.schema import session

if TYPE_CHECKING:
    from everlong.store import Store

_MOST_FOUND = 50_000_000
"""Bytes of the largest log that a folder may bring along: it is read whole, and a small clone unpacks to gigabytes."""


def folders_of_conversations(store: Store) -> list[LogFolder]:
    """Return the folders that stored conversations work in; aider keeps its history in the folder itself."""
    query = select(session.c.folder).where(session.c.tenant == store.tenant, session.c.folder.is_not(None)).distinct()
    with store.database.read() as connection:
        names = connection.execute(query).scalars().all()
    return [LogFolder("aider", Path(name), (AIDER,), is_own=False) for name in names if Path(name).is_absolute()]


@dataclass(slots=True)
class ScanResult:
    """The outcome of one scan."""

    files: int = 0
    """Logs that are there."""
    changed: int = 0
    """Logs that were read."""
    clients: Counter[str] = field(default_factory=Counter)
    """Logs that were read, by client."""
    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    """Files that could not be read, with the reason."""
    broken: int = 0
    """Lines that could not be read."""

    def add(self, found: FileImport) -> None:
        """Note the outcome of one log."""
        self.changed += 1
        self.clients[found.client] += 1
        self.outcomes.update(found.outcomes)
        self.broken += found.broken


def scan_folders(
    store: Store,
    folders: Sequence[LogFolder],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Callable[[], float] = time.time,
) -> ScanResult:
    """Import what has changed in folders of logs; a last message that its client may still be writing waits.

    Args:
        store: The store.
        folders: The folders; those that stored conversations work in are looked at, too.
        progress: Is told the bytes that are done, and those of all logs that have changed.
        clock: Returns the time.
    """
    result, own = ScanResult(), set[Path]()
    logs = LogImport(store, is_own=own.__contains__, clock=clock)
    waiting = list(_find_changed(store, folders, own, result))
    total, done = sum(stamp.size for _, stamp in waiting), 0
    for path, stamp in waiting:
        progress(done, total)
        try:
            found = logs.add(path, is_growing=True)
        except StoreError:
            raise
        except (OSError, EverlongError) as error:
            if not isinstance(error, FileNotFoundError) and "has no messages" not in str(error):
                result.skipped[str(path)] = str(error)
        else:
            if found is not None:
                result.add(found)
        done += stamp.size
    progress(done, total)
    return result


def _find_changed(
    store: Store, folders: Sequence[LogFolder], own: set[Path], result: ScanResult
) -> Iterator[tuple[Path, FileStamp]]:
    """Yield the logs that have changed; ``own`` gets those that lie where their client keeps them."""
    known = LogFiles(store).all_stamps()
    seen: set[str] = set()
    for folder in [*folders, *folders_of_conversations(store)]:
        for path in folder.files():
            name = str(path.absolute())
            if name in seen:
                continue
            seen.add(name)
            if folder.is_own:
                own.add(path)
            try:
                stamp = stamp_of(path)
            except OSError:  # it was deleted in between
                continue
            result.files += 1
            if not folder.is_own and stamp.size > _MOST_FOUND:
                result.skipped[name] = f"it has more than {_MOST_FOUND:,} bytes, and no client has put it there"
            elif known.get(name) != stamp:
                yield path, stamp


_MOST_LISTED = 20


@click.command("archive")
@json_option
@store_option
def archive_command(as_json: bool) -> None:
    """Import the logs of other clients before those delete them; only what has changed is read.

    The clients' files are never changed. Importing twice adds nothing, and a conversation that went through the gateway
    appears once.
    """
    with open_chosen_store(new=True) as store:
        with progress_bar("archiving") as step:
            result = scan_folders(store, log_folders(), step)
        for name, problem in list(result.skipped.items())[:_MOST_LISTED]:
            say(f"skipped {name}: {' '.join(problem.split())}")
        if len(result.skipped) > _MOST_LISTED:
            say(f"… and {len(result.skipped) - _MOST_LISTED:,} more files were skipped; --json lists all")
        index_pending(store)
    if as_json:
        outcomes = {name: result.outcomes[name] for name in ("new", "grown", "known", "empty")}
        told = {"files": result.files, "changed": result.changed, **outcomes, "clients": dict(result.clients)}
        print_json({**told, "broken_lines": result.broken, "skipped": result.skipped})
    say(_describe(result))
    if result.skipped:
        raise click.exceptions.Exit(1)


def _describe(result: ScanResult) -> str:
    text = f"read {result.changed:,} of {counted(result.files, 'log')}"
    text += f": {describe_outcomes(result.outcomes)}" if result.outcomes.total() else ""
    return text + (f"; {counted(result.broken, 'line')} could not be read" if result.broken else "")
