"""The import of log files: each is read from where the last import of it ended, in parts of a few megabytes.

What is imported of a file is noted in the store (`everlong.store.log_files`). Every step can be repeated: a part that
was stored and not noted is found again by its words. So a killed import goes on where it was, and two at once do the
same work and store it once.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.cli.archive.databases import read_hermes, read_opencode
from everlong.cli.archive.formats import READERS, LogFormat, format_of_log
from everlong.errors import NotStored, TranscriptError
from everlong.store.log_files import FileStamp, KnownLog, LogFiles
from everlong.store.log_imports import LogImporter, LogOrigin, LogPlace
from everlong.wire.logs.claude_code import read_claude_code_log
from everlong.wire.logs.cline import read_cline_session, read_cline_task
from everlong.wire.logs.gemini import read_gemini_records, read_gemini_session
from everlong.wire.logs.hermes import join_lineage
from everlong.wire.logs.log import LogReader, LogRun, NeedsWhole, parse_line

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["FileImport", "LogImport", "stamp_of"]

PART = 4 << 20
"""The bytes of a log that are stored in one step."""
_MARKED = 256
"""Bytes before the place to go on at that show whether it is still the same file."""
QUIET = 2.0
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
    """Lines that are no JSON and were left out."""
    last: str | None = None
    """What became of the last conversation so far."""
    read: int = 0
    """Bytes that were read."""
    cut_off: int = 0
    """Bytes of a last line that is not complete."""
    is_complete: bool = True
    """False if the end of the file is left to a later run, because it is being written."""


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
    """The import of log files into one store."""

    def __init__(
        self,
        store: Store,
        *,
        source: str | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._files = LogFiles(store)
        self._importer = LogImporter(store)
        self._source = source
        self._on_bytes = on_bytes
        self._clock = clock

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
        known = self._files.get(name)
        if form is None:
            form = format_of_log(path)
        if form is None:
            return None
        done = FileImport("gemini" if form == "gemini-lines" else form)
        if form in READERS:
            self._add_lines(path, name, form, known, done, is_growing=is_growing)
        elif form in {"opencode", "hermes"}:
            self._add_database(path, name, form, known, done, is_growing=is_growing)
        else:
            self._add_document(path, name, form, done)
        return done

    # -- logs that grow by lines ---------------------------------------------------------------------------------------

    def _add_lines(
        self, path: Path, name: str, form: str, known: KnownLog | None, done: FileImport, *, is_growing: bool
    ) -> None:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            stamp = stamp_of(path, status)
            is_quiet = not is_growing or self._clock() - status.st_mtime >= QUIET
            origin = LogOrigin(name, status.st_mtime, self._source)
            begin = _place_to_go_on(file, known, form)
            state: dict[str, Any] = dict(known.state) if known is not None and begin else {}
            task = _LineImport(self, file, path, form, done, origin)
            try:
                task.run(state, begin, is_quiet=is_quiet)
            except (NeedsWhole, NotStored):
                file.seek(0)
                task = _LineImport(self, file, path, form, done, origin)
                task.run_whole()
            done.is_complete = is_quiet
            stamp = stamp if is_quiet else FileStamp(-1, 0, stamp.inode)
            mark = _mark_of(file, task.read_to)
            self._files.put(KnownLog(name, form, stamp, task.read_to, mark, task.state))

    # -- whole files ---------------------------------------------------------------------------------------------------

    def _add_document(self, path: Path, name: str, form: str, done: FileImport) -> None:
        status = path.stat()
        data = path.read_bytes()
        done.read = len(data)
        origin = LogOrigin(name, status.st_mtime, self._source)
        try:
            run = _read_document(path, form, data)
        except ValueError as error:
            raise TranscriptError(f"the log is no JSON: {error}; its client may be writing it") from error
        with self._store.batch():
            self._add_run(run, origin, None, done)
            self._files.put(KnownLog(name, done.client, stamp_of(path, status)))
        self._on_bytes(len(data))

    # -- databases -----------------------------------------------------------------------------------------------------

    def _add_database(
        self, path: Path, name: str, form: str, known: KnownLog | None, done: FileImport, *, is_growing: bool
    ) -> None:
        stamp = stamp_of(path)
        state = dict(known.state) if known is not None and known.client == form else {}
        origin = LogOrigin(name, stamp.mtime / 1e9, self._source)
        is_quiet = not is_growing or self._clock() - origin.written >= QUIET
        read = read_opencode if form == "opencode" else read_hermes
        try:
            for lineage, noted in read(path, state, is_quiet=is_quiet):
                state = noted
                with self._store.batch():
                    if len(lineage) == 1:
                        self._add_run(lineage[0], origin, None, done)
                    elif lineage:
                        self._add_lineage(lineage, origin, done)
        except sqlite3.Error as error:
            raise TranscriptError(f"the database cannot be read: {error}; its client may be writing it") from error
        done.read = stamp.size
        done.is_complete = is_quiet
        self._on_bytes(stamp.size)
        self._files.put(KnownLog(name, form, stamp if is_quiet else FileStamp(-1, 0, stamp.inode), 0, None, state))

    def _add_lineage(self, lineage: list[LogRun], origin: LogOrigin, done: FileImport) -> None:
        for found in self._importer.add_lineage(lineage, origin, join_lineage(lineage)):
            done.outcomes[found.outcome] += 1
            if found.outcome in {"new", "grown"} and found.session is not None:
                done.sessions.append(found.session)

    def _add_run(self, run: LogRun, origin: LogOrigin, place: LogPlace | None, done: FileImport) -> LogPlace | None:
        found, after = self._importer.add_run(run, origin, place)
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
    """The import of one log that grows by lines, from one of its places on."""

    def __init__(
        self, archive: LogImport, file: BufferedReader, path: Path, form: str, done: FileImport, origin: LogOrigin
    ) -> None:
        self._archive = archive
        self._file = file
        self._path = path
        self._form = form
        self._done = done
        self._origin = origin
        self._place: LogPlace | None = None
        self.read_to = 0
        self.state: dict[str, Any] = {}

    def run(self, state: dict[str, Any], begin: int, *, is_quiet: bool) -> None:
        """Import the lines from a place on, with what was noted there."""
        carried = state.get("carried")
        told = state.get("place")
        self._place = LogPlace.of(told) if isinstance(told, dict) else None
        self.read_to, self.state = begin, state
        before = Counter(self._done.outcomes)
        reader = self._reader(carried, begin)
        self._file.seek(begin)
        taken = begin
        for line, offset in self._lines(begin):
            self._feed(reader, line, offset)
            if offset - taken >= PART and reader.settled_offset > self.read_to:
                self._take(reader)
                taken = offset
        self._take(reader)
        if is_quiet:
            reader.finish()
            place = self._place
            for run in reader.rest():
                place = self._add(run, place)
        if self._done.outcomes == before and (self._place is not None or not begin):
            self._done.outcomes["known" if self._place is not None else "empty"] += 1

    def run_whole(self) -> None:
        """Import the log as a whole, because it goes back to earlier places."""
        self._done.outcomes.clear()
        self._done.last = None
        self._done.read = 0
        if self._form == "claude-code":
            runs, carried = read_claude_code_log(line for line, _ in self._lines(0))
        else:
            reader = self._reader(None, 0, is_whole=True)
            for line, offset in self._lines(0):
                self._feed(reader, line, offset)
            reader.finish()
            part = reader.settled()
            runs = [*part.runs, *reader.rest()]
            carried = reader.carried_at_end()
        for run in runs:
            run.goes_on = False
            run.is_total = True
        with self._archive._store.batch():  # noqa: SLF001 - one concept in two classes
            places = [self._add(run, None) for run in runs]
        if len(places) == 1 and places[0] is not None:
            self.read_to = self._end
            self.state = {"carried": carried, "place": places[0].to_dict()}

    def _reader(self, carried: dict[str, Any] | None, begin: int, *, is_whole: bool = False) -> LogReader:
        reader = READERS[self._form](carried, begin, is_whole=is_whole)
        reader.folder = str(self._path.absolute().parent)
        return reader

    def _lines(self, offset: int) -> Iterator[tuple[bytes, int]]:
        """Yield the complete lines from the file's current place on, with their places."""
        told = 0
        for line in self._file:
            if not line.endswith(b"\n") and not _is_complete(line, self._form):
                self._done.cut_off = len(line)
                break
            yield line, offset
            offset += len(line)
            told += len(line)
            if told > 1 << 20:
                self._archive._on_bytes(told)  # noqa: SLF001 - as above
                told = 0
        self._archive._on_bytes(told)  # noqa: SLF001 - as above
        self._end = offset

    def _feed(self, reader: LogReader, line: bytes, offset: int) -> None:
        self._done.read += len(line)
        if not line.strip() and self._form != "aider":
            return
        try:
            reader.feed(line, offset)
        except ValueError:
            self._done.broken += 1

    def _take(self, reader: LogReader) -> None:
        """Store what no later line can change, and note how far that is."""
        part = reader.settled()
        if part.offset <= self.read_to and not part.runs:
            return
        with self._archive._store.batch():  # noqa: SLF001 - as above
            for run in part.runs:
                self._place = self._add(run, self._place)
            self.read_to = part.offset
            self.state = {"carried": part.carried}
            if self._place is not None and part.carried.get("is_begun"):
                self.state["place"] = self._place.to_dict()
            mark = _mark_of(self._file, self.read_to, keeps=True)
            self._archive._files.put(  # noqa: SLF001 - as above
                KnownLog(self._origin.file, self._form, FileStamp(-1, 0, ""), self.read_to, mark, self.state)
            )

    def _add(self, run: LogRun, place: LogPlace | None) -> LogPlace | None:
        return self._archive._add_run(run, self._origin, place, self._done)  # noqa: SLF001


def _is_complete(line: bytes, form: str) -> bool:
    """Return whether a last line without its end is complete all the same: half an object is no object."""
    if form == "aider":
        return False
    try:
        return isinstance(parse_line(line), dict)
    except ValueError:
        return False


def _place_to_go_on(file: BufferedReader, known: KnownLog | None, form: str) -> int:
    """Return the place up to which a file is imported; 0 if it is another file by now."""
    if known is None or known.client != form or not known.read_to:
        return 0
    size = os.fstat(file.fileno()).st_size
    is_same = size >= known.read_to and known.mark is not None and _mark_of(file, known.read_to) == known.mark
    return known.read_to if is_same else 0


def _mark_of(file: BufferedReader, place: int, *, keeps: bool = False) -> bytes | None:
    """Return a hash of the first bytes of a file and of those before a place."""
    if not place:
        return None
    here = file.tell() if keeps else 0
    digest = hashlib.blake2b(digest_size=16)
    file.seek(0)
    digest.update(file.read(min(_MARKED, place)))
    file.seek(max(0, place - _MARKED))
    digest.update(file.read(min(_MARKED, place)))
    if keeps:
        file.seek(here)
    return digest.digest()


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
    value = parse_line(data)
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
    facts = next((one for one in tasks if isinstance(one, dict) and one.get("id") == ident), None) if tasks else None
    return read_cline_task(ident, value, shown if isinstance(shown, list) else (), facts)


def _json_beside(path: Path) -> Any:
    try:
        return parse_line(path.read_bytes())
    except (OSError, ValueError):
        return None


def _with_project(run: LogRun, path: Path) -> LogRun:
    """Return a session of Gemini CLI with the folder and the parent that its place tells."""
    facts = run.facts
    chats = next((one for one in path.parents if one.name == "chats"), None)
    if chats is not None and facts.folder is None:
        try:
            folder = (chats.parent / ".project_root").read_text("utf-8").strip()
        except (OSError, ValueError):
            folder = ""
        facts = replace(facts, folder=folder or None)
    if chats is not None and facts.agent is not None and path.parent != chats:
        facts = replace(facts, works_for=path.parent.name)
    run.facts = facts
    return run
