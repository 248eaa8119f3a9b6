"""Group commit: the writes of many requests at the same time share one transaction.

A `Writer` has one thread that writes everything in order; only work that takes long has another one. Tenants take
turns, so that nobody waits for all that somebody else has to say. Work that can wait is gathered for a moment and
handed over together, because waking a thread costs more than the work. The work is a method of a `recorder` with plain
values as arguments, so that it can also be done in a process of its own.

A `StoringProcess` is such a process, and takes the place of the threads under ``everlong serve``: rows, titles and
index entries cost the process that serves clients nothing but the copy. It pickles the calls, and sends them over a
socket; the process (`run`) does them in a `Writer` of its own and sends the results back. Two equal workers that each
store for themselves were measured in its place, on two cores with sixteen clients: forks waited up to twice as long
(p99), and conversations whose requests reach both cost 1.4 times the CPU time.

The journal is the promise. If the process ends, it is started again. Calls on their way fail as if the database were
away: their turns are in the journal, and `upkeep` stores them once. The process has no credentials: it sends no
requests, and keys are taken out of its environment.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from everlong.errors import StoreBusy, StoreError, StoreUnavailable
from everlong.gateway.upkeep import Indexing, Recorders
from everlong.processes import OWN_FOLDER, own_command
from everlong.store import Store
from everlong.store.database import STEP_SECONDS
from everlong.store.opening import open_database
from everlong.store.store import redacted_message

if TYPE_CHECKING:
    from everlong.gateway.recorder import ConversationRecorder
    from everlong.store.database import Database

__all__ = ["StoreWriter", "StoringProcess", "Writer", "recorder_of", "run"]

_log = logging.getLogger("everlong.gateway")

T = TypeVar("T")

_AT_ONCE = 64
"""Writes that share a commit at most."""
_GATHER_SECONDS = 0.02
"""Seconds that a write that can wait is held back."""
_LOCKED_SECONDS = 2.0
"""Seconds to wait for another process that has locked the file; after that, turns wait in the journal."""
_REFUSE_SECONDS = 1.0
"""Seconds after a lock during which writes fail at once."""


class _Write(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]


def recorder_of(work: Callable[[], Any]) -> ConversationRecorder | None:
    """Return the recorder of which some work is a `functools.partial` of a method; None for other work."""
    found: ConversationRecorder | None = getattr(getattr(work, "func", None), "__self__", None)
    return found


class _FairQueue:
    """Writes in order, of which the tenants have one each in turn."""

    def __init__(self) -> None:
        self._writes: dict[str, deque[_Write]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._writes.values()))

    def add(self, writes: Iterable[_Write]) -> None:
        for one in writes:
            recorder = recorder_of(one.work)
            tenant = "" if recorder is None else recorder.store.tenant
            self._writes.setdefault(tenant, deque()).append(one)

    def take(self) -> _Write:
        tenant = next(iter(self._writes))
        writes = self._writes.pop(tenant)
        taken = writes.popleft()
        if writes:
            self._writes[tenant] = writes  # behind the others
        return taken


class _Lane:
    """One writing thread with its queue."""

    def __init__(self, database: Database, *, shares_commit: bool = True) -> None:
        self._database = database
        self._shares_commit = shares_commit
        self._handed: queue.SimpleQueue[list[_Write] | None] = queue.SimpleQueue()
        self._waiting = _FairQueue()
        self._is_over = False
        self._gathered: list[_Write] = []
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = 0
        self._locked: StoreBusy | None = None
        self._locked_until = 0.0
        self._thread = threading.Thread(target=self._work, name="everlong-writer", daemon=True)
        self._thread.start()

    def add(self, job: _Write, *, can_wait: bool) -> None:
        self.waiting += 1
        self._gathered.append(job)
        if not can_wait or len(self._gathered) >= _AT_ONCE:
            self.hand_over()
        elif self._timer is None:
            self._timer = job.future.get_loop().call_later(_GATHER_SECONDS, self.hand_over)

    def close(self) -> None:
        """Finish the queue and stop; called from another thread after the loop has ended."""
        self._handed.put(self._gathered)
        self._handed.put(None)
        self._thread.join()

    def hand_over(self) -> None:
        """Give the gathered writes to the thread now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        jobs, self._gathered = self._gathered, []
        if jobs:
            self._handed.put(jobs)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._is_over or self._waiting:
            self._take_in()
            results = self._commit()
            if results:
                loop = results[0][0].future.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._settle, results)

    def _take_in(self) -> None:
        """Queue everything that was handed over by now; wait for something if the queue is empty."""
        while not self._handed.empty() or not (self._waiting or self._is_over):
            jobs = self._handed.get()
            self._is_over = self._is_over or jobs is None
            self._waiting.add(jobs or [])

    def _commit(self) -> list[tuple[_Write, Any, BaseException | None]]:
        """Do the next writes, and commit them together: some, or as many as a moment allows.

        Work that is handed over meanwhile takes its turn, so that no tenant waits for a commit full of another's.
        """
        results: list[tuple[_Write, Any, BaseException | None]] = []
        until, most = time.monotonic() + STEP_SECONDS, min(_AT_ONCE, len(self._waiting))
        try:
            with self._database.batch(_LOCKED_SECONDS) if self._shares_commit else nullcontext():
                while len(results) < most and (not results or time.monotonic() < until):
                    self._take_in()
                    job = self._waiting.take()
                    try:
                        results.append((job, self._do(job), None))
                    except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                        results.append((job, None, error))
        except Exception as error:  # noqa: BLE001 - nothing was committed, so nobody may believe it
            return [(job, None, error) for job, _, _ in results]
        return results

    def _do(self, job: _Write) -> Any:
        """Do one write; right after the file was found locked, fail at once, so that not all others wait in turn."""
        if self._locked is not None and time.monotonic() < self._locked_until:
            raise StoreBusy(str(self._locked))
        try:
            return job.work()
        except StoreBusy as error:
            if self._database.backend.name == "sqlite":  # a server's locks are on rows that others do not need
                self._locked, self._locked_until = error, time.monotonic() + _REFUSE_SECONDS
            raise

    def _settle(self, results: list[tuple[_Write, Any, BaseException | None]]) -> None:
        self.waiting -= len(results)
        for job, value, error in results:
            if job.future.cancelled():
                continue
            if error is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(error)


class Writer:
    """The two writing threads of one database."""

    writes_index = False
    """True if it also writes the index."""

    def __init__(self, database: Database) -> None:
        self._lane = _Lane(database)
        self._heavy = _Lane(database, shares_commit=False)
        """The lane for writes that take so long that others would notice."""

    async def start(self) -> None:
        """Begin, in the running loop."""

    def submit(self, work: Callable[[], T], *, can_wait: bool = False, is_heavy: bool = False) -> asyncio.Future[T]:
        """Have work done, in order; the future is done after the commit.

        Work that ``can_wait`` is held back for a moment to share its commit. Work that ``is_heavy`` has a thread of its
        own, and no order with other work.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        lane = self._heavy if is_heavy else self._lane
        lane.add(_Write(work, future), can_wait=can_wait)
        return future

    def hurry(self) -> None:
        """Begin at once with all writes that wait to share a commit."""
        self._lane.hand_over()

    @property
    def waiting(self) -> int:
        """Writes waiting for the next commit."""
        return self._lane.waiting + self._heavy.waiting

    async def close(self) -> None:
        """Finish all submitted work, and stop."""
        for lane in (self._lane, self._heavy):
            await asyncio.to_thread(lane.close)


# -- a process of its own ----------------------------------------------------------------------------------------------

_AGAIN_SECONDS = 0.1
_MOST_AGAIN_SECONDS = 5.0
"""Seconds before a process that has ended is started again: twice as long each time, up to the latter."""
_LAST_SECONDS = 10.0
"""Seconds that the process may take to finish its work when the gateway stops."""
_PIECE = 1 << 18
"""Bytes of a heavy call that are sent at once."""
_SEND_BUFFER = 1 << 21
"""Bytes of the socket's buffer, so that a large request is sent in one piece."""
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the process does not hear: the gateway says when it is to stop."""
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
"""The ends of names of environment variables that hold credentials."""

_NICENESS = 5
"""Priority of the storing process, below the serving one: clients wait only for the latter."""
_OPEN_SECONDS = 1.0
"""Seconds between two tries to open the database."""

_HEADER = 8
"""Bytes that tell the length of a message."""
_BUFFER = 1 << 22
"""Bytes of messages that are read ahead."""
_GOODBYE = None
"""The last message to the process: it finishes its work. Without it, the gateway was killed."""


class _Call(NamedTuple):
    """A call of a recorder's method."""

    number: int
    tenant: str
    api: str
    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    is_heavy: bool


class _Result(NamedTuple):
    """The result of a call."""

    number: int
    value: Any
    error: BaseException | None = None


class _LogLine(NamedTuple):
    """A line for the gateway's log."""

    level: int
    text: str


def _frame(message: Any) -> list[bytes]:
    """Return a message as it is sent, in parts; large bytes in it are a part, because a copy would hold up others."""
    parts: list[bytes] = []
    pickle.Pickler(SimpleNamespace(write=parts.append), pickle.HIGHEST_PROTOCOL).dump(message)
    return [sum(map(len, parts)).to_bytes(_HEADER, "big"), *parts]


async def _read_message(reader: asyncio.StreamReader) -> Any:
    """Return the next message; `EOFError` if the other process is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEADER), "big")
        data = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error
    return pickle.loads(data)  # noqa: S301 - from a process of our own, over a socket that nobody else has


class StoringProcess:
    """A process that stores what is submitted; it is started again whenever it ends.

    Args:
        where: its database, an absolute path or a url.
        redacts: True if secrets are taken out of what is stored.
    """

    writes_index = True

    def __init__(self, where: str, *, redacts: bool = False) -> None:
        self._first_message = b"".join(_frame((where, redacts)))
        self._pending: dict[int, asyncio.Future[Any]] = {}
        """The calls whose result has not come yet."""
        self._numbers = count()
        self._sending = asyncio.Lock()
        """Locked while a heavy call is sent, bit by bit; others wait for its end."""
        self._gathered: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._output: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._sends: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """Calls whose result has not come yet."""
        return len(self._pending)

    async def start(self) -> None:
        """Start the process; calls may be submitted from now on.

        Raises:
            StoreUnavailable: it cannot be started.
        """
        try:
            reader = await self._launch()
        except OSError as error:
            raise StoreUnavailable(f"the process that stores for the gateway cannot be started: {error}") from error
        self._running = asyncio.create_task(self._keep_running(reader))

    def submit(self, work: Callable[[], T], *, can_wait: bool = False, is_heavy: bool = False) -> asyncio.Future[T]:
        """Have a recorder's method run in the process: ``work`` is a `functools.partial` of it, with plain values.

        The future is done after the commit. It fails with `StoreUnavailable` if the process ends before that.
        """
        recorder = recorder_of(work)
        if not isinstance(work, partial) or recorder is None:
            raise TypeError("only a partial of a recorder's method can run in the storing process")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._output is None or self._closing.is_set():
            future.set_exception(StoreUnavailable("the storing process is being started again"))
            return future
        number, whose = next(self._numbers), (recorder.store.tenant, recorder.api)
        self._pending[number] = future
        call = _Call(number, *whose, work.func.__name__, work.args, work.keywords, is_heavy)
        if is_heavy:
            self._sends.add(task := loop.create_task(self._send_heavy(call)))
            task.add_done_callback(self._sends.discard)
            return future
        self._gathered.append(b"".join(_frame(call)))
        if not can_wait or len(self._gathered) >= _AT_ONCE:
            self.hurry()
        elif self._timer is None:
            self._timer = loop.call_later(_GATHER_SECONDS, self.hurry)
        return future

    def hurry(self) -> None:
        """Send all calls that wait to share a commit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending.locked():
            return
        gathered, self._gathered = self._gathered, []
        if gathered and self._output is not None:
            self._output.write(b"".join(gathered))

    async def _send_heavy(self, call: _Call) -> None:
        """Send a call with so much in it that it would hold up the event loop."""
        parts = await asyncio.to_thread(_frame, call)
        async with self._sending:
            for piece in (part[at : at + _PIECE] for part in parts for at in range(0, len(part), _PIECE)):
                if self._output is None or call.number not in self._pending:
                    break  # the process has ended, and with it the call
                self._output.write(piece)
                with suppress(OSError):
                    await self._output.drain()
        self.hurry()

    async def close(self) -> None:
        """Have all submitted work finished, and end the process."""
        if self._sends:
            await asyncio.wait(self._sends, timeout=_LAST_SECONDS)
        self.hurry()
        self._closing.set()
        if self._output is not None:
            with suppress(OSError, RuntimeError):
                self._output.writelines(_frame(_GOODBYE))
                self._output.write_eof()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_LAST_SECONDS)
            self._running.cancel()
        if self._process is not None:
            self._process.kill()  # it takes too long
        await self._part()

    async def _launch(self) -> asyncio.StreamReader:
        """Start the process, and tell it its database."""
        ours, its = socket.socketpair()
        for end in (ours, its):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # which the process inherits
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                own_command("everlong.gateway.writer", str(its.fileno())),
                cwd=OWN_FOLDER,
                stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env={name: value for name, value in os.environ.items() if not name.upper().endswith(_SECRET)},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            its.close()
        reader, self._output = await asyncio.open_connection(sock=ours, limit=_BUFFER)
        self._output.write(self._first_message)
        return reader

    async def _keep_running(self, reader: asyncio.StreamReader) -> None:
        pause = _AGAIN_SECONDS
        while True:
            if await self._take_results(reader):
                pause = _AGAIN_SECONDS
            await self._part()
            while self._process is None:
                if self._closing.is_set():
                    return
                _log.error("the storing process has ended; it is started again")
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._closing.wait()
                        return
                pause = min(2 * pause, _MOST_AGAIN_SECONDS)
                with suppress(OSError):  # as soon as the system allows another process
                    reader = await self._launch()

    async def _take_results(self, reader: asyncio.StreamReader) -> bool:
        """Take in messages until the process ends; return whether there were results."""
        has_any = False
        while True:
            try:
                said: list[_Result | _LogLine] = await _read_message(reader)
            except EOFError:
                return has_any
            except Exception as error:  # noqa: BLE001 - what cannot be read belongs to calls that fail afterwards
                _log.error("the storing process cannot be understood: %s", type(error).__name__)
                return has_any
            for one in said:
                if isinstance(one, _LogLine):
                    _log.log(one.level, "%s", one.text)
                    continue
                has_any, future = True, self._pending.pop(one.number)
                if one.error is not None and not future.done():
                    future.set_exception(one.error)
                elif not future.done():
                    future.set_result(one.value)

    async def _part(self) -> None:
        """Part from a process that has ended, is not understood or takes too long; calls on their way fail."""
        if self._output is not None:
            self._output.close()
            self._output = None
        process, self._process = self._process, None
        if process is not None:
            if not self._closing.is_set():
                process.kill()  # whatever it stored from now on, the journal would store again
            await asyncio.to_thread(_reap, process)
        self._gathered = []
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(StoreUnavailable("the storing process ended before this was stored"))


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process, and kill it if it takes too long."""
    try:
        process.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# -- the process itself ------------------------------------------------------------------------------------------------


def run(handle: int) -> None:
    """Be the storing process, on an inherited socket."""
    with suppress(OSError):
        os.nice(_NICENESS)
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(socket.socket(fileno=handle)))


async def _serve(connection: socket.socket) -> None:
    reader, output = await asyncio.open_connection(sock=connection, limit=_BUFFER)
    answers = _Answers(output)
    logging.getLogger("everlong").addHandler(_Forwarding(answers))
    logging.getLogger("everlong").propagate = False
    received: asyncio.Queue[Any] = asyncio.Queue()
    is_open = asyncio.Event()
    receiving = asyncio.create_task(_receive(reader, received, is_open))
    where, redacts = await received.get()
    database = await _open_patiently(where)
    is_open.set()
    writer = Writer(database)
    recorders = Recorders(lambda tenant: Store(database, tenant, redact=redacted_message if redacts else None))
    indexing = Indexing(recorders.store_of, lambda: writer.waiting > 0, embeds=False)
    indexing.start()
    under_way: set[asyncio.Future[Any]] = set()
    while (call := await received.get()) is not _GOODBYE:
        done = _submit(writer, recorders, call)
        under_way.add(done)
        done.add_done_callback(partial(answers.add_result, call.number))
        done.add_done_callback(under_way.discard)
        if received.empty():  # the calls that have come by now share a commit
            writer.hurry()
    await receiving
    writer.hurry()
    await indexing.close()
    await writer.close()
    if under_way:
        await asyncio.wait(under_way)
    answers.flush()
    with suppress(OSError):
        await output.drain()
        output.close()
    database.close()


async def _receive(reader: asyncio.StreamReader, received: asyncio.Queue[Any], is_open: asyncio.Event) -> None:
    """Take in messages up to the last one; end the process if the gateway is gone, or if there is no database yet."""
    try:
        while (message := await _read_message(reader)) is not _GOODBYE:
            received.put_nowait(message)
    except EOFError:
        os._exit(1)
    if not is_open.is_set():
        os._exit(0)
    received.put_nowait(_GOODBYE)


async def _open_patiently(where: str) -> Database:
    """Open the database, as soon as that is possible."""
    while True:
        try:
            return await asyncio.to_thread(open_database, where, waits_for_disk=False)
        except (StoreError, OSError) as error:
            _log.error("the storing process cannot open the database: %s", type(error).__name__)
            await asyncio.sleep(_OPEN_SECONDS)


def _submit(writer: Writer, recorders: Recorders, call: _Call) -> asyncio.Future[Any]:
    """Have a call done by the writer."""
    work = getattr(recorders.of(call.tenant, call.api), call.method)
    return writer.submit(partial(work, *call.args, **call.options), can_wait=True, is_heavy=call.is_heavy)


class _Answers:
    """Messages on their way back; those of one moment go together."""

    def __init__(self, output: asyncio.StreamWriter) -> None:
        self._output = output
        self.loop = asyncio.get_running_loop()
        self._waiting: list[_Result | _LogLine] = []

    def add_result(self, number: int, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        self.add(_Result(number, done.result() if error is None else None, _sendable(error)))

    def add(self, one: _Result | _LogLine) -> None:
        if not self._waiting:
            self.loop.call_soon(self.flush)
        self._waiting.append(one)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._output.writelines(_frame(waiting))


class _Forwarding(logging.Handler):
    """A handler that has the gateway log what this process says."""

    def __init__(self, answers: _Answers) -> None:
        super().__init__(logging.WARNING)
        self._answers = answers

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the loop is closed
            line = _LogLine(record.levelno, record.getMessage())
            self._answers.loop.call_soon_threadsafe(self._answers.add, line)


def _sendable(error: BaseException | None) -> BaseException | None:
    """Return an error that can be sent: itself, or one that names its class."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever it holds
        return StoreError(f"storing failed: {type(error).__name__}")
    return error


StoreWriter: TypeAlias = Writer | StoringProcess
"""The part of a gateway that does the work of recorders, in order, and commits it."""

if __name__ == "__main__":
    from everlong.gateway.writer import run as run_process  # messages have the same classes at both ends

    run_process(int(sys.argv[1]))
