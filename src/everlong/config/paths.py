"""Paths of the user's configuration and data, and of the configuration of the project around a folder.

Reads no file and knows no setting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = [
    "config_home",
    "data_home",
    "project_config_path",
    "user_config_path",
    "workspace_folder",
]

FILE_NAME = "config.yaml"
PROJECT_FOLDER = ".everlong"
INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files of a trusted working directory that go into the system prompt."""


def config_home(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's configuration: ``EVERLONG_HOME``, else the system's usual place for it."""
    chosen = (os.environ if env is None else env).get("EVERLONG_HOME", "").strip()
    if chosen:
        path = Path(chosen)
        return path.expanduser() if chosen.startswith("~") else path.absolute()
    import platformdirs  # noqa: PLC0415 - not needed where EVERLONG_HOME is set, nor for --help

    return platformdirs.user_config_path("everlong", appauthor=False)


def data_home(env: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's data: ``EVERLONG_HOME``, else the system's usual place for it."""
    if (os.environ if env is None else env).get("EVERLONG_HOME", "").strip():
        return config_home(env)
    import platformdirs  # noqa: PLC0415 - as above

    return platformdirs.user_data_path("everlong", appauthor=False)


def user_config_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's ``config.yaml``, whether or not it exists."""
    return config_home(env) / FILE_NAME


def project_config_path(cwd: Path | None = None) -> Path | None:
    """Return the nearest ``.everlong/config.yaml`` at or above a folder, below the home directory; None without one."""
    for folder in _upwards(cwd):
        candidate = folder / PROJECT_FOLDER / FILE_NAME
        # os.path, because Path.is_file raises for a folder that may not be looked into.
        if os.path.isfile(candidate):  # noqa: PTH113
            return candidate
    return None


def workspace_folder(cwd: Path | None = None) -> Path:
    """Return the folder whose trust counts for work in a folder: its repository or project, else the folder itself."""
    start = (Path.cwd() if cwd is None else cwd).resolve()
    own = config_home().resolve()
    for folder in _upwards(start):
        if os.path.lexists(folder / ".git") or (os.path.isdir(mine := folder / PROJECT_FOLDER) and mine != own):  # noqa: PTH112 - as above
            return folder
    return start


def _upwards(cwd: Path | None) -> Iterator[Path]:
    """Yield a folder and those above it, up to the home directory, which belongs to no project."""
    start = (Path.cwd() if cwd is None else cwd).absolute()
    home = _home()
    for folder in (start, *start.parents):
        if folder == home:
            return
        yield folder


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # no HOME and no account entry, as in bare containers
        return None
