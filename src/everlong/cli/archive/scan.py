"""A scan of folders with logs: what has changed is imported."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select

from everlong.cli.archive.log_import import FileImport, LogImport, stamp_of
from everlong.cli.archive.places import AIDER, LogFolder
from everlong.errors import EverlongError, StoreError
from everlong.store.imports import FileStamp, LogFiles
from everlong.store.schema import session

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["Scan", "ScanResult"]

_REST = 20
"""A log that grows is read whole each time, and then rests this many times as long: that takes 5 % of a core."""

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
    sessions: list[str] = field(default_factory=list)
    """The sessions that got new messages."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Files that could not be read, with the reason."""
    broken: int = 0
    """Lines that could not be read."""


class Scan:
    """Repeated looks at folders of logs; each imports what has changed since the one before."""

    def __init__(
        self,
        store: Store,
        folders: Sequence[LogFolder],
        *,
        is_growing: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._folders = folders
        self._is_growing = is_growing
        self._files = LogFiles(store)
        self._own: set[Path] = set()
        """The logs that lie where their client keeps them."""
        self._import = LogImport(store, is_own=self._own.__contains__, clock=clock)
        self._others: dict[str, FileStamp] = {}
        """Files that are no logs, or cannot be read, as they were when that was found."""
        self._rests_until: dict[str, float] = {}
        """The moments before which logs are not read again."""

    def run(
        self,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> ScanResult:
        """Look at all folders once.

        Args:
            progress: Is told the bytes that are done, and those of all logs that have changed.
            is_stopped: Asked after each log whether to leave the others to a later run.
        """
        result = ScanResult()
        waiting = list(self._find_changed(result))
        total, done = sum(stamp.size for _, stamp in waiting), 0
        progress(0, total)
        for path, stamp in waiting:
            began = time.monotonic()
            try:
                found = self._import.add(path, is_growing=self._is_growing)
            except StoreError:
                raise
            except (OSError, EverlongError) as error:
                self._note_failure(path, stamp, error, result)
            else:
                self._note(path, stamp, found, result)
            self._rests_until[str(path.absolute())] = began + _REST * (time.monotonic() - began)
            done += stamp.size
            progress(done, total)
            if is_stopped():
                break
        return result

    def _find_changed(self, result: ScanResult) -> Iterator[tuple[Path, FileStamp]]:
        known = self._files.all_stamps()
        seen: set[str] = set()
        for folder in [*self._folders, *folders_of_conversations(self._store)]:
            for path in folder.files():
                name = str(path.absolute())
                if name in seen:
                    continue
                seen.add(name)
                if folder.is_own:
                    self._own.add(path)
                try:
                    stamp = stamp_of(path)
                except OSError:  # it was deleted in between
                    continue
                result.files += 1
                if not folder.is_own and stamp.size > _MOST_FOUND:
                    result.skipped[name] = f"it has more than {_MOST_FOUND:,} bytes, and no client has put it there"
                    continue
                is_changed = known.get(name) != stamp and self._others.get(name) != stamp
                if is_changed and self._rests_until.get(name, 0.0) <= time.monotonic():
                    yield path, stamp

    def _note_failure(self, path: Path, stamp: FileStamp, error: Exception, result: ScanResult) -> None:
        if isinstance(error, FileNotFoundError):
            return
        self._others[str(path.absolute())] = stamp
        if "has no messages" not in str(error):
            result.skipped[str(path)] = str(error)

    def _note(self, path: Path, stamp: FileStamp, found: FileImport | None, result: ScanResult) -> None:
        if found is None:
            self._others[str(path.absolute())] = stamp
            return
        result.changed += 1
        result.clients[found.client] += 1
        result.outcomes.update(found.outcomes)
        result.sessions += found.sessions
        result.broken += found.broken
