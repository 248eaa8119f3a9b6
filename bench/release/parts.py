"""The wheels of a release: the program and the library in one, what serves others and what tests need in two more.

A checkout and the source archive are one piece, and so is the wheel that is built from them. It is taken apart here,
because most users need no server and every one fetches the wheel. The extras of `everlong` bring the other wheels.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.release.tools import ReleaseError, run_tool

__all__ = ["PARTS", "Part", "take_apart"]

_SHARED_HEADERS = ("Version", "Author", "License-Expression", "License-File", "Requires-Python")
_DESCRIPTION = "Description-Content-Type: text/markdown\n\n{summary} A part of Everlong; install it with `{example}`.\n"


class Part(NamedTuple):
    """A wheel beside that of the program."""

    name: str
    summary: str
    folders: tuple[str, ...]
    """The subpackages of `everlong` that it holds."""
    extras: tuple[str, ...]
    """The extras of `everlong` that bring it."""


PARTS = (
    Part(
        "everlong-server",
        "Everlong's gateway, inspector and channels.",
        ("channels", "gateway", "inspector"),
        ("gateway", "inspector", "mcp", "telegram", "discord", "all"),
    ),
    Part(
        "everlong-testing",
        "Everlong's stand-in for model APIs, and the tests of a context engine.",
        ("testing",),
        ("testing",),
    ),
)


def take_apart(wheel: Path) -> list[Path]:
    """Replace a wheel by one without the folders of `PARTS`, and wheels with those; return all, the first one first."""
    out = wheel.parent
    with tempfile.TemporaryDirectory() as folder:
        _wheel("unpack", "--dest", folder, str(wheel))
        (whole,) = Path(folder).iterdir()
        (about,) = whole.glob("*.dist-info")
        wheel.unlink()
        for part in PARTS:
            made = Path(folder) / part.name
            _move(whole, made, part)
            _describe(about, made, part)
            _wheel("pack", "--dest-dir", str(out), str(made))
        metadata = about / "METADATA"
        metadata.write_text(_with_parts(metadata.read_text(encoding="utf-8")), encoding="utf-8")
        _wheel("pack", "--dest-dir", str(out), str(whole))
    version = wheel.name.split("-")[1]
    return [wheel, *(out / f"{_file_name(part)}-{version}-py3-none-any.whl" for part in PARTS)]


def _move(whole: Path, made: Path, part: Part) -> None:
    (made / "everlong").mkdir(parents=True)
    for name in part.folders:
        (whole / "everlong" / name).rename(made / "everlong" / name)


def _describe(about: Path, made: Path, part: Part) -> None:
    """Write the metadata of a part, with what it has in common with that of the whole."""
    head, _, _ = (about / "METADATA").read_text(encoding="utf-8").partition("\n\n")
    version = _header(head, "Version")
    own = made / f"{_file_name(part)}-{version}.dist-info"
    shutil.copytree(about, own, ignore=shutil.ignore_patterns("METADATA", "RECORD", "entry_points.txt"))
    shared = tuple(f"{name}:" for name in _SHARED_HEADERS)
    lines = [
        f"Metadata-Version: {_header(head, 'Metadata-Version')}",
        f"Name: {part.name}",
        f"Summary: {part.summary}",
        *(line for line in head.splitlines() if line.startswith(shared)),
        f"Requires-Dist: everlong=={version}",
    ]
    example = f"pip install 'everlong[{part.extras[0]}]'"
    text = "\n".join(lines) + "\n" + _DESCRIPTION.format(summary=part.summary, example=example)
    (own / "METADATA").write_text(text, encoding="utf-8")


def _with_parts(metadata: str) -> str:
    """Return the metadata of the whole as those of the program: its extras bring the parts."""
    version = _header(metadata, "Version")
    for part in PARTS:
        for extra in part.extras:
            offered = f"Provides-Extra: {extra}\n"
            if offered not in metadata:
                raise ReleaseError(f"{part.name} is brought by {extra}, but there is no such extra")
            needed = f"Requires-Dist: {part.name}=={version}; extra == '{extra}'\n"
            metadata = metadata.replace(offered, offered + needed, 1)
    return metadata


def _header(metadata: str, name: str) -> str:
    found = re.search(rf"^{name}: (.+)$", metadata, re.MULTILINE)
    if found is None:
        raise ReleaseError(f"the metadata have no {name}")
    return found[1]


def _file_name(part: Part) -> str:
    return part.name.replace("-", "_")


def _wheel(*arguments: str) -> None:
    """Call the tool that packs wheels; it also writes the list of files with their hashes."""
    run_tool("wheel", *arguments, problem="the wheel cannot be taken apart")
