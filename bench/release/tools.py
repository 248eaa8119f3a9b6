"""The tools that make and check a release, each a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys

__all__ = ["ReleaseError", "run_tool"]


class ReleaseError(Exception):
    """Something that must not go out."""


def run_tool(name: str, *arguments: str, problem: str) -> str:
    """Run a tool that is a Python module, and return what it printed, without colours.

    Raises:
        ReleaseError: it failed; the message begins with the ``problem``.
    """
    command = [sys.executable, "-m", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{problem}:\n{done.stdout}{done.stderr}")
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
