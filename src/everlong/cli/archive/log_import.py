"""The import of log files: each is read from where the last import of it ended, in parts of a few megabytes.

What is imported of a file is noted in the store (`everlong.store.log_files`). Every step can be repeated: a part that
was stored and not noted is found again by its words. So a killed import goes on where it was, and two at once do the
same work and store it once.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.cli.archive.databases import read_hermes, read_opencode
from everlong.cli.archive.formats import READERS, LogFormat, check_database, format_of_log
from everlong.cli.archive.log_reading import QUIET, LogEnd, LogOpened, LogStep, LogTask, PackedRun, read_steps
from everlong.cli.archive.places import is_clients_own
from everlong.cli.archive.reading_processes import ReadingFailed, ReadingProcesses
from everlong.config.files import open_regular
from everlong.errors import EverlongError, NotStored, StoreError, TranscriptError
from everlong.model import Message
from everlong.store.imports import ImportOrigin
from everlong.store.log_files import FileStamp, KnownLog, LogFiles
from everlong.store.log_imports import LogImporter, LogPlace
from everlong.store.packing import PackedMessages
from everlong.wire.logs.cline import read_cline_session, read_cline_task
from everlong.wire.logs.gemini import read_gemini_records, read_gemini_session
from everlong.wire.logs.hermes import join_lineage
from everlong.wire.logs.log import LogRun, dicts_in, explain_malformed, parse_line

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["FileImport", "LogImport", "stamp_of"]

PART = 8 << 20
"""The bytes of a log that are stored in one step."""
_UNREAD = FileStamp(-1, 0, "")
"""The stamp of a log that is not read to its end."""

_LONGEST_PATH = 4_096

Steps = Iterator[LogOpened | LogStep | LogEnd]


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
    last: str | None = None
    """The outcome of the last conversation so far: new, grown, known or empty."""
    read: int = 0
    """Bytes that were read."""
    cut_off: int = 0
    """Bytes of a last line that is not complete."""
    is_complete: bool = True
    """False if the end of the file is left to a later run, because it is being written."""


def _can_be_sent(redact: Callable[[Message], Message] | None) -> bool:
    """Return whether another process can clean messages as the store wants it."""
    try:
        pickle.dumps(redact)
    except Exception:  # noqa: BLE001 - a function without a name of its own
        return False
    return True


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
        on_bytes: is told how many bytes were read.
        clock: returns the time.
    """

    def __init__(
        self,
        store: Store,
        *,
        source: str | None = None,
        is_own: Callable[[Path], bool] = is_clients_own,
        is_named: Callable[[Path], bool] = lambda _: False,
        on_bytes: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.files = LogFiles(store)
        self.source = source
        self._is_own, self._is_named = is_own, is_named
        self.on_bytes = on_bytes
        self._importer = LogImporter(store)
        self._clock = clock

    def origin(self, path: Path, written: float) -> ImportOrigin:
        """Return where the conversations of a log are from; one that no client keeps there belongs to its folder."""
        name = str(path.absolute())
        if self._is_own(path):
            return ImportOrigin(name, written, self.source)
        folder = os.path.realpath(path.parent)
        return ImportOrigin(name, written, self.source, folder, is_apart=not self._is_named(path))

    def add(self, path: Path, *, is_growing: bool = False, form: LogFormat | None = None) -> FileImport | None:
        """Import what is new in a file; return None if it is no log of a client that is known.

        Args:
            path: The file.
            is_growing: Whether the client may be writing it now: then its last message waits until it is complete.
            form: Its format, where that is known.

        Raises:
            OSError: The file cannot be read.
            TranscriptError: It is damaged.
        """
        name = str(path.absolute())
        known = self.files.get(name)
        if form is None:
            form = format_of_log(path)
        if form is None:
            return None
        done = FileImport("gemini" if form == "gemini-lines" else form)
        if form in READERS:
            task = self._task(name, form, known, is_growing=is_growing)
            self._add_lines(task, read_steps(task), done)
        elif form in {"opencode", "hermes"}:
            self._add_database(path, name, form, known, done, is_growing=is_growing)
        else:
            self._add_document(path, name, form, done)
        return done

    def add_all(
        self, paths: Iterable[Path], *, is_growing: bool = False, processes: int = 0
    ) -> Generator[tuple[Path, FileImport | OSError | EverlongError | None], None, None]:
        """Import what is new in some files; yield each with its outcome, with None if it is no log, or with its error.

        Args:
            paths: The files, in the order in which they are stored.
            is_growing: Whether their clients may be writing them now.
            processes: The number of processes that read ahead; without any, this one reads each when it is its turn.

        Raises:
            StoreError: The store cannot be written.
        """
        if not processes or not _can_be_sent(self.store.redact):
            for path in paths:
                yield path, self._try(partial(self.add, path, is_growing=is_growing))
            return
        database = self.store.database
        readers = ReadingProcesses(processes, on_wait=database.commit_batch)
        waiting: deque[tuple[Path, Callable[[], FileImport | None]]] = deque()
        left = iter(paths)
        try:
            with database.batch():  # committed while a reader is waited for, and twice a second
                while True:
                    for path in islice(left, 2 * processes - len(waiting)):
                        waiting.append((path, self._begin(path, readers, is_growing=is_growing)))
                    if not waiting:
                        return
                    path, finish = waiting.popleft()
                    yield path, self._try(finish)
        finally:
            readers.close()

    def _begin(self, path: Path, readers: ReadingProcesses, *, is_growing: bool) -> Callable[[], FileImport | None]:
        """Have a log read ahead, if it grows by lines; return the function that imports it."""

        def here() -> FileImport | None:
            self.store.database.commit_batch()  # nobody waits while this process reads
            return self.add(path, is_growing=is_growing)

        try:
            form = format_of_log(path)
        except OSError:
            return here
        if form is None or form not in READERS:
            return here
        name = str(path.absolute())
        task = self._task(name, form, self.files.get(name), is_growing=is_growing)
        steps = readers.submit(task)

        def finish() -> FileImport | None:
            done = FileImport(form)
            try:
                self._add_lines(task, steps, done)
            except ReadingFailed:
                return here()
            return done

        return finish

    @staticmethod
    def _try(finish: Callable[[], FileImport | None]) -> FileImport | OSError | EverlongError | None:
        try:
            return finish()
        except StoreError:
            raise
        except (OSError, EverlongError) as error:
            return error

    # -- logs that grow by lines ---------------------------------------------------------------------------------------

    def _task(self, name: str, form: str, known: KnownLog | None, *, is_growing: bool) -> LogTask:
        task = LogTask(name, form, self.store.tenant, is_growing=is_growing, now=self._clock())
        task = task._replace(redact=self.store.redact, part=PART)
        if known is None or known.client != form:
            return task
        return task._replace(read_to=known.read_to, mark=known.mark, state=dict(known.state))

    def _add_lines(self, task: LogTask, steps: Steps, done: FileImport) -> None:
        try:
            _LineImport(self, task, done).run(steps)
        except NotStored:  # what the log goes on with was deleted
            for _ in steps:
                pass
            task = task._replace(is_whole=True)
            _LineImport(self, task, done).run(read_steps(task))

    # -- whole files ---------------------------------------------------------------------------------------------------

    def _add_document(self, path: Path, name: str, form: str, done: FileImport) -> None:
        with open_regular(path) as file:
            status, data = os.fstat(file.fileno()), file.read()
        done.read = len(data)
        origin = self.origin(path, status.st_mtime)
        with explain_malformed():
            run = _read_document(path, form, data)
        with self.store.batch():
            self.add_run(run, origin, None, done)
            self.files.put(KnownLog(name, done.client, stamp_of(path, status)))
        self.on_bytes(len(data))

    # -- databases -----------------------------------------------------------------------------------------------------

    def _add_database(
        self, path: Path, name: str, form: str, known: KnownLog | None, done: FileImport, *, is_growing: bool
    ) -> None:
        check_database(path)
        stamp = stamp_of(path)
        state = dict(known.state) if known is not None and known.client == form else {}
        origin = self.origin(path, stamp.mtime / 1e9)
        is_quiet = not is_growing or self._clock() - origin.written >= QUIET
        read = read_opencode if form == "opencode" else read_hermes
        try:
            for lineage, noted in read(path, state, is_quiet=is_quiet):
                state = noted
                with self.store.batch():
                    if len(lineage) == 1:
                        self.add_run(lineage[0], origin, None, done)
                    elif lineage:
                        self._add_lineage(lineage, origin, done)
        except sqlite3.Error as error:
            raise TranscriptError(f"the database cannot be read: {error}; its client may be writing it") from error
        done.read = stamp.size
        done.is_complete = is_quiet
        self.on_bytes(stamp.size)
        self.files.put(KnownLog(name, form, stamp if is_quiet else FileStamp(-1, 0, stamp.inode), 0, None, state))

    def _add_lineage(self, lineage: list[LogRun], origin: ImportOrigin, done: FileImport) -> None:
        for found in self._importer.add_lineage(lineage, origin, join_lineage(lineage)):
            done.outcomes[found.outcome] += 1
            if found.outcome in {"new", "grown"} and found.session is not None:
                done.sessions.append(found.session)

    def add_run(
        self,
        run: LogRun,
        origin: ImportOrigin,
        place: LogPlace | None,
        done: FileImport,
        packed: PackedMessages | None = None,
    ) -> LogPlace | None:
        """Store a run of a conversation and note what became of it; return the place where it ends."""
        found, after = self._importer.add_run(run, origin, place, packed)
        if not run.goes_on or done.last is None:
            done.outcomes[found.outcome] += 1
            done.last = found.outcome
        elif done.last == "known" and found.outcome == "grown":
            done.outcomes["known"] -= 1
            done.outcomes["grown"] += 1
            done.last = "grown"
        if found.outcome in {"new", "grown"} and found.session is not None:
            done.sessions.append(found.session)
        return after


class _LineImport:
    """The import of one log that grows by lines, step by step."""

    def __init__(self, archive: LogImport, task: LogTask, done: FileImport) -> None:
        self._archive = archive
        self._task = task
        self._done = done
        self._origin = ImportOrigin(task.path, 0.0)
        self._place: LogPlace | None = None
        self._known = KnownLog(task.path, task.form, _UNREAD)

    def run(self, steps: Steps) -> None:
        """Store the steps, and note how far the log is imported."""
        done = self._done
        done.outcomes.clear()
        done.last, done.read, done.broken, done.cut_off = None, 0, 0, 0
        opened = next(iter(steps))
        assert isinstance(opened, LogOpened)  # noqa: S101 - it comes first
        size, mtime, device, inode = opened.status
        self._origin = self._archive.origin(Path(self._task.path), mtime / 1e9)
        if opened.begin:
            state = self._task.state or {}
            told = state.get("place")
            self._place = LogPlace.of(told) if isinstance(told, dict) else None
            self._known = replace(self._known, read_to=opened.begin, mark=self._task.mark, state=state)
        is_whole = False
        for step in steps:
            if isinstance(step, LogOpened):
                continue
            done.read += step.read
            self._archive.on_bytes(step.read)
            if isinstance(step, LogEnd):
                done.broken, done.cut_off = step.broken, step.cut_off
            elif step.is_whole:
                is_whole = True
                self._take_whole(step)
            else:
                self._take(step)
        if not is_whole and not done.outcomes and (self._place is not None or not opened.begin):
            done.outcomes["known" if self._place is not None else "empty"] += 1
        done.is_complete = opened.is_quiet
        ident = f"{device}:{inode}"
        stamp = FileStamp(size, mtime, ident) if opened.is_quiet else FileStamp(-1, 0, ident)
        self._archive.files.put(replace(self._known, stamp=stamp))

    def _take(self, step: LogStep) -> None:
        """Store a step, and note how far that is unless it may still change."""
        with self._archive.store.batch():
            place = self._place
            for one in step.runs:
                place = self._add(one, place)
            if step.offset is None:
                return
            self._place = place
            state: dict[str, Any] = {"carried": step.carried}
            if place is not None and step.carried.get("is_begun"):
                state["place"] = place.to_dict()
            self._known = replace(self._known, read_to=step.offset, mark=step.mark, state=state)
            self._archive.files.put(self._known)

    def _take_whole(self, step: LogStep) -> None:
        """Store a log that goes back to earlier places."""
        done = self._done
        done.outcomes.clear()
        done.last, done.read = None, step.read
        with self._archive.store.batch():
            for one in step.runs:
                if one.run.is_abandoned:  # before the branch that goes on, as it was said
                    self._add(one, None)
            places = [self._add(one, None) for one in step.runs if not one.run.is_abandoned]
        self._known = KnownLog(self._task.path, self._task.form, _UNREAD)
        if len(places) == 1 and places[0] is not None:
            state = {"carried": step.carried, "place": places[0].to_dict()}
            self._known = replace(self._known, read_to=step.offset or 0, mark=step.mark, state=state)

    def _add(self, one: PackedRun, place: LogPlace | None) -> LogPlace | None:
        return self._archive.add_run(one.run, self._origin, place, self._done, one.packed)


def _read_document(path: Path, form: str, data: bytes) -> LogRun:
    if form == "gemini-lines":
        entries = []
        for line in data.split(b"\n"):
            try:
                entry = parse_line(line) if line.strip() else None
            except ValueError:
                continue
            if isinstance(entry, dict):
                entries.append(entry)
        return _with_project(read_gemini_records(entries), path)
    try:
        value = parse_line(data)
    except ValueError as error:
        raise TranscriptError(f"the log is no JSON: {error}; its client may be writing it") from error
    if form == "gemini":
        return _with_project(read_gemini_session(value), path)
    if isinstance(value, dict):
        stem = path.name.removesuffix(".messages.json")
        beside = _json_beside(path.with_name(f"{stem}.json")) or _json_beside(
            path.with_name(f"{path.parent.name}.json")
        )
        return read_cline_session(value, beside if isinstance(beside, dict) else None)
    shown = _json_beside(path.with_name("ui_messages.json"))
    tasks = _json_beside(path.parents[2] / "state" / "taskHistory.json") if len(path.parents) > 2 else None
    ident = path.parent.name
    facts = next((one for one in dicts_in(tasks) if one.get("id") == ident), None)
    return read_cline_task(ident, value, dicts_in(shown), facts)


def _json_beside(path: Path) -> Any:
    try:
        with open_regular(path) as file:
            return parse_line(file.read())
    except (OSError, ValueError):
        return None


def _with_project(run: LogRun, path: Path) -> LogRun:
    """Return a session of Gemini CLI with the folder and the parent that its place tells."""
    facts = run.facts
    chats = next((one for one in path.parents if one.name == "chats"), None)
    if chats is not None and facts.folder is None:
        try:
            with open_regular(chats.parent / ".project_root") as file:
                folder = file.read(_LONGEST_PATH).decode("utf-8").strip()
        except (OSError, ValueError):
            folder = ""
        facts = replace(facts, folder=folder or None)
    if chats is not None and facts.agent is not None and path.parent != chats:
        facts = replace(facts, works_for=path.parent.name)
    run.facts = facts
    return run
