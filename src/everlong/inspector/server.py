"""The inspector as a process: it listens on this machine, or on a socket that only its gateway reaches."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from everlong.errors import ConfigError
from everlong.inspector.app import make_app
from everlong.inspector.rendering import BASE
from everlong.inspector.security import Watch

if TYPE_CHECKING:
    from everlong.inspector.handlers import Reader

__all__ = ["HOST", "serve"]

HOST = "127.0.0.1"
_LAST_SECONDS = 1.0
"""Seconds that open pages get to end when the process stops."""


async def serve(
    reader: Reader, watch: Watch, *, port: int, on_ready: Callable[[str], None], until_eof: bool = False
) -> None:
    """Serve until a signal comes; ``on_ready`` gets the address of the first page.

    Args:
        reader: The store that is looked at.
        watch: The checks before each page.
        port: The port on this machine; 0 for any free one.
        on_ready: Called once, when pages can be read.
        until_eof: Stop when standard input ends, for a program that started this one.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # there are no such handlers on Windows; Ctrl-C raises there
            loop.add_signal_handler(name, stop.set)
    runner = web.AppRunner(make_app(reader, watch), access_log=None, shutdown_timeout=_LAST_SECONDS)
    await runner.setup()
    bound = _bind(port)
    try:
        await web.SockSite(runner, bound).start()
        on_ready(f"http://{HOST}:{bound.getsockname()[1]}{BASE}/")
        if until_eof:
            # A thread that nobody waits for: it may hang in a read for ever.
            threading.Thread(target=_wait_for_end, args=(loop, stop), daemon=True).start()
        await stop.wait()
    finally:
        await runner.cleanup()


def _bind(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise ConfigError(
            f"the inspector cannot listen on {HOST}:{port}: {error.strerror}; choose another --port, or 0 for any",
            key="port",
        ) from error
    return made


def _wait_for_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with suppress(OSError, ValueError):
        while sys.stdin.buffer.read(4_096):
            pass
    with suppress(RuntimeError):  # the loop may be over already
        loop.call_soon_threadsafe(stop.set)
