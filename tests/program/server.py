"""Imports the program once, and forks a process for each call of it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any

_LOADED = (
    "anthropic",
    "everlong.agent.agent",
    "everlong.agent.tools.files",
    "everlong.agent.tools.finding",
    "everlong.agent.tools.history",
    "everlong.agent.tools.shell",
    "everlong.cli.chat.command",
    "everlong.cli.chat.worker",
    "everlong.cli.compress",
    "everlong.cli.doctor",
    "everlong.cli.plugins",
    "everlong.cli.run",
    "everlong.cli.serve",
    "everlong.cli.sessions",
    "everlong.cli.setup",
    "everlong.cli.wrap",
    "everlong.config.listing",
    "everlong.gateway.server",
    "everlong.memory.manager",
    "everlong.providers.openai_api",
    "openai.resources.chat.completions",
    "rich.console",
)


def main() -> None:
    """Serve until told to stop; in a process that was forked for a call, run the program."""
    for name in _LOADED:
        __import__(name)
    gc.freeze()  # what is loaded stays, and need not be looked through in every process
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(sys.argv[1])
    listening.listen(64)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.write(1, b"ready\n")
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # whose CPU time counts as that of the tests
                pass
        if os.fork() == 0:
            listening.close()
            about, files = _received(connection)
            _run(connection, about, files)
            return
        connection.close()


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    data = b""
    while len(data) < int.from_bytes(head, "big"):
        data += connection.recv(1 << 16)
    return json.loads(data), files


def _run(connection: socket.socket, about: dict[str, Any], files: list[int]) -> None:
    """Fork once more: the child is the program, and the parent passes signals on and tells how it ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        connection.close()
        _become_program(about, files)
        return
    for fd in (0, 1, 2, *files):
        os.close(fd)
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([connection.fileno(), ended], [], [])
        if ended in ready:
            break
        told = connection.recv(16)
        for number in told or bytes([signal.SIGKILL]):
            os.kill(child, number)
        if not told:  # the caller is gone
            break
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(status.to_bytes(8, "big", signed=True))
    os._exit(0)


def _become_program(about: dict[str, Any], files: list[int]) -> None:
    os.setsid()
    os.umask(about["mask"])
    os.environ.clear()
    os.environ.update(about["environment"])
    os.chdir(about["folder"])
    for place, fd in enumerate(files):
        os.dup2(fd, place)
        os.close(fd)
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    kind = encoding or "utf-8"
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), kind, errors or "strict")  # noqa: SIM115 - as Python itself does
    sys.stdout = _written(1, kind, errors or "strict")
    sys.stderr = _written(2, kind, "backslashreplace")
    random.seed()
    sys.path[:0] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one not in {"", *sys.path}]
    sys.argv = ["everlong", *about["arguments"]]
    from everlong.cli.main import main as run  # noqa: PLC0415 - loaded, and only the child needs it

    try:
        run()
        code: object = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:  # noqa: BLE001 - the interpreter prints it, and so does this
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    _leave(code if isinstance(code, int) else 1)


def _leave(code: int) -> None:
    """End as the interpreter does, without taking everything that is loaded to pieces, which takes seconds."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _written(fd: int, encoding: str, errors: str) -> io.TextIOWrapper:
    """Return an output as Python opens it: whole lines on a terminal and on stderr."""
    is_line_wise = fd == 2 or os.isatty(fd)
    return io.TextIOWrapper(open(fd, "wb", closefd=False), encoding, errors, line_buffering=is_line_wise)


if __name__ == "__main__":
    main()
