"""Channels in processes that are killed, one after the other: ``killed_channel.py STORE URL FOLDER WHEN…``.

Each WHEN is a process of its own on the same store, forked so that its imports cost nothing: it takes in the same
message, answers it, and kills itself at that moment unless somebody else does. What people see is kept in a file of
the folder, as a messenger keeps it while a bot is down; so is the process id. The exit codes are printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import openai  # noqa: F401 - before the processes fork

import everlong.agent.opening  # noqa: F401 - as above
from everlong.channels.platform import Place
from everlong.channels.service import Channel
from everlong.store import Store
from tests.channels.conftest import opener_for, settings_for
from tests.channels.recorder import RecordingPlatform, Shown


class _Server:
    def __init__(self, url: str) -> None:
        self.openai_url = url


class LastingPlatform(RecordingPlatform):
    """A platform whose chats outlive the process; it dies at the given request."""

    def __init__(self, folder: Path, when: str) -> None:
        super().__init__(text=200)
        self._file = folder / "shown.json"
        self._when = when
        if self._file.exists():
            for key, one in json.loads(self._file.read_text()).items():
                one["place"] = Place(**one["place"])
                self.shown[key] = Shown(**{**one, "data": None})
            self._ids = iter(range(max(map(int, self.shown), default=1_000) + 1, 9_999))  # type: ignore[assignment]
        self.fault = self._meet

    def _meet(self, method: str, moment: str) -> None:
        if moment == "after":
            kept = {key: {**asdict(one), "data": None} for key, one in self.shown.items()}
            self._file.write_text(json.dumps(kept))
        number = sum(1 for name, _ in self.requests if name == method)
        if self._when == f"{method}-{number}-{moment}":
            os.kill(os.getpid(), signal.SIGKILL)


async def answer(store_path: str, url: str, folder: Path, when: str) -> None:
    """Receive the message, answer it, and die on the way if that is wanted."""
    settings = settings_for(32_000, channels={"stream": False})
    platform = LastingPlatform(folder, when)
    with Store.open(store_path) as store:
        opener: Any = opener_for(_Server(url))  # type: ignore[arg-type]
        channel = Channel(platform, store, settings, settings.channels.telegram, asyncio.Semaphore(4), None, opener)
        await channel.start()
        await channel.receive(platform.message("Tell me a long story", update="u1", message="1"))
        if when == "stored":
            os.kill(os.getpid(), signal.SIGKILL)
        await channel.settle()
        await channel.stop()


def main(store_path: str, url: str, folder: str, *moments: str) -> None:
    """Run one process after the other."""
    codes = []
    for when in moments:
        child = os.fork()
        if not child:
            (Path(folder) / "pid").write_text(str(os.getpid()))
            asyncio.run(answer(store_path, url, Path(folder), when))
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.stdout.write(json.dumps(codes))


if __name__ == "__main__":
    main(*sys.argv[1:])
