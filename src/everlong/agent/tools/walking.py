"""Going through the files below a folder, in a fixed order, without following links and without end.

Folders that hold what programs keep for themselves are passed over, unless one is where the walk begins.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from everlong.agent.tools.workspace import OpenFolder, Workspace
from everlong.errors import ToolError

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
    """A walk below a folder of a workspace; says afterwards whether it came to its end."""

    workspace: Workspace
    top: Path
    interrupted: threading.Event
    is_partial: bool = False

    def files(self) -> Iterator[tuple[str, os.DirEntry[str], OpenFolder]]:
        """Each file (also a link) with its path relative to the top, and the folder that it is in, held open.

        Names come in order, files before folders.
        """
        waiting: list[tuple[str, Path]] = [("", self.top)]
        seen = 0
        while waiting:
            prefix, folder = waiting.pop()
            below: list[tuple[str, Path]] = []
            with ExitStack() as stack:
                try:
                    held = stack.enter_context(self.workspace.folder(folder))
                    entries = sorted(held.entries(), key=lambda entry: entry.name)
                except (ToolError, OSError):  # no permission, gone meanwhile, or swapped for a link
                    continue
                for entry in entries:
                    seen += 1
                    if seen > MOST_ENTRIES or self.interrupted.is_set():
                        self.is_partial = True
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED:
                            below.append((f"{prefix}{entry.name}/", folder / entry.name))
                    else:
                        yield prefix + entry.name, entry, held
            waiting += reversed(below)
