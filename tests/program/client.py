"""Hands its arguments, environment, folder and open files to the server, and ends as the program ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType


def main() -> None:
    """Have the server run the program once."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])

    def forward(number: int, _frame: FrameType | None) -> None:
        connection.sendall(bytes([number]))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    mask = os.umask(0)
    about = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd(), "mask": mask}  # noqa: PTH109 - pathlib takes time to load
    data = json.dumps(about).encode()
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(data)
    for fd in (0, 1, 2):  # the program alone decides when its output ends
        os.close(fd)
    answer = connection.recv(8)
    status = int.from_bytes(answer, "big", signed=True) if answer else 70
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
