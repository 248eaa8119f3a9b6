"""The command that adds an extra to this copy of Everlong, however it was installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["install_command", "package_command"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def install_command(extra: str, prefix: Path | None = None) -> str:
    """Return what to type to install an extra; pipx and uv keep a program where plain pip does not reach it."""
    place = prefix or Path(sys.prefix)
    return _command(place, _packages(extra)) or f"pip install 'everlong[{extra}]'"


def package_command(package: str, prefix: Path | None = None) -> str:
    """Return what to type to install a package beside Everlong."""
    return _command(prefix or Path(sys.prefix), [package]) or f"pip install {package}"


def _command(prefix: Path, packages: list[str]) -> str:
    """Return the command of pipx or uv if it made this installation; else nothing."""
    place = prefix.as_posix()
    if "/pipx/venvs/" in place or (prefix / "pipx_metadata.json").exists():
        return f"pipx inject {prefix.name} {' '.join(packages)}"
    if "/uv/tools/" in place or (prefix / "uv-receipt.toml").exists():
        return f"uv pip install --python {place} {' '.join(packages)}"
    return ""


def _packages(extra: str) -> list[str]:
    """Return the packages that an extra brings."""
    from importlib import metadata  # noqa: PLC0415 - costly, and seldom needed

    try:
        required = metadata.requires("everlong") or []
    except metadata.PackageNotFoundError:  # a copy that was put on the path by hand
        required = []
    marked = ((line, _EXTRA.search(line)) for line in required)
    found = [_NAME.match(line) for line, mark in marked if mark is not None and mark[1] == extra]
    return [name[0] for name in found if name is not None] or [f"'everlong[{extra}]'"]
