"""The command that adds an extra to this copy of Everlong, however it was installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["install_command", "list_extras", "packages_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def install_command(extra: str, prefix: Path | None = None) -> str:
    """Return what to type to install an extra: its packages, which need no index that has Everlong itself."""
    prefix, packages = prefix or Path(sys.prefix), packages_of(extra) or [f"'everlong[{extra}]'"]
    # pipx and uv keep a program where plain pip does not reach it.
    place = prefix.as_posix()
    if "/pipx/venvs/" in place or (prefix / "pipx_metadata.json").exists():
        return f"pipx inject {prefix.name} {' '.join(packages)}"
    if "/uv/tools/" in place or (prefix / "uv-receipt.toml").exists():
        return f"uv pip install --python {place} {' '.join(packages)}"
    return f"pip install {' '.join(packages)}"


def list_extras() -> list[str]:
    """Return the names of all extras but `all`, as the installed package lists them."""
    return list(dict.fromkeys(extra for extra, _ in _requirements() if extra != "all"))


def packages_of(extra: str) -> list[str]:
    """Return the packages that an extra brings."""
    return [package for named, package in _requirements() if named == extra]


def _requirements() -> list[tuple[str, str]]:
    """Return each extra with each package that it brings."""
    from importlib import metadata  # noqa: PLC0415 - costly, and seldom needed

    try:
        required = metadata.requires("everlong") or []
    except metadata.PackageNotFoundError:  # a copy that was put on the path by hand
        required = []
    found = ((_EXTRA.search(line), _NAME.match(line)) for line in required)
    return [(extra[1], name[0]) for extra, name in found if extra is not None and name is not None]
