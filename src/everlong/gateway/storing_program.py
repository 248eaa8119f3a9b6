"""The program of the storing process: it runs calls of recorders in the threads of a `Writer`, and writes the index.

It ends when the gateway says goodbye, after all its work, or at once when the gateway is gone: what is not stored then
is in the journal, from where the next gateway may be storing it already.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.errors import StoreError
from everlong.gateway.storing_process import (
    BUFFER,
    GOODBYE,
    Call,
    Hello,
    LogLine,
    Result,
    StorePlace,
    frame,
    read_message,
)
from everlong.gateway.upkeep import Indexing, recorder_for
from everlong.gateway.writer import Writer
from everlong.store import Store
from everlong.store.opening import redacted_message
from everlong.store.upgrade import open_database

if TYPE_CHECKING:
    from everlong.gateway.recorder import ConversationRecorder
    from everlong.store.database import Database

__all__ = ["run"]

_log = logging.getLogger("everlong.gateway")

_NICENESS = 5
"""Priority of the storing process, below the serving one: clients wait only for the latter."""
_AGAIN_SECONDS = 1.0
"""Seconds between two tries to open the database."""


def run(handle: int) -> None:
    """Be the storing process, on an inherited socket."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the gateway says when to stop
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(OSError):
        os.nice(_NICENESS)
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(socket.socket(fileno=handle)))


async def _serve(connection: socket.socket) -> None:
    reader, output = await asyncio.open_connection(sock=connection, limit=BUFFER)
    answers = _Answers(output)
    answers.add(Hello())
    logging.getLogger("everlong").addHandler(_Forwarding(answers, asyncio.get_running_loop()))
    logging.getLogger("everlong").propagate = False
    received: asyncio.Queue[Any] = asyncio.Queue()
    is_open = asyncio.Event()
    receiving = asyncio.create_task(_receive(reader, received, is_open))
    place = await received.get()
    database = await _open_patiently(place)
    is_open.set()
    writer = Writer(database)
    redact = redacted_message if place.redacts else None
    served = _Served(writer, answers, lambda tenant: Store(database, tenant, redact=redact))
    indexing = Indexing(served.store_of, lambda: writer.waiting > 0, embeds=False)
    indexing.start()
    while (call := await received.get()) is not GOODBYE:
        served.take(call)
    await receiving
    writer.hurry()
    await indexing.close()
    await writer.close()
    await served.settle()
    answers.flush()
    with suppress(OSError):
        await output.drain()
        output.close()
    database.close()


async def _receive(reader: asyncio.StreamReader, received: asyncio.Queue[Any], is_open: asyncio.Event) -> None:
    """Take in messages up to the last one; end the process if the gateway is gone, or if there is no database yet."""
    try:
        while (message := await read_message(reader)) is not GOODBYE:
            received.put_nowait(message)
    except EOFError:
        os._exit(1)
    if not is_open.is_set():
        os._exit(0)
    received.put_nowait(GOODBYE)


async def _open_patiently(place: StorePlace) -> Database:
    """Open the database, as soon as that is possible."""
    while True:
        try:
            return await asyncio.to_thread(open_database, place.where, waits_for_disk=False)
        except (StoreError, OSError) as error:
            _log.error("the storing process cannot open the database: %s", type(error).__name__)
            await asyncio.sleep(_AGAIN_SECONDS)


class _Answers:
    """Messages on their way back; those of one moment go together."""

    def __init__(self, output: asyncio.StreamWriter) -> None:
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Hello | Result | LogLine] = []

    def add(self, one: Hello | Result | LogLine) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(one)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._output.write(frame(waiting))


class _Forwarding(logging.Handler):
    """A handler that has the gateway log what this process says."""

    def __init__(self, answers: _Answers, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._answers = answers
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answers.add, LogLine(record.levelno, record.getMessage()))


@dataclass(slots=True)
class _Served:
    """The calls that this process takes."""

    writer: Writer
    answers: _Answers
    store_of: Callable[[str], Store]
    recorders: dict[tuple[str, str], ConversationRecorder] = field(default_factory=dict)
    under_way: set[asyncio.Future[Any]] = field(default_factory=set)
    is_hurrying: bool = False

    def take(self, call: Call) -> None:
        whose = (call.tenant, call.api)
        if whose not in self.recorders:
            self.recorders[whose] = recorder_for(self.store_of(call.tenant), call.api)
        recorder = self.recorders[whose]
        work = partial(getattr(recorder, call.method), *call.args, **call.options)
        done = self.writer.submit(work, can_wait=True, is_heavy=call.is_heavy)
        self.under_way.add(done)
        done.add_done_callback(partial(self._answer, call.number))
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

    def _answer(self, number: int, done: asyncio.Future[Any]) -> None:
        self.under_way.discard(done)
        error = done.exception()
        value = done.result() if error is None else None
        self.answers.add(Result(number, value, _sendable(error)))


def _sendable(error: BaseException | None) -> BaseException | None:
    """Return an error that can be sent: itself, or one that names its class."""
    if error is None:
        return None
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever it holds
        return StoreError(f"storing failed: {type(error).__name__}")
    return error


if __name__ == "__main__":
    run(int(sys.argv[1]))
