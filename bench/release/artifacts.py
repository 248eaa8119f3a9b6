"""The files of a release: a wheel and a source archive, built from the checkout and looked into."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.release.tools import ReleaseError, run_tool

__all__ = ["build", "check_archive", "check_wheel", "run_twine", "strange_files"]

_NOT_IN_A_WHEEL = re.compile(r"(^|/)(tests?|bench|docs|__pycache__|\.[^/]+)/|\.(pyc|db|sqlite|cast|png|orig|rej)$")
_IN_AN_ARCHIVE = ("CHANGELOG.md", "LICENSE", "README.md", "docs/README.md", "pyproject.toml", "tests/conftest.py")


def build(root: Path, out: Path, *, isolated: bool = False) -> tuple[Path, Path]:
    """Build the wheel and the source archive into a folder, and return them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("everlong-*.whl"), *out.glob("everlong-*.tar.gz")):
        old.unlink()
    options = [] if isolated else ["--no-isolation"]
    run_tool("build", *options, "--outdir", str(out), str(root), problem="the build failed")
    (wheel,), (archive,) = out.glob("everlong-*.whl"), out.glob("everlong-*.tar.gz")
    return wheel, archive


def check_wheel(wheel: Path) -> list[str]:
    """Return lines about a wheel.

    Raises:
        ReleaseError: it has files in it that users do not need.
    """
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    strange = strange_files(names)
    if strange:
        raise ReleaseError(f"{wheel.name} has files that users do not need: {', '.join(strange[:10])}")
    return [f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(names)} files, no test data"]


def strange_files(names: Iterable[str]) -> list[str]:
    """Return the names of a wheel that should not be in it."""
    return [name for name in names if not name.startswith(("everlong/", "everlong-")) or _NOT_IN_A_WHEEL.search(name)]


def check_archive(archive: Path) -> list[str]:
    """Return lines about a source archive.

    Raises:
        ReleaseError: something is missing without which it cannot be built or tested.
    """
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    missing = [name for name in _IN_AN_ARCHIVE if name not in names]
    if missing:
        raise ReleaseError(f"{archive.name} lacks {', '.join(missing)}")
    return [f"{archive.name}: {archive.stat().st_size:,} bytes, {len(names)} files"]


def run_twine(files: Sequence[Path]) -> list[str]:
    """Let twine check the metadata, and whether the index can show the description."""
    told = run_tool("twine", "check", "--strict", *map(str, files), problem="twine found something wrong")
    return [re.sub(r"Checking .*/", "twine check ", line) for line in told.splitlines() if line.strip()]
