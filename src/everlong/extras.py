"""The command that adds an optional part to this copy of Everlong, however it was installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["install_command"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def install_command(extra: str, prefix: Path | None = None) -> str:
    """Return what to type to install an extra; pipx and uv keep a program where plain pip does not reach it."""
    place = (prefix or Path(sys.prefix)).as_posix()
    if "/pipx/venvs/" in place:
        return f"pipx inject everlong {' '.join(_packages(extra))}"
    if "/uv/tools/" in place:
        return f"uv pip install --python {place} {' '.join(_packages(extra))}"
    return f"pip install 'everlong[{extra}]'"


def _packages(extra: str) -> list[str]:
    """Return the packages that an extra brings."""
    from importlib import metadata  # noqa: PLC0415 - costly, and seldom needed

    try:
        required = metadata.requires("everlong") or []
    except metadata.PackageNotFoundError:  # a copy that was put on the path by hand
        required = []
    marked = ((line, _EXTRA.search(line)) for line in required)
    names = [_NAME.match(line) for line, mark in marked if mark is not None and mark[1] == extra]
    return [name[0] for name in names if name is not None] or [f"'everlong[{extra}]'"]
