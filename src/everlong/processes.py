"""The command of our own processes: those that Everlong starts, and those that it writes into the files of others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["OWN_FOLDER", "own_command"]

OWN_FOLDER = Path(os.sep).absolute()
"""The folder to start a process in that needs none: no repository is there, and it always exists."""


def own_command(module: str, *words: str) -> list[str]:
    """Return the command that runs one of our modules, whatever folder it is started in.

    ``-P`` keeps that folder out of the import path, or a cloned repository's ``json.py`` would run. ``-I`` would also
    leave out ``PYTHONPATH`` and the user's own packages, and with them an Everlong or a plugin that is installed there.
    """
    return [sys.executable, "-P", "-m", module, *words]
