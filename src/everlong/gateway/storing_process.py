"""The storing process: it writes turns and index entries, so that the process that serves clients does not have to.

`StoringProcess` is the side of the gateway and takes the place of a `Writer`. It pickles the calls of recorders that
`turn_queue` and `requests` submit, and sends them over a socket; the process (`storing_program`) runs them in a
`Writer` of its own and sends the results back. So rows, titles and index entries cost the serving process nothing but
the copy.

Two equal workers that each store for themselves were measured in its place, on two cores with sixteen clients: forks
waited up to twice as long (p99), and conversations whose requests reach both cost 1.4 times the CPU time.

The journal is the promise. If the process ends, it is started again. Calls on their way fail as if the database were
away: their turns are in the journal, and `upkeep` stores them once. Look-ups, which may be repeated, are asked again.

The process has no credentials: it sends no requests, and keys are taken out of its environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from everlong.errors import StoreUnavailable
from everlong.gateway.writer import StoreWriter, recorder_of
from everlong.processes import OWN_FOLDER, own_command

if TYPE_CHECKING:
    from everlong.gateway.recorder import ConversationRecorder

__all__ = [
    "BUFFER",
    "GOODBYE",
    "Call",
    "Hello",
    "LaunchedProcess",
    "LogLine",
    "Result",
    "StorePlace",
    "StoringProcess",
    "can_run",
    "frame",
    "launch",
    "read_message",
]

_log = logging.getLogger("everlong.gateway")

T = TypeVar("T")

_AT_ONCE = 64
"""Calls that are sent together at most."""
_GATHER_SECONDS = 0.02
"""Seconds that a call that can wait is held back."""
_AGAIN_SECONDS = 0.1
_MOST_AGAIN_SECONDS = 5.0
"""Seconds before a process that has ended is started again: twice as long each time, up to the latter."""
_START_SECONDS = 60.0
"""Seconds that the process may take to start."""
_TRIES = 3
"""The number of processes that are asked the same before it counts as away."""
_LAST_SECONDS = 10.0
"""Seconds that the process may take to finish its work when the gateway stops."""
_STEP = 1 << 18
"""Bytes of a large call that are sent at once."""
_SEND_BUFFER = 1 << 21
"""Bytes of the socket's buffer, so that a large request is sent in one piece."""
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
"""The ends of names of environment variables that hold credentials."""


# -- messages --------------------------------------------------------------------------------------------------------

_HEADER = 8
"""Bytes that tell the length of a message."""
BUFFER = 1 << 22
"""Bytes of messages that are read ahead."""
GOODBYE = None
"""The last message to the process: it finishes its work. Without it, the gateway was killed."""


class StorePlace(NamedTuple):
    """The database that the process opens; the first message to it."""

    where: str
    """An absolute path or a url."""
    redacts: bool = False
    """True if secrets are taken out of what is stored."""


class Call(NamedTuple):
    """A call of a recorder's method."""

    number: int
    tenant: str
    api: str
    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    is_heavy: bool


class Hello(NamedTuple):
    """The first message from the process: it runs."""


class Result(NamedTuple):
    """The result of a call."""

    number: int
    value: Any
    error: BaseException | None = None


class LogLine(NamedTuple):
    """A line for the gateway's log."""

    level: int
    text: str


def frame(message: Any) -> bytes:
    """Return a message as it is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_HEADER, "big") + data


async def read_message(reader: asyncio.StreamReader) -> Any:
    """Return the next message; `EOFError` if the other process is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEADER), "big")
        data = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error
    return pickle.loads(data)  # noqa: S301 - from a process of our own, over a socket that nobody else has


# -- the gateway's side ----------------------------------------------------------------------------------------------


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


class LaunchedProcess(NamedTuple):
    """A storing process that does not know its database yet."""

    process: subprocess.Popen[bytes]
    connection: socket.socket

    def end(self) -> None:
        """End the process, if it runs: whatever it has not stored is in the journal."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def launch() -> LaunchedProcess:
    """Start a storing process, which gets ready while this one does.

    Raises:
        StoreUnavailable: it cannot be started.
    """
    ours, its = socket.socketpair()
    for end in (ours, its):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    try:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            own_command("everlong.gateway.storing_program", str(its.fileno())),
            cwd=OWN_FOLDER,
            stdin=subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
            env={name: value for name, value in os.environ.items() if not name.upper().endswith(_SECRET)},
            start_new_session=True,  # Ctrl-C is for the gateway, which ends it in order
        )
    except OSError as error:
        ours.close()
        raise StoreUnavailable(f"the process that stores for the gateway cannot be started: {error}") from error
    finally:
        its.close()
    return LaunchedProcess(process, ours)


class StoringProcess(StoreWriter):
    """A process that stores what is submitted; it is started again whenever it ends.

    Args:
        place: its database.
        launched: the process, if it was launched before.
    """

    writes_index = True

    def __init__(self, place: StorePlace, launched: LaunchedProcess | None = None) -> None:
        self._place = place
        self._launched = launched
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._gathered: list[bytes] = []
        self._large: set[asyncio.Future[None]] = set()
        self._sending = asyncio.Lock()
        self._is_busy = False
        """True while a large call is being sent."""
        self._timer: asyncio.TimerHandle | None = None
        self._output: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """Calls whose result has not come yet."""
        return len(self._pending)

    async def start(self) -> None:
        """Wait until the process runs; calls may be submitted from now on.

        Raises:
            StoreUnavailable: it does not run.
        """
        reader = await self._connect(self._launched or launch())
        self._launched = None
        try:
            async with asyncio.timeout(_START_SECONDS):
                said = await read_message(reader)
        except (EOFError, TimeoutError) as error:
            self._disconnect()
            code = await asyncio.to_thread(self._reap, 1.0)
            why = f"it ended with the code {code}" if isinstance(error, EOFError) else "it does not answer"
            raise StoreUnavailable(f"the process that stores for the gateway cannot be started: {why}") from error
        self._take(said)
        self._running = asyncio.create_task(self._keep_running(reader))

    def submit(
        self,
        work: Callable[[], T],
        *,
        can_wait: bool = False,
        is_heavy: bool = False,
        can_repeat: bool = False,
    ) -> asyncio.Future[T]:
        """Have a recorder's method run in the process: ``work`` is a `functools.partial` of it, with plain values.

        The future is done after the commit. It fails with `StoreUnavailable` if the process ends before that, unless
        the work ``can_repeat``.
        """
        recorder = recorder_of(work)
        if not isinstance(work, partial) or recorder is None:
            raise TypeError("only a partial of a recorder's method can run in the storing process")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing.is_set() or (self._output is None and not can_repeat):
            future.set_exception(StoreUnavailable("the storing process is being started again"))
            return future
        self._number += 1
        whose = (recorder.store.tenant, recorder.api)
        call = Call(self._number, *whose, work.func.__name__, work.args, work.keywords, is_heavy)
        pending = self._pending[self._number] = _Pending(future, recorder, None)
        if is_heavy:
            sending = asyncio.ensure_future(self._send_large(call, can_repeat=can_repeat))
            self._large.add(sending)
            sending.add_done_callback(self._large.discard)
            return future
        data = frame(call)
        pending.data = data if can_repeat else None
        if self._output is not None:
            self._add(data, can_wait=can_wait)
        return future

    async def _send_large(self, call: Call, *, can_repeat: bool) -> None:
        """Send a call with a large body in steps, so that clients get their turn; nothing else is sent meanwhile."""
        data = await asyncio.to_thread(frame, call)
        async with self._sending:
            pending, output = self._pending.get(call.number), self._output
            if pending is None:
                return
            pending.data = data if can_repeat else None
            self.hurry()
            self._is_busy = True
            try:
                for place in range(0, len(data), _STEP):
                    if output is None or self._output is not output:  # its successor is sent what can be repeated
                        break
                    output.write(memoryview(data)[place : place + _STEP])
                    await output.drain()
            except OSError:  # as above
                pass
            finally:
                self._is_busy = False
                self.hurry()

    def hurry(self) -> None:
        """Send all calls that wait to share a commit."""
        if self._is_busy:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        if gathered and self._output is not None:
            self._output.write(b"".join(gathered) if len(gathered) > 1 else gathered[0])

    async def close(self) -> None:
        """Have all submitted work finished, and end the process."""
        if self._large:
            await asyncio.wait(self._large, timeout=_LAST_SECONDS)
        self.hurry()
        self._closing.set()
        if self._output is not None:
            with suppress(OSError, RuntimeError):
                self._output.write(frame(GOODBYE))
                self._output.write_eof()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_LAST_SECONDS)
            self._running.cancel()
        self._disconnect()
        await asyncio.to_thread(self._reap, 1.0)
        self._fail_pending(keeps_repeatable=False)

    def _add(self, data: bytes, *, can_wait: bool) -> None:
        self._gathered.append(data)
        if not can_wait or len(self._gathered) >= _AT_ONCE:
            self.hurry()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self.hurry)

    # -- the process ---------------------------------------------------------------------------------------------------

    async def _connect(self, launched: LaunchedProcess) -> asyncio.StreamReader:
        """Tell a launched process its database, and the calls that are to be repeated."""
        self._process = launched.process
        reader, self._output = await asyncio.open_connection(sock=launched.connection, limit=BUFFER)
        self._output.write(frame(self._place))
        for pending in self._pending.values():
            if pending.data is not None:
                self._output.write(pending.data)
        return reader

    async def _keep_running(self, reader: asyncio.StreamReader) -> None:
        pause = _AGAIN_SECONDS
        while True:
            if await self._take_results(reader):
                pause = _AGAIN_SECONDS
            await self._leave()
            while self._process is None:
                if self._closing.is_set():
                    return
                _log.error("the storing process has ended; it is started again")
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._closing.wait()
                        return
                pause = min(2 * pause, _MOST_AGAIN_SECONDS)
                try:
                    reader = await self._connect(launch())
                except StoreUnavailable as error:
                    _log.error("%s", error)

    async def _take_results(self, reader: asyncio.StreamReader) -> bool:
        """Take in messages until the process ends; return whether there were results."""
        has_any = False
        while True:
            try:
                has_any = self._take(await read_message(reader)) or has_any
            except EOFError:
                return has_any
            except Exception as error:  # noqa: BLE001 - what cannot be read belongs to calls that fail below
                _log.error("the storing process cannot be understood: %s", type(error).__name__)
                return has_any

    def _take(self, said: list[Hello | LogLine | Result]) -> bool:
        """Take in messages; return whether there were results."""
        has_any = False
        for one in said:
            if isinstance(one, LogLine):
                _log.log(one.level, "%s", one.text)
            elif isinstance(one, Result):
                has_any = True
                self._settle(one)
        return has_any

    def _settle(self, result: Result) -> None:
        pending = self._pending.pop(result.number, None)
        if pending is None:
            return
        if pending.future.cancelled():
            return
        if result.error is None:
            pending.future.set_result(result.value)
        else:
            pending.future.set_exception(result.error)

    async def _leave(self) -> None:
        """Part from a process that has ended or is not understood, and fail the calls that were on their way."""
        self._disconnect()
        if not self._closing.is_set() and self._process is not None:
            self._process.kill()  # whatever it stored from now on, the journal would store again
        await asyncio.to_thread(self._reap, _LAST_SECONDS)
        self._fail_pending(keeps_repeatable=not self._closing.is_set())

    def _disconnect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._gathered.clear()
        if self._output is not None:
            self._output.close()
            self._output = None

    def _fail_pending(self, *, keeps_repeatable: bool) -> None:
        pending, self._pending = self._pending, {}
        for number, one in pending.items():
            one.tries -= 1
            if keeps_repeatable and one.data is not None and one.tries:
                self._pending[number] = one
            elif not one.future.done():
                one.future.set_exception(StoreUnavailable("the storing process ended before this was stored"))

    def _reap(self, seconds: float) -> int | None:
        """Wait for the process, and kill it if it takes too long; return its exit code."""
        process = self._process
        if process is None:
            return None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._process = None
        return code
