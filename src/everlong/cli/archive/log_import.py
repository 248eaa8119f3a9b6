"""The import of log files: a log that has changed is read whole, and what the store does not have is added.

The store knows messages by their words, so every step can be repeated: an import that was killed stores the rest the
next time, and two at once do the same work and store it once. What a database has told is noted in the store
(`everlong.store.imports`), so that only the sessions that have changed since are read again.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select

from everlong.agent.accounting import price_log
from everlong.cli.archive.formats import (
    LogFormat,
    check_database,
    format_of_log,
    read_log_file,
    read_opencode,
)
from everlong.cli.output import counted
from everlong.config import load_settings
from everlong.config.files import is_regular
from everlong.errors import TranscriptError
from everlong.store.imports import FileStamp, Imported, Importer, ImportOrigin, KnownLog, LogFiles
from everlong.store.schema import session

if TYPE_CHECKING:
    from everlong.store import Store

AIDER = ".aider.chat.history.md"
"""The file that aider keeps in each folder that it works in."""
_VSCODE = "saoudrizwan.claude-dev"
_MOST_FOUND = 50_000_000
"""Bytes of the largest log that a folder may bring along: it is read whole, and a small clone unpacks to gigabytes."""


class LogFolder(NamedTuple):
    """A folder with the logs of one client."""

    client: str
    path: Path
    patterns: tuple[str, ...]
    is_own: bool = True
    """True if the client keeps its logs there; False for a folder that may have been brought along."""

    def files(self) -> Iterator[Path]:
        """Yield its logs; the logs of sub-agents come after those of whom they work for.

        Only regular files count. From a folder that is not the client's own, no link leads out.
        """
        found = {path for pattern in self.patterns for path in self.path.glob(pattern)}
        top = os.path.realpath(self.path)
        for path in sorted(found, key=lambda path: (len(path.parts), path)):
            if is_regular(path) and (self.is_own or Path(os.path.realpath(path)).is_relative_to(top)):
                yield path

    def holds(self, path: str) -> bool:
        """Return whether a log with this absolute path is one of its logs."""
        for top in (os.path.abspath(self.path), os.path.realpath(self.path)):  # noqa: PTH100 - without its links
            if Path(path).is_relative_to(top):
                parts = Path(path).relative_to(top).parts
                return any(_matches(parts, pattern.split("/")) for pattern in self.patterns)
        return False


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
        LogFolder("pi", place("PI_CODING_AGENT_DIR", house / ".pi" / "agent"), ("sessions/**/*.jsonl",)),
        LogFolder("cline", place("CLINE_DIR", house / ".cline") / "data", ("sessions/*/*.messages.json",)),
        *(LogFolder("cline", folder, ("tasks/*/api_conversation_history.json",)) for folder in editors),
        LogFolder("aider", house, (AIDER,)),
    ]


def changed_logs(store: Store, folders: Sequence[LogFolder], skipped: list[dict[str, str]]) -> Iterator[Path]:
    """Yield the logs that have changed since they were imported: in folders, and in those of stored conversations.

    Args:
        store: The store.
        folders: The folders.
        skipped: gets the files that are too large.
    """
    known, seen = LogFiles(store).all_stamps(), set[str]()
    for folder in [*folders, *_folders_of_conversations(store)]:
        for path in folder.files():
            name = str(path.absolute())
            if name in seen:
                continue
            seen.add(name)
            try:
                stamp = stamp_of(path)
            except OSError:  # it was deleted in between
                continue
            if not folder.is_own and stamp.size > _MOST_FOUND:
                problem = f"it has more than {_MOST_FOUND:,} bytes, and no client has put it there"
                skipped.append({"file": name, "problem": problem})
            elif known.get(name) != stamp:
                yield path


def _folders_of_conversations(store: Store) -> list[LogFolder]:
    """Return the folders that stored conversations work in; aider keeps its history in the folder itself."""
    query = select(session.c.folder).where(session.c.tenant == store.tenant, session.c.folder.is_not(None)).distinct()
    with store.database.read() as connection:
        names = connection.execute(query).scalars().all()
    return [LogFolder("aider", Path(name), (AIDER,), is_own=False) for name in names if Path(name).is_absolute()]


def is_clients_own(path: Path) -> bool:
    """Return whether a log lies where its client keeps its logs."""
    spelled = {os.path.abspath(path), os.path.realpath(path)}  # noqa: PTH100 - the folder may be a link to another disk
    return any(folder.holds(name) for folder in log_folders() for name in spelled)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a path match those of a pattern; ``**`` stands for any number of folders."""
    if not pattern or not parts:
        return not pattern and not parts
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


_QUIET = 2.0
"""Seconds without a change after which what stands at the end of a log is taken for complete."""


@dataclass(slots=True)
class FileImport:
    """The outcome of one file."""

    client: str
    outcomes: Counter[str] = field(default_factory=Counter)
    """Conversations by what became of them: new, grown, known or empty."""
    sessions: list[str] = field(default_factory=list)
    """The sessions that got new messages."""
    broken: int = 0
    """Lines that could not be read and were left out."""
    cut_off: int = 0
    """Bytes of a last line that is not complete."""
    is_complete: bool = True
    """False if the end of the file is left to a later run, because it is being written."""

    def count(self, found: Imported) -> None:
        """Note what became of a conversation."""
        self.outcomes[found.outcome] += 1
        if found.outcome in {"new", "grown"} and found.session is not None:
            self.sessions.append(found.session)


def describe_outcomes(outcomes: Counter[str]) -> str:
    """Return how many conversations there were, and what became of them, in words."""
    words = {"new": "new", "grown": "grown", "known": "already there", "empty": "empty"}
    said = [f"{outcomes[name]:,} {word}" for name, word in words.items() if outcomes[name]]
    return counted(outcomes.total(), "conversation") + (f" ({', '.join(said)})" if said else "")


def stamp_of(path: Path, status: os.stat_result | None = None) -> FileStamp:
    """Return what shows that a file has changed; of a database, its log counts too."""
    found = path.stat() if status is None else status
    size, mtime = found.st_size, found.st_mtime_ns
    if path.suffix in {".db", ".sqlite"}:
        try:
            log = path.with_name(f"{path.name}-wal").stat()
        except OSError:
            pass
        else:
            size, mtime = size + log.st_size, max(mtime, log.st_mtime_ns)
    return FileStamp(size, mtime, f"{found.st_dev}:{found.st_ino}")


class LogImport:
    """The import of log files into one store.

    Args:
        store: the store.
        source: a name that the user gave to the source.
        is_own: returns whether a log lies where its client keeps them.
        is_named: returns whether the user has named a log, rather than the folder that it was found in; it may speak
            of any folder then.
        clock: returns the time.
    """

    def __init__(
        self,
        store: Store,
        *,
        source: str | None = None,
        is_own: Callable[[Path], bool] = is_clients_own,
        is_named: Callable[[Path], bool] = lambda _: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.files = LogFiles(store)
        self.source = source
        self._is_own, self._is_named = is_own, is_named
        self._importer = Importer(store, partial(price_log, load_settings().settings))
        self._clock = clock

    def origin(self, path: Path, written: float) -> ImportOrigin:
        """Return where the conversations of a log are from; one that no client keeps there belongs to its folder."""
        name = str(path.absolute())
        if self._is_own(path):
            return ImportOrigin(name, written, self.source)
        folder = os.path.realpath(path.parent)
        return ImportOrigin(name, written, self.source, folder, is_apart=not self._is_named(path))

    def add(self, path: Path, *, is_growing: bool = False) -> FileImport | None:
        """Import what is new in a file; return None if it is no log of a client that is known.

        Args:
            path: The file.
            is_growing: Whether the client may be writing it now: then its last message waits until it is complete.

        Raises:
            OSError: The file cannot be read.
            TranscriptError: It is damaged.
        """
        form = format_of_log(path)
        if form is None:
            return None
        done = FileImport(form)
        if form == "opencode":
            self._add_database(path, done, is_growing=is_growing)
        else:
            self._add_file(path, form, done, is_growing=is_growing)
        return done

    def _is_quiet(self, written: float, *, is_growing: bool) -> bool:
        return not is_growing or self._clock() - written >= _QUIET

    def _note(self, path: Path, stamp: FileStamp, done: FileImport, state: dict[str, int] | None = None) -> None:
        """Note that a log is imported as it is now; one that is being written is looked at again."""
        noted = stamp if done.is_complete else FileStamp(-1, 0, stamp.inode)
        self.files.put(KnownLog(str(path.absolute()), done.client, noted, state or {}))

    def _add_file(self, path: Path, form: LogFormat, done: FileImport, *, is_growing: bool) -> None:
        content = read_log_file(path, form)
        origin = self.origin(path, content.status.st_mtime)
        done.broken, done.cut_off = content.broken, content.cut_off
        done.is_complete = self._is_quiet(origin.written, is_growing=is_growing)
        with self.store.batch():
            for run in content.runs:
                if is_growing:
                    run.drop_open_reply(is_quiet=done.is_complete)
                done.count(self._importer.add_run(run, origin))
            self._note(path, stamp_of(path, content.status), done)

    def _add_database(self, path: Path, done: FileImport, *, is_growing: bool) -> None:
        check_database(path)
        stamp, known = stamp_of(path), self.files.get(str(path.absolute()))
        now = int(1_000 * self._clock())
        since = 0 if known is None else known.state.get("since", 0)
        since = 0 if since > now else since  # the clock was wrong: what has changed since then is not known
        origin = self.origin(path, stamp.mtime / 1e9)
        done.is_complete = self._is_quiet(origin.written, is_growing=is_growing)
        newest = since
        try:
            for run, changed in read_opencode(path, since, is_quiet=done.is_complete):
                newest = max(newest, min(changed, now))
                with self.store.batch():
                    done.count(self._importer.add_run(run, origin))
        except sqlite3.Error as error:
            raise TranscriptError(f"the database cannot be read: {error}; its client may be writing it") from error
        self._note(path, stamp, done, {"since": newest})
