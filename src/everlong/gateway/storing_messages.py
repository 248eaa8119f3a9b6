"""Messages between the gateway and the storing process: calls of recorders, their results, and lines for the log.

They are pickled and go over a private socket between `storing_process` and `storing_program`.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["BUFFER", "GOODBYE", "Call", "Hello", "LogLine", "Result", "StorePlace", "frame", "read_message"]

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
    wait_seconds: float = 10.0
    redacts: bool = False
    """True if secrets are taken out of what is stored."""
    is_file: bool = True
    """True if only one may write at a time."""


class Call(NamedTuple):
    """A call of a recorder's method."""

    number: int
    tenant: str
    api: str
    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    key: int
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
