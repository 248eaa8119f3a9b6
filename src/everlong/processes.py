"""Processes besides this one: our own, which Everlong starts or writes into the files of others, and the system's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

__all__ = ["OWN_FOLDER", "own_command", "system_program"]

OWN_FOLDER = Path(os.sep).absolute()
"""The folder to start a process in that needs none: no repository is there, and it always exists."""

SYSTEM_FOLDERS = (
    *("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/"),
    *("/nix/store/", "/gnu/store/", "/snap/", "/opt/homebrew/", "/usr/local/Cellar/", "/home/linuxbrew/"),
)
"""The folders of programs that a package manager has put there, and no project."""


def own_command(module: str, *words: str) -> list[str]:
    """Return the command that runs one of our modules, whatever folder it is started in.

    ``-P`` keeps that folder out of the import path, or a cloned repository's ``json.py`` would run. ``-I`` would also
    leave out ``PYTHONPATH`` and the user's own packages, and with them an Everlong or a plugin that is installed there.
    """
    return [sys.executable, "-P", "-m", module, *words]


def system_program(name: str) -> str | None:
    """Return the path of a program of the system that ``PATH`` leads to; None if there is none.

    ``PATH`` leads into projects, too: by an active virtual environment, or by the current folder.
    """
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = os.path.realpath(shutil.which(name, path=folder) or "")
        if Path(found).name == name and found.startswith(SYSTEM_FOLDERS):
            return found
    return None
