"""A gateway as ``everlong serve`` runs it: inside of the test, or as a program of its own."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everlong.config import Settings
from everlong.gateway.routing import Routes
from everlong.gateway.server import HostedGateway
from everlong.gateway.telemetry import GatewayLog
from everlong.store.opening import open_database
from tests.gateway.running import Raw
from tests.program import everlong_program
from tests.waiting import PATIENCE


@contextmanager
def serving(
    upstream: str, folder: Path, gateway: dict[str, Any] | None = None, log: io.BytesIO | None = None, **sections: Any
) -> Iterator[HostedGateway]:
    """A gateway in front of an upstream, on a free port; its log goes to ``log``."""
    given = Settings.model_validate(
        {
            "gateway": {"port": 0, **(gateway or {})},
            "auxiliary": {"compression": {"provider": "main"}},
            **sections,
        }
    )
    kept = GatewayLog(_Open(log), "debug") if log is not None else None
    hosted = HostedGateway(given, Routes(given, upstream), lambda: open_database(folder / "served.db"), kept)
    with hosted:
        yield hosted
    if kept is not None:
        kept.close()


class _Open(io.RawIOBase):
    """Hands on what is written, and stays readable after it is closed."""

    def __init__(self, kept: io.BytesIO) -> None:
        self._kept = kept

    def write(self, data: Any) -> int:
        return self._kept.write(data)


def raw(address: str) -> Raw:
    """A connection to a gateway."""
    return Raw(int(address.rpartition(":")[2]))


class Program:
    """``everlong serve`` in a process of its own."""

    def __init__(self, *arguments: str, **env: str) -> None:
        # A test that changes the process itself asks for one that is started, not forked.
        start = [sys.executable, "-m", "everlong"] if env.pop("EVERLONG_TEST_STARTED", "") else everlong_program()
        self.process = subprocess.Popen(
            [*start, "serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        )
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()
        found = re.search(r"listening on (http://\S+?),", self.first)
        self.address = found[1] if found else ""

    def hear(self, words: str) -> None:
        """Wait for a line with these words; other lines may come before it."""
        assert self.process.stderr is not None
        assert any(words in line for line in self.process.stderr), f"it left without saying {words!r}"

    def tell(self, name: signal.Signals) -> None:
        self.process.send_signal(name)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said after its first line."""
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


@contextmanager
def program(*arguments: str, **env: str) -> Iterator[Program]:
    """A program that is ended with the test."""
    started = Program(*arguments, **env)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()
