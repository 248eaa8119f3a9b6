"""The optional parts of Everlong, and the command that adds one to this copy, however it was installed."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PARTS", "has_part", "install_command", "package_command", "part_command"]

PARTS = {"channels": "telegram", "gateway": "gateway", "inspector": "inspector", "testing": "testing"}
"""The subpackages that a release has in wheels of their own, each with an extra that brings it."""
_OWN = "everlong-"
"""The beginning of the names of those wheels; each fits one version of Everlong only."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def has_part(name: str) -> bool:
    """Return whether a subpackage of `PARTS` is installed."""
    return find_spec(f"everlong.{name}") is not None


def part_command(module: str | None) -> str | None:
    """Return what to type to install the part that a missing module belongs to; None if it belongs to none."""
    top, _, rest = (module or "").partition(".")
    part = rest.partition(".")[0]
    return install_command(PARTS[part]) if top == "everlong" and part in PARTS and not has_part(part) else None


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
    names = [_package(line) for line, mark in marked if mark is not None and mark[1] == extra]
    return names or [f"'everlong[{extra}]'"]


def _package(requirement: str) -> str:
    """Return the name of a required package, and of our own also the version."""
    name = _NAME.match(requirement)
    if name is None or requirement.startswith(_OWN):
        return requirement.partition(";")[0].strip()
    return name[0]
