"""The files of a release: wheels and a source archive, built from the checkout and looked into."""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.release.parts import take_apart
from bench.release.tools import ReleaseError, run_tool

__all__ = [
    "MOST_BYTES",
    "build",
    "check_archive",
    "check_wheel",
    "deflate_strongly",
    "recompress",
    "run_twine",
]

MOST_BYTES = 1_500_000
"""The most that a wheel may weigh: it is fetched by every build machine of every user."""
_NOT_IN_A_WHEEL = re.compile(r"(^|/)(tests?|bench|docs|__pycache__|\.[^/]+)/|\.(pyc|db|sqlite|cast|png|orig|rej)$")
_TEMPLATES = "everlong/plugins/template_files/"
"""What `everlong plugins new` writes, with a test for the new plugin's author."""
_IN_AN_ARCHIVE = ("CHANGELOG.md", "LICENSE", "README.md", "docs/README.md", "pyproject.toml", "tests/conftest.py")


def build(root: Path, out: Path, *, isolated: bool = False) -> tuple[list[Path], Path]:
    """Build the wheels and the source archive into a folder, and return them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("everlong*.whl"), *out.glob("everlong-*.tar.gz")):
        old.unlink()
    options = [] if isolated else ["--no-isolation"]
    run_tool("build", *options, "--outdir", str(out), str(root), problem="the build failed")
    (whole,), (archive,) = out.glob("everlong-*.whl"), out.glob("everlong-*.tar.gz")
    wheels = take_apart(whole)
    for wheel in wheels:
        recompress(wheel, deflate_strongly)
    return wheels, archive


def deflate_strongly(data: bytes) -> bytes:
    """Return bytes as the smallest deflate stream that zopfli finds; it takes a hundred times as long as zlib."""
    from zopfli.zlib import compress  # noqa: PLC0415 - only a release needs it

    return bytes(compress(data)[2:-4])  # without zlib's header and checksum, which a zip file does not have


def recompress(wheel: Path, deflate: Callable[[bytes], bytes]) -> None:
    """Write a wheel anew with other compressed bytes; names, contents, dates and modes stay.

    `zipfile` cannot write a member that is compressed already, so the three kinds of records are packed here. A member
    that does not get smaller is stored as it is.
    """
    with zipfile.ZipFile(wheel) as opened:
        members = [(one, opened.read(one)) for one in opened.infolist()]
    body, directory = bytearray(), bytearray()
    for one, data in members:
        packed = deflate(data)
        method = zipfile.ZIP_DEFLATED if len(packed) < len(data) else zipfile.ZIP_STORED
        kept = packed if method == zipfile.ZIP_DEFLATED else data
        name = one.filename.encode()
        year, month, day, hour, minute, second = one.date_time
        date, clock = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
        # UTF-8 names, then method, date, checksum and sizes, as both records of a member have them.
        common = struct.pack("<5H3I2H", 20, 0x800, method, clock, date, one.CRC, len(kept), len(data), len(name), 0)
        attributes = struct.pack("<3H2I", 0, 0, 0, one.external_attr, len(body))
        directory += b"PK\x01\x02" + struct.pack("<H", one.create_system << 8 | 20) + common + attributes + name
        body += b"PK\x03\x04" + common + name + kept
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, len(members), len(members), len(directory), len(body), 0)
    wheel.write_bytes(body + directory + end)


def check_wheel(wheel: Path) -> list[str]:
    """Return lines about a wheel.

    Raises:
        ReleaseError: it is too heavy, or has files in it that users do not need.
    """
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        heaviest = sorted(opened.infolist(), key=lambda one: -one.compress_size)[:5]
    strange = strange_files(names)
    if strange:
        raise ReleaseError(f"{wheel.name} has files that users do not need: {', '.join(strange[:10])}")
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        listed = ", ".join(f"{one.filename} ({one.compress_size:,})" for one in heaviest)
        raise ReleaseError(f"{wheel.name} has {size:,} bytes, at most {MOST_BYTES:,} may go out; heaviest: {listed}")
    return [f"{wheel.name}: {size:,} bytes of at most {MOST_BYTES:,}, {len(names)} files, no test data"]


def strange_files(names: Iterable[str]) -> list[str]:
    """Return the names of a wheel that should not be in it."""
    return [
        name
        for name in names
        if not name.startswith(("everlong/", "everlong-", "everlong_"))
        or (_NOT_IN_A_WHEEL.search(name) and not name.startswith(_TEMPLATES))
    ]


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
