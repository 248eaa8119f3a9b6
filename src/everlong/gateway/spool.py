"""What could not be stored, in a file until it can be: a database that is away for a while loses no turn.

Each entry is one request with what came of it, on a line of its own. Files are taken up again by whoever runs next,
one process each. Entries that cannot be stored for another reason than the database being away are put aside, not
thrown away.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from everlong.errors import EverlongError, StoreBusy, StoreFull, StoreUnavailable
from everlong.model import Message

__all__ = ["AWAY", "Spool", "Spooled"]

AWAY = (StoreUnavailable, StoreBusy, StoreFull, OSError)
"""What a database says, or does not say, that is away."""


class Spooled(NamedTuple):
    """One request that is not stored yet."""

    tenant: str
    api: str
    body: str | None
    """The whole body, where the conversation was not known; else what it adds to it."""
    at: tuple[int, str, int] | None
    messages: list[Message]
    model: str | None
    hint: str | None
    reply: Message | None
    usage: dict[str, Any] | None
    status: str
    error: str | None
    began: float


class Spool:
    """Files of one gateway in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{int(time.time())}-{os.getpid()}-{uuid.uuid4().hex[:6]}.jsonl"
        self.waiting = 0
        """Entries of this process that are not stored yet."""

    def put(self, entry: Spooled) -> None:
        """Keep an entry; raises `OSError` where there is no room for it either."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        line = orjson.dumps(entry._asdict(), default=str) + b"\n"
        descriptor = os.open(self._own, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self.waiting += 1

    def replay(self, store: Callable[[Spooled], None]) -> int:
        """Store what waits, this process's own and what others left behind; how much that was.

        Stops at an error that says that the database is still away.
        """
        done = 0
        for path in self._files():
            taken = path.with_suffix(".taken")
            try:
                path.rename(taken)
            except OSError:
                continue  # another process was quicker
            done += self._replayed(taken, path, store)
        return done

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        found = [path for path in sorted(self._folder.glob("*.jsonl")) if path == self._own or not _is_alive(path)]
        for left in self._folder.glob("*.taken"):
            if not _is_alive(left):  # died in the middle; what was stored already is stored once
                back = left.with_suffix(".jsonl")
                left.rename(back)
                found.append(back)
        return found

    def _replayed(self, taken: Path, path: Path, store: Callable[[Spooled], None]) -> int:
        lines = taken.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines):
            try:
                store(Spooled(**orjson.loads(line)))
            except AWAY:
                path.write_bytes(b"".join(lines[number:]) + (path.read_bytes() if path.exists() else b""))
                taken.unlink()
                if path == self._own:
                    self.waiting -= number
                raise
            except (EverlongError, ValueError, TypeError, KeyError):
                with taken.with_suffix(".broken").open("ab") as aside:
                    aside.write(line)
        taken.unlink()
        if path == self._own:
            self.waiting -= len(lines)
        return len(lines)


def _is_alive(path: Path) -> bool:
    """Whether the process that wrote a file still runs; it takes care of its own."""
    parts = path.stem.split("-")
    if len(parts) != 3 or not parts[1].isdigit() or int(parts[1]) == os.getpid():
        return False
    try:
        os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
