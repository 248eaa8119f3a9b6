"""The places where clients keep their logs.

A log in one of these places is its client's. A log anywhere else belongs to the folder that it lies in: a clone or a
download brings it along, and it may claim to be from any other folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from everlong.config.files import is_regular

__all__ = ["AIDER", "LogFolder", "is_clients_own", "log_folders"]

AIDER = ".aider.chat.history.md"
"""The file that aider keeps in each folder that it works in."""
_VSCODE = "saoudrizwan.claude-dev"


class LogFolder(NamedTuple):
    """A folder with the logs of one client."""

    client: str
    path: Path
    patterns: tuple[str, ...]
    is_own: bool = True
    """True if the client keeps its logs there; False for a folder that may have been brought along."""

    def files(self) -> Iterator[Path]:
        """Yield its logs; the logs of sub-agents come after those of whom they work for.

        Only regular files count. From a folder that is not the client's own, no link leads out.
        """
        found = {path for pattern in self.patterns for path in self.path.glob(pattern)}
        top = os.path.realpath(self.path)
        for path in sorted(found, key=lambda path: (len(path.parts), path)):
            if is_regular(path) and (self.is_own or Path(os.path.realpath(path)).is_relative_to(top)):
                yield path

    def holds(self, path: str) -> bool:
        """Return whether a log with this absolute path is one of its logs."""
        for top in (os.path.abspath(self.path), os.path.realpath(self.path)):  # noqa: PTH100 - without its links
            if Path(path).is_relative_to(top):
                parts = Path(path).relative_to(top).parts
                return any(_matches(parts, pattern.split("/")) for pattern in self.patterns)
        return False


def log_folders(env: Mapping[str, str] | None = None, home: Path | None = None) -> list[LogFolder]:
    """Return the folders in which clients keep their logs, whether they are there or not."""
    own = os.environ if env is None else env
    house = Path.home() if home is None else home

    def place(variable: str, default: Path) -> Path:
        return Path(own[variable]).expanduser() if own.get(variable, "").strip() else default

    data = place("XDG_DATA_HOME", house / ".local" / "share")
    config = house / "Library" / "Application Support" if sys.platform == "darwin" else house / ".config"
    codex = place("CODEX_HOME", house / ".codex")
    editors = (config / name / "User" / "globalStorage" / _VSCODE for name in ("Code", "VSCodium", "Cursor"))
    return [
        LogFolder("claude-code", place("CLAUDE_CONFIG_DIR", house / ".claude") / "projects", ("**/*.jsonl",)),
        LogFolder("codex", codex, ("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl")),
        LogFolder("opencode", data / "opencode", ("opencode*.db",)),
        LogFolder("gemini", house / ".gemini" / "tmp", ("*/chats/**/*.json", "*/chats/**/*.jsonl")),
        LogFolder("pi", place("PI_CODING_AGENT_DIR", house / ".pi" / "agent"), ("sessions/**/*.jsonl",)),
        LogFolder("cline", place("CLINE_DIR", house / ".cline") / "data", ("sessions/*/*.messages.json",)),
        *(LogFolder("cline", folder, ("tasks/*/api_conversation_history.json",)) for folder in editors),
        LogFolder("aider", house, (AIDER,)),
        LogFolder("hermes", place("HERMES_HOME", house / ".hermes"), ("state.db",)),
    ]


def is_clients_own(path: Path) -> bool:
    """Return whether a log lies where its client keeps its logs."""
    spelled = {os.path.abspath(path), os.path.realpath(path)}  # noqa: PTH100 - the folder may be a link to another disk
    return any(folder.holds(name) for folder in log_folders() for name in spelled)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a path match those of a pattern; ``**`` stands for any number of folders."""
    if not pattern or not parts:
        return not pattern and not parts
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
