"""The program in tests: a process of its own for each call, forked from one that has imported everything already.

Importing Everlong with its clients and its database takes seconds of CPU time, and tests call the program hundreds of
times. `everlong_program` starts one server for each pytest worker and returns a command that is called like any other:
arguments, environment, folder, input, output, signals and exit code are those of a program. Tests of the start itself,
and of the terminal, call ``python -m everlong``.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["everlong_program"]

_PLAIN = [sys.executable, "-c", "from everlong.cli.main import main; main()"]


@cache
def everlong_program() -> list[str]:
    """Return the command that runs the program."""
    if sys.platform != "linux":  # elsewhere processes cannot be waited for together with a connection
        return _PLAIN
    folder = tempfile.mkdtemp(prefix="everlong-program-")
    address = Path(folder) / "socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.program.server", str(address)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    atexit.register(_stop, server, address)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("client.py")), str(address)]


def _stop(server: subprocess.Popen[bytes], address: Path) -> None:
    server.terminate()
    server.wait()
    address.unlink(missing_ok=True)
    address.parent.rmdir()
