"""The files that the agent's tools changed, each with what it held before the first change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["FileChanges"]

_MOST_BYTES = 32_000_000
"""The most that is kept of former contents."""


class FileChanges:
    """What files held before tools first changed them. Changes by commands are not seen."""

    def __init__(self) -> None:
        self._before: dict[Path, bytes] = {}
        self._bytes = 0

    def note(self, path: Path, read: Callable[[], bytes]) -> None:
        """Remember what a file holds, unless that is known or too much; called before a change."""
        if path in self._before:
            return
        data = read()
        if self._bytes + len(data) <= _MOST_BYTES:
            self._bytes += len(data)
            self._before[path] = data

    def __iter__(self) -> Iterator[tuple[Path, bytes]]:
        """Yield each file and what it held; nothing, if it was not there."""
        return iter(self._before.items())
