"""The storing process: it writes turns and index entries, so that the process that serves clients does not have to.

`StoringProcess` is the side of the gateway and takes the place of a `Writer`. It pickles the calls of recorders that
`turn_queue` and `requests` submit, and sends them over a socket; the process runs them in a `Writer` of its own and
sends the results back. So rows, titles and index entries cost the serving process nothing but the copy.

The journal is the promise. If the process ends, it is started again. Calls on their way fail as if the database were
away: their turns are in the journal, and `upkeep` stores them once. Look-ups, which may be repeated, are asked again.

The process has no credentials: it sends no requests, and keys are taken out of its environment.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from everlong.errors import StoreError, StoreUnavailable
from everlong.gateway.recorder import ConversationRecorder
from everlong.gateway.upkeep import Indexing, recorder_for
from everlong.gateway.writer import StoreWriter, Writer
from everlong.store import Store
from everlong.store.opening import redacted_message
from everlong.store.upgrade import open_database

if TYPE_CHECKING:
    from everlong.store.recognition import KnownAdditions

__all__ = ["StorePlace", "StoringProcess", "can_run", "run"]

_log = logging.getLogger("everlong.gateway")

T = TypeVar("T")

_HEADER = 8
"""Bytes that tell the length of a message between the processes."""
_BUFFER = 1 << 22
_AT_ONCE = 64
"""Calls that are sent together at most."""
_GATHER_SECONDS = 0.02
"""Seconds that a call that can wait is held back."""
_AGAIN_SECONDS = 0.1
_MOST_AGAIN_SECONDS = 5.0
"""Seconds before a process that has ended is started again: twice as long each time, up to the latter."""
_TRIES = 3
"""The number of processes that are asked the same before it counts as away."""
_LAST_SECONDS = 10.0
"""Seconds that the process may take to finish its work when the gateway stops."""
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
"""The ends of names of environment variables that hold credentials."""


_GOODBYE = None
"""The last message to the process: it finishes its work. Without it, the gateway was killed."""


class StorePlace(NamedTuple):
    """The database that the process opens."""

    where: str
    """A path or a url."""
    wait_seconds: float = 10.0
    redacts: bool = False
    """True if secrets are taken out of what is stored."""
    is_file: bool = True
    """True if only one may write at a time."""


class _Call(NamedTuple):
    """A call of a recorder's method, as it is sent."""

    number: int
    tenant: str
    api: str
    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    key: int
    is_heavy: bool


class _Result(NamedTuple):
    """The result of a call, as it is sent back."""

    number: int
    value: Any
    error: BaseException | None = None
    additions: KnownAdditions | None = None
    """The additions that clients are known to make, if they have changed."""


class _LogLine(NamedTuple):
    """A line for the gateway's log."""

    level: int
    text: str


@dataclass(slots=True)
class _Pending:
    """A call whose result has not come yet."""

    future: asyncio.Future[Any]
    recorder: ConversationRecorder
    data: bytes | None
    """The call itself, if it may be repeated."""
    tries: int = _TRIES
    """The number of processes that may still be asked."""


def can_run() -> bool:
    """Return whether this system can hand a socket on to another process."""
    return sys.platform != "win32"


def _frame(value: Any) -> bytes:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_HEADER, "big") + data


async def _read(reader: asyncio.StreamReader) -> Any:
    """Return the next message; `EOFError` if the other process is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEADER), "big")
        data = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error
    return pickle.loads(data)  # noqa: S301 - from a process of our own, over a socket that nobody else has


# -- the side of the gateway -------------------------------------------------------------------------------------------


class StoringProcess(StoreWriter):
    """A process that stores what is submitted; it is started again whenever it ends."""

    is_apart = True

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._gathered: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._output: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def is_parallel(self) -> bool:
        """True if work with different keys is done in any order."""
        return not self._place.is_file

    @property
    def waiting(self) -> int:
        """Calls whose result has not come yet."""
        return len(self._pending)

    async def start(self) -> None:
        """Start the process; calls may be submitted from now on."""
        reader = await self._open()
        self._running = asyncio.create_task(self._keep_running(reader))

    def submit(
        self,
        work: Callable[[], T],
        key: int = 0,
        *,
        can_wait: bool = False,
        is_heavy: bool = False,
        can_repeat: bool = False,
    ) -> asyncio.Future[T]:
        """Have a recorder's method run in the process: ``work`` is a `functools.partial` of it, with plain values.

        The future is done after the commit. It fails with `StoreUnavailable` if the process ends before that, unless
        the work ``can_repeat``.
        """
        recorder = getattr(work.func, "__self__", None) if isinstance(work, partial) else None
        if not isinstance(work, partial) or not isinstance(recorder, ConversationRecorder):
            raise TypeError("only a recorder's method can run in the storing process")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._is_closing or (self._output is None and not can_repeat):
            future.set_exception(StoreUnavailable("the storing process is being started again"))
            return future
        self._number += 1
        call = _Call(
            *(self._number, recorder.store.tenant, recorder.api, work.func.__name__, work.args, work.keywords),
            *(key, is_heavy),
        )
        data = _frame(call)
        self._pending[self._number] = _Pending(future, recorder, data if can_repeat else None)
        if self._output is not None:
            self._add(data, can_wait=can_wait)
        return future

    def hurry(self) -> None:
        """Send all calls that wait to share a commit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        if gathered and self._output is not None:
            self._output.write(b"".join(gathered) if len(gathered) > 1 else gathered[0])

    async def close(self) -> None:
        """Have all submitted work finished, and end the process."""
        self.hurry()
        self._is_closing = True
        if self._output is not None:
            with suppress(OSError, RuntimeError):
                self._output.write(_frame(_GOODBYE))
                self._output.write_eof()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_LAST_SECONDS)
            self._running.cancel()
        await asyncio.to_thread(self._reap, 1.0)
        self._fail_pending(keeps_repeatable=False)

    def _add(self, data: bytes, *, can_wait: bool) -> None:
        self._gathered.append(data)
        if not can_wait or len(self._gathered) >= _AT_ONCE:
            self.hurry()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self.hurry)

    # -- the process ---------------------------------------------------------------------------------------------------

    async def _open(self) -> asyncio.StreamReader:
        """Start the process, and send it the calls that are to be repeated."""
        ours, its = socket.socketpair()
        try:
            code = f"from everlong.gateway.storing import run; run({its.fileno()})"
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
                stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env={name: value for name, value in os.environ.items() if not name.upper().endswith(_SECRET)},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        reader, self._output = await asyncio.open_connection(sock=ours, limit=_BUFFER)
        self._output.write(_frame(self._place))
        for pending in self._pending.values():
            if pending.data is not None:
                self._output.write(pending.data)
        return reader

    async def _keep_running(self, reader: asyncio.StreamReader) -> None:
        pause = _AGAIN_SECONDS
        while True:
            if await self._take_results(reader):
                pause = _AGAIN_SECONDS
            self._leave()
            await asyncio.to_thread(self._reap, _LAST_SECONDS)
            if self._is_closing:
                return
            _log.error("the storing process has ended; it is started again")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MOST_AGAIN_SECONDS)
            try:
                reader = await self._open()
            except OSError as error:
                _log.error("the storing process cannot be started: %s", type(error).__name__)
                reader = asyncio.StreamReader()
                reader.feed_eof()

    async def _take_results(self, reader: asyncio.StreamReader) -> bool:
        """Take in results until the process ends; return whether there were any."""
        has_any = False
        while True:
            try:
                told = await _read(reader)
            except EOFError:
                return has_any
            except Exception as error:  # noqa: BLE001 - what cannot be read belongs to calls that fail below
                _log.error("the storing process cannot be understood: %s", type(error).__name__)
                return has_any
            has_any = True
            for one in told:
                if isinstance(one, _LogLine):
                    _log.log(one.level, "%s", one.text)
                else:
                    self._settle(one)

    def _settle(self, result: _Result) -> None:
        pending = self._pending.pop(result.number, None)
        if pending is None:
            return
        if result.additions is not None:
            pending.recorder.store.stateless.known_additions = result.additions
        if pending.future.cancelled():
            return
        if result.error is None:
            pending.future.set_result(result.value)
        else:
            pending.future.set_exception(result.error)

    def _leave(self) -> None:
        """Close the connection to a process that has ended, and fail the calls that were on their way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._gathered.clear()
        if self._output is not None:
            self._output.close()
            self._output = None
        self._fail_pending(keeps_repeatable=not self._is_closing)

    def _fail_pending(self, *, keeps_repeatable: bool) -> None:
        pending, self._pending = self._pending, {}
        for number, one in pending.items():
            one.tries -= 1
            if keeps_repeatable and one.data is not None and one.tries:
                self._pending[number] = one
            elif not one.future.done():
                one.future.set_exception(StoreUnavailable("the storing process ended before this was stored"))

    def _reap(self, seconds: float) -> None:
        """Wait for the process; kill it if it takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


# -- the process -------------------------------------------------------------------------------------------------------


def run(handle: int) -> None:
    """Be the storing process, on an inherited socket, until its other end says goodbye or is gone."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # they go to the whole group; the gateway says when to stop
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(socket.socket(fileno=handle)))


async def _serve(connection: socket.socket) -> None:
    reader, output = await asyncio.open_connection(sock=connection, limit=_BUFFER)
    told = _Told(output)
    logging.getLogger("everlong").addHandler(_Forwarding(told, asyncio.get_running_loop()))
    logging.getLogger("everlong").propagate = False
    try:
        place = await _read(reader)
        database = await _open_patiently(place)
    except EOFError:
        return
    writer = Writer(database)
    redact = redacted_message if place.redacts else None
    served = _Served(writer, told, lambda tenant: Store(database, tenant, redact=redact))
    indexing = Indexing(served.store_of, lambda: writer.waiting > 0, embeds=False)
    indexing.start()
    try:
        while (call := await _read(reader)) is not _GOODBYE:
            served.take(call)
    except EOFError:  # what is not stored yet is in the journal, from where the next gateway may be storing it already
        os._exit(1)
    writer.hurry()
    await indexing.close()
    await writer.close()
    await served.settle()
    told.flush()
    with suppress(OSError):
        await output.drain()
        output.close()
    database.close()


async def _open_patiently(place: StorePlace) -> Any:
    """Open the database, as soon as that is possible."""
    while True:
        try:
            return await asyncio.to_thread(open_database, place.where, place.wait_seconds, waits_for_disk=False)
        except (StoreError, OSError) as error:
            _log.error("the storing process cannot open the database: %s", type(error).__name__)
            await asyncio.sleep(_AGAIN_SECONDS * 10)


class _Told:
    """Messages on their way back; those of one moment go together."""

    def __init__(self, output: asyncio.StreamWriter) -> None:
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Result | _LogLine] = []

    def add(self, one: _Result | _LogLine) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(one)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._output.write(_frame(waiting))


class _Forwarding(logging.Handler):
    """A handler that has the gateway log what this process says."""

    def __init__(self, told: _Told, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._told = told
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._told.add, _LogLine(record.levelno, record.getMessage()))


@dataclass(slots=True)
class _Served:
    """The calls that this process takes."""

    writer: Writer
    told: _Told
    store_of: Callable[[str], Store]
    recorders: dict[tuple[str, str], ConversationRecorder] = field(default_factory=dict)
    under_way: set[asyncio.Future[Any]] = field(default_factory=set)
    additions: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """The additions that clients are known to make, as they were last told, pickled."""
    is_hurrying: bool = False

    def take(self, call: _Call) -> None:
        whose = (call.tenant, call.api)
        if whose not in self.recorders:
            self.recorders[whose] = recorder_for(self.store_of(call.tenant), call.api)
        recorder = self.recorders[whose]
        work = partial(getattr(recorder, call.method), *call.args, **call.options)
        done = self.writer.submit(work, call.key, can_wait=True, is_heavy=call.is_heavy)
        self.under_way.add(done)
        done.add_done_callback(partial(self._answer, call.number, whose))
        if not self.is_hurrying:  # once the calls that have come by now are taken
            self.is_hurrying = True
            done.get_loop().call_soon(self._hurry)

    def _hurry(self) -> None:
        self.is_hurrying = False
        self.writer.hurry()

    async def settle(self) -> None:
        """Wait until all calls are answered."""
        if self.under_way:
            await asyncio.wait(self.under_way)

    def _answer(self, number: int, whose: tuple[str, str], done: asyncio.Future[Any]) -> None:
        self.under_way.discard(done)
        error = done.exception()
        value = done.result() if error is None else None
        self.told.add(_Result(number, value, _sendable(error), self._changed_additions(whose)))

    def _changed_additions(self, whose: tuple[str, str]) -> KnownAdditions | None:
        known = self.recorders[whose].store.stateless.known_additions
        if not known and whose not in self.additions:
            return None
        data = pickle.dumps(known)
        if self.additions.get(whose) == data:
            return None
        self.additions[whose] = data
        return known


def _sendable(error: BaseException | None) -> BaseException | None:
    """Return an error that can be sent: itself, or one that names its class."""
    if error is None:
        return None
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever it holds
        return StoreError(f"storing failed: {type(error).__name__}")
    return error
