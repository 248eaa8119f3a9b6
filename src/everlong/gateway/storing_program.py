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
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.errors import StoreError
from everlong.gateway.storing_process import BUFFER, GOODBYE, Call, LogLine, Result, frame, read_message
from everlong.gateway.upkeep import Indexing, Recorders
from everlong.gateway.writer import Writer
from everlong.store import Store
from everlong.store.opening import redacted_message
from everlong.store.upgrade import open_database

if TYPE_CHECKING:
    from everlong.store.database import Database

__all__ = ["run"]

_log = logging.getLogger("everlong.gateway")

_NICENESS = 5
"""Priority of the storing process, below the serving one: clients wait only for the latter."""
_AGAIN_SECONDS = 1.0
"""Seconds between two tries to open the database."""


def run(handle: int) -> None:
    """Be the storing process, on an inherited socket."""
    with suppress(OSError):
        os.nice(_NICENESS)
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(socket.socket(fileno=handle)))


async def _serve(connection: socket.socket) -> None:
    reader, output = await asyncio.open_connection(sock=connection, limit=BUFFER)
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
    while (call := await received.get()) is not GOODBYE:
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
        while (message := await read_message(reader)) is not GOODBYE:
            received.put_nowait(message)
    except EOFError:
        os._exit(1)
    if not is_open.is_set():
        os._exit(0)
    received.put_nowait(GOODBYE)


async def _open_patiently(where: str) -> Database:
    """Open the database, as soon as that is possible."""
    while True:
        try:
            return await asyncio.to_thread(open_database, where, waits_for_disk=False)
        except (StoreError, OSError) as error:
            _log.error("the storing process cannot open the database: %s", type(error).__name__)
            await asyncio.sleep(_AGAIN_SECONDS)


def _submit(writer: Writer, recorders: Recorders, call: Call) -> asyncio.Future[Any]:
    """Have a call done by the writer."""
    work = getattr(recorders.of(call.tenant, call.api), call.method)
    return writer.submit(partial(work, *call.args, **call.options), can_wait=True, is_heavy=call.is_heavy)


class _Answers:
    """Messages on their way back; those of one moment go together."""

    def __init__(self, output: asyncio.StreamWriter) -> None:
        self._output = output
        self.loop = asyncio.get_running_loop()
        self._waiting: list[Result | LogLine] = []

    def add_result(self, number: int, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        self.add(Result(number, done.result() if error is None else None, _sendable(error)))

    def add(self, one: Result | LogLine) -> None:
        if not self._waiting:
            self.loop.call_soon(self.flush)
        self._waiting.append(one)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._output.write(frame(waiting))


class _Forwarding(logging.Handler):
    """A handler that has the gateway log what this process says."""

    def __init__(self, answers: _Answers) -> None:
        super().__init__(logging.WARNING)
        self._answers = answers

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the loop is closed
            line = LogLine(record.levelno, record.getMessage())
            self._answers.loop.call_soon_threadsafe(self._answers.add, line)


def _sendable(error: BaseException | None) -> BaseException | None:
    """Return an error that can be sent: itself, or one that names its class."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever it holds
        return StoreError(f"storing failed: {type(error).__name__}")
    return error


if __name__ == "__main__":
    run(int(sys.argv[1]))
