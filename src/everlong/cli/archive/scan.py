"""The folders in which clients keep their logs, and a scan of them: what has changed is imported."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select

from everlong.cli.archive.formats import format_of_log
from everlong.cli.archive.log_import import FileImport, LogImport, stamp_of
from everlong.errors import EverlongError
from everlong.store.log_files import FileStamp, LogFiles
from everlong.store.schema import session

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["LogFolder", "Scan", "ScanResult", "days_until_deletion", "log_folders", "unarchived_files"]

_AIDER = ".aider.chat.history.md"
_VSCODE = "saoudrizwan.claude-dev"
_CLEANUP_DAYS = 30
"""The days after which Claude Code deletes a log, unless it is told another number."""
_DATABASES = frozenset({".db", ".sqlite"})
_READ_AHEAD_FROM = 24_000_000
"""Bytes of changed logs from which on other processes read them: to start those takes as long as to read so much."""
_PROCESSES = 2
"""The most processes that read; two are as quick as one that stores."""


class LogFolder(NamedTuple):
    """A folder with the logs of one client."""

    client: str
    path: Path
    patterns: tuple[str, ...]

    def files(self) -> Iterator[Path]:
        """Yield its logs; the logs of sub-agents come after those of whom they work for."""
        found = {path for pattern in self.patterns for path in self.path.glob(pattern)}
        yield from sorted(found, key=lambda path: (len(path.parts), path))


def log_folders(env: Mapping[str, str] | None = None, home: Path | None = None) -> list[LogFolder]:
    """Return the folders in which clients keep their logs, whether they are there or not."""
    own = os.environ if env is None else env
    house = Path.home() if home is None else home

    def place(variable: str, default: Path) -> Path:
        return Path(own[variable]).expanduser() if own.get(variable, "").strip() else default

    data = place("XDG_DATA_HOME", house / ".local" / "share")
    config = house / "Library" / "Application Support" if sys.platform == "darwin" else house / ".config"
    codex = place("CODEX_HOME", house / ".codex")
    editors = (config / name / "User" / "globalStorage" / _VSCODE for name in ("Code", "VSCodium", "Cursor"))
    return [
        LogFolder("claude-code", place("CLAUDE_CONFIG_DIR", house / ".claude") / "projects", ("**/*.jsonl",)),
        LogFolder("codex", codex, ("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl")),
        LogFolder("opencode", data / "opencode", ("opencode*.db",)),
        LogFolder("gemini", house / ".gemini" / "tmp", ("*/chats/**/*.json", "*/chats/**/*.jsonl")),
        LogFolder("pi", place("PI_CODING_AGENT_DIR", house / ".pi" / "agent"), ("sessions/**/*.jsonl",)),
        LogFolder("cline", place("CLINE_DIR", house / ".cline") / "data", ("sessions/*/*.messages.json",)),
        *(LogFolder("cline", folder, ("tasks/*/api_conversation_history.json",)) for folder in editors),
        LogFolder("aider", house, (_AIDER,)),
        LogFolder("hermes", place("HERMES_HOME", house / ".hermes"), ("state.db",)),
    ]


def folders_of_conversations(store: Store) -> list[LogFolder]:
    """Return the folders that stored conversations work in; aider keeps its history in the folder itself."""
    query = select(session.c.folder).where(session.c.tenant == store.tenant, session.c.folder.is_not(None)).distinct()
    with store.database.read() as connection:
        names = connection.execute(query).scalars().all()
    return [LogFolder("aider", Path(name), (_AIDER,)) for name in names if Path(name).is_absolute()]


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
        self._import = LogImport(store, clock=clock)
        self._others: dict[str, FileStamp] = {}
        """Files that are no logs, or cannot be read, as they were when that was found."""

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
        waiting = list(self._changed(result))
        stamps = dict(waiting)
        total = sum(stamp.size for stamp in stamps.values())
        processes = _processes(sum(stamp.size for path, stamp in waiting if path.suffix not in _DATABASES))
        done = read = 0

        def tell(count: int) -> None:
            nonlocal read
            read += count
            progress(min(done + read, total), total)

        progress(0, total)
        self._import.on_bytes = tell
        with closing(self._import.add_all(stamps, is_growing=self._is_growing, processes=processes)) as imports:
            for path, found in imports:
                self._note(path, stamps[path], found, result)
                done, read = done + stamps[path].size, 0
                progress(done, total)
                if is_stopped():
                    break
        return result

    def _changed(self, result: ScanResult) -> Iterator[tuple[Path, FileStamp]]:
        known = self._files.all_stamps()
        seen: set[str] = set()
        for folder in [*self._folders, *folders_of_conversations(self._store)]:
            for path in folder.files():
                name = str(path.absolute())
                if name in seen:
                    continue
                seen.add(name)
                try:
                    stamp = stamp_of(path)
                except OSError:  # it was deleted in between
                    continue
                result.files += 1
                if known.get(name) != stamp and self._others.get(name) != stamp:
                    yield path, stamp

    def _note(
        self, path: Path, stamp: FileStamp, found: FileImport | OSError | EverlongError | None, result: ScanResult
    ) -> None:
        if isinstance(found, FileNotFoundError):
            return
        if isinstance(found, Exception) and not _is_empty(found):
            result.skipped[str(path)] = str(found)
        if found is None or isinstance(found, Exception):
            self._others[str(path.absolute())] = stamp
            return
        result.changed += 1
        result.clients[found.client] += 1
        result.outcomes.update(found.outcomes)
        result.sessions += found.sessions
        result.broken += found.broken


def _processes(size: int) -> int:
    """Return how many processes read logs of so many bytes, besides this one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_PROCESSES, cores) if size >= _READ_AHEAD_FROM and cores > 1 else 0


def _is_empty(error: Exception) -> bool:
    return "has no messages" in str(error)


def unarchived_files(known: Mapping[str, FileStamp], folder: LogFolder) -> list[tuple[Path, float]]:
    """Return the logs of a folder that are not imported up to their end, with the times of their last change.

    Args:
        known: The stamps of the logs that are imported, by file.
        folder: The folder.
    """
    found: list[tuple[Path, float]] = []
    for path in folder.files():
        try:
            stamp = stamp_of(path)
        except OSError:
            continue
        if known.get(str(path.absolute())) != stamp and stamp.size and _is_log(path):
            found.append((path, stamp.mtime / 1e9))
    return found


def _is_log(path: Path) -> bool:
    try:
        return format_of_log(path) is not None
    except OSError:
        return False


def days_until_deletion(client: str, env: Mapping[str, str] | None = None, home: Path | None = None) -> int | None:
    """Return the days after which a client deletes its logs; None if it keeps them."""
    own = os.environ if env is None else env
    house = Path.home() if home is None else home
    if client == "claude-code":
        named = own.get("CLAUDE_CONFIG_DIR", "").strip()
        folder = Path(named).expanduser() if named else house / ".claude"
        days = _setting(folder / "settings.json", "cleanupPeriodDays")
        return int(days) if isinstance(days, int | float) and not isinstance(days, bool) else _CLEANUP_DAYS
    if client == "gemini":
        return _gemini_days(house / ".gemini" / "settings.json")
    return None


def _gemini_days(path: Path) -> int | None:
    general = _setting(path, "general")
    retention = general.get("sessionRetention") if isinstance(general, dict) else None
    told = retention if isinstance(retention, dict) else {}
    if told.get("enabled") is False:
        return None
    age = told.get("maxAge", "30d")
    scale = {"h": 1 / 24, "d": 1, "w": 7, "m": 30}
    if isinstance(age, str) and age[:-1].isdigit() and age[-1] in scale:
        return max(1, int(int(age[:-1]) * scale[age[-1]]))
    return _CLEANUP_DAYS


def _setting(path: Path, name: str) -> object:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value.get(name) if isinstance(value, dict) else None
