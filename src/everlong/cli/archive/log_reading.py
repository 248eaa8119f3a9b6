"""The reading of a log that grows by lines: its messages, packed, in steps of a few megabytes.

Reading needs no database, so that other processes can do it (`everlong.cli.archive.reading_processes`). The steps say
how far the file is read; `everlong.cli.archive.log_import` stores them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from everlong.cli.archive.formats import READERS
from everlong.config.files import open_regular
from everlong.model import HashChain, Message
from everlong.store.packing import PackedMessages, pack_messages
from everlong.wire.logs.claude_code import read_claude_code_log
from everlong.wire.logs.log import MALFORMED, LogReader, LogRun, NeedsWhole, explain_malformed, parse_line

__all__ = ["LogEnd", "LogOpened", "LogStep", "LogTask", "PackedRun", "read_steps"]

QUIET = 2.0
"""Seconds without a change after which what stands at the end of a log is taken for complete."""
_BUFFER = 1 << 18
"""Bytes that are read at once: lines are long."""
_MARKED = 256
"""Bytes before the place to go on at that show whether it is still the same file."""


class LogTask(NamedTuple):
    """A log to read."""

    path: str
    form: str
    tenant: str
    read_to: int = 0
    """The place to go on at."""
    mark: bytes | None = None
    """A hash of the bytes before that place."""
    state: dict[str, Any] | None = None
    """The state that the last import stored for this log."""
    is_growing: bool = False
    """True while the client may still write the log; its last message waits then until it is complete."""
    now: float = 0.0
    redact: Callable[[Message], Message] | None = None
    part: int = 8 << 20
    """The bytes that make one step."""
    is_whole: bool = False
    """Whether to read it from its beginning and all at once."""


class PackedRun(NamedTuple):
    """A stretch of one conversation: what is known of it, and its messages."""

    run: LogRun
    packed: PackedMessages


class LogOpened(NamedTuple):
    """The beginning of a reading: the file as it is now, and the place from which on it is read."""

    status: tuple[int, int, int, int]
    """Size, time in nanoseconds, device and inode."""
    begin: int
    is_quiet: bool
    """True if its end is taken for complete."""


@dataclass(slots=True)
class LogStep:
    """Some conversations of a log, and the place up to which the file is read with them."""

    runs: list[PackedRun]
    read: int
    """Bytes that were read since the step before."""
    offset: int | None = None
    """The place to go on at once this is stored; None for what stands at the end and may change."""
    mark: bytes | None = None
    carried: dict[str, Any] = field(default_factory=dict)
    is_whole: bool = False
    """True if this is all of the log, and steps before it do not count."""


class LogEnd(NamedTuple):
    """The end of a reading."""

    read: int
    """Bytes that were read since the last step."""
    broken: int
    """Lines that could not be read and were left out."""
    cut_off: int
    """Bytes of a last line that is not complete."""


def read_steps(task: LogTask) -> Iterator[LogOpened | LogStep | LogEnd]:
    """Yield how the file is, its steps, and the end.

    Raises:
        OSError: The file cannot be read.
        TranscriptError: It is damaged.
        MessageError: A message in it is none.
    """
    with explain_malformed(), open_regular(Path(task.path), _BUFFER) as file:
        status = os.fstat(file.fileno())
        is_quiet = not task.is_growing or task.now - status.st_mtime >= QUIET
        begin = 0 if task.is_whole else _place_to_go_on(file, task)
        yield LogOpened((status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino), begin, is_quiet)
        reading = _Reading(task, file)
        try:
            if task.is_whole:
                raise NeedsWhole  # noqa: TRY301 - the same way
            yield from reading.parts(begin, is_quiet=is_quiet)
        except NeedsWhole:
            yield reading.whole()
        yield LogEnd(reading.take_read(), reading.broken, reading.cut_off)


class _Reading:
    """The reading of one file."""

    def __init__(self, task: LogTask, file: BinaryIO) -> None:
        self._task = task
        self._file = file
        self._chain = HashChain(task.tenant)
        self._end = 0
        self._read = 0
        self.broken = 0
        self.cut_off = 0

    def take_read(self) -> int:
        """Return the bytes that were read since this was last asked."""
        read, self._read = self._read, 0
        return read

    def parts(self, begin: int, *, is_quiet: bool) -> Iterator[LogStep]:
        """Yield the lines from a place on."""
        state = self._task.state if begin and self._task.state else {}
        place = state.get("place")
        node = bytes.fromhex(place["node"]) if isinstance(place, dict) else self._chain.root().id
        reader = self._reader(state.get("carried"), begin)
        self._file.seek(begin)
        taken = read_to = begin
        for line, offset in self._lines(begin):
            self._feed(reader, line, offset)
            if offset - taken >= self._task.part and reader.settled_offset > read_to:
                step, node = self._settled(reader, node)
                yield step
                taken, read_to = offset, reader.settled_offset
        step, node = self._settled(reader, node)
        if step.runs or (step.offset or 0) > read_to:
            yield step
        if is_quiet:
            reader.finish()
            rest = reader.rest()
            if rest:
                yield LogStep(self._pack(rest, node)[0], self.take_read())

    def whole(self) -> LogStep:
        """Return the whole log, because it goes back to earlier places."""
        self._file.seek(0)
        self._read = 0
        if self._task.form == "claude-code":
            runs, carried = read_claude_code_log(line for line, _ in self._lines(0))
        else:
            reader = self._reader(None, 0, is_whole=True)
            for line, offset in self._lines(0):
                self._feed(reader, line, offset)
            reader.finish()
            runs = [*reader.settled().runs, *reader.rest()]
            carried = reader.carried_at_end()
        for run in runs:
            run.goes_on = False
            run.is_total = True
        packed, _ = self._pack(runs, self._chain.root().id)
        mark = _mark_of(self._file, self._end)
        return LogStep(packed, self.take_read(), self._end, mark, carried, is_whole=True)

    def _settled(self, reader: LogReader, node: bytes) -> tuple[LogStep, bytes]:
        """Return what no later line can change, and the node at its end."""
        part = reader.settled()
        packed, node = self._pack(part.runs, node)
        mark = _mark_of(self._file, part.offset, keeps=True)
        return LogStep(packed, self.take_read(), part.offset, mark, part.carried), node

    def _pack(self, runs: list[LogRun], node: bytes) -> tuple[list[PackedRun], bytes]:
        made: list[PackedRun] = []
        for run in runs:
            start = node if run.goes_on else self._chain.root().id
            packed = pack_messages(self._chain, start, run.messages, self._task.redact)
            run.messages = []
            made.append(PackedRun(run, packed))
            node = packed.trace.ids[-1] if packed.trace.ids else start
        return made, node

    def _reader(self, carried: dict[str, Any] | None, begin: int, *, is_whole: bool = False) -> LogReader:
        reader = READERS[self._task.form](carried, begin, is_whole=is_whole)
        reader.folder = str(Path(self._task.path).absolute().parent)
        return reader

    def _lines(self, offset: int) -> Iterator[tuple[bytes, int]]:
        """Yield the complete lines from the file's current place on, with their places."""
        for line in self._file:
            if not line.endswith(b"\n") and not _is_complete(line, self._task.form):
                self.cut_off = len(line)
                break
            self._read += len(line)
            yield line, offset
            offset += len(line)
        self._end = offset

    def _feed(self, reader: LogReader, line: bytes, offset: int) -> None:
        if line.isspace() and self._task.form != "aider":
            return
        try:
            reader.feed(line, offset)
        except MALFORMED:
            self.broken += 1


def _is_complete(line: bytes, form: str) -> bool:
    """Return whether a last line without its end is complete all the same: half an object is no object."""
    if form == "aider":
        return False
    try:
        return isinstance(parse_line(line), dict)
    except ValueError:
        return False


def _place_to_go_on(file: BinaryIO, task: LogTask) -> int:
    """Return the place up to which a file is imported; 0 if it is another file by now."""
    if not task.read_to or task.mark is None or os.fstat(file.fileno()).st_size < task.read_to:
        return 0
    return task.read_to if _mark_of(file, task.read_to) == task.mark else 0


def _mark_of(file: BinaryIO, place: int, *, keeps: bool = False) -> bytes | None:
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
