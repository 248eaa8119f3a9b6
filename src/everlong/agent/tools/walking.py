"""Going through the files below a folder, in a fixed order, without following links and without end.

Folders that hold what programs keep for themselves are passed over, unless one is where the walk begins.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".gradle", ".idea"),
    )
)
"""Names of folders that a walk does not go into."""

MOST_ENTRIES = 200_000


@dataclass
class Walk:
    """A walk below a folder; says afterwards whether it came to its end."""

    top: Path
    interrupted: threading.Event
    is_partial: bool = False

    def files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Each file (also a link) with its path relative to the top; names in order, files before folders."""
        waiting: list[tuple[str, Path]] = [("", self.top)]
        seen = 0
        while waiting:
            prefix, folder = waiting.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError:  # no permission, or gone meanwhile
                continue
            below: list[tuple[str, Path]] = []
            for entry in entries:
                seen += 1
                if seen > MOST_ENTRIES or self.interrupted.is_set():
                    self.is_partial = True
                    return
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        below.append((f"{prefix}{entry.name}/", Path(entry.path)))
                else:
                    yield prefix + entry.name, entry
            waiting += reversed(below)
