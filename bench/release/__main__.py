"""The commands of a release: ``python -m bench.release build``, ``notes``, ``matrix``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bench.release.artifacts import build, check_archive, check_wheel, run_twine
from bench.release.matrix import EXTRAS, check_matrix, find_pythons, table
from bench.release.notes import project_version, release_notes
from bench.release.tools import ReleaseError

ROOT = Path(__file__).parent.parent.parent


@click.group()
def release() -> None:
    """Make, describe and check a release."""


@release.command("build")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "dist", show_default="dist")
@click.option("--isolated/--no-isolation", default=False, help="Let build fetch its own hatchling.")
def build_command(out: Path, *, isolated: bool) -> None:
    """Build the wheel and the source archive, and check contents and description."""
    wheel, archive = build(ROOT, out, isolated=isolated)
    for line in (*check_wheel(wheel), *check_archive(archive), *run_twine([wheel, archive])):
        print(line)


@release.command("notes")
@click.argument("version", required=False)
def notes_command(version: str | None) -> None:
    """Print the notes of a version: its section of CHANGELOG.md. Without VERSION, of the one in the code."""
    print(release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version or project_version(ROOT)))


@release.command("version")
@click.argument("tag", required=False)
def version_command(tag: str | None) -> None:
    """Print the version of the code; with TAG, fail unless the tag is that version's."""
    version = project_version(ROOT)
    if tag is not None and tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, and the code says {version}; tag v{version}, or change __version__")
    print(version)


@release.command("matrix")
@click.argument("wheel", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--python", "pythons", multiple=True, help="An interpreter; by default all from 3.11 to 3.14.")
@click.option("--extra", "extras", multiple=True, help="An extra, or none; by default none, each alone, and all.")
@click.option("--jobs", default=2, show_default=True, help="How many environments are made at once.")
def matrix_command(wheel: Path, pythons: tuple[str, ...], extras: tuple[str, ...], jobs: int) -> None:
    """Install the wheel on every Python with every extra, use it, and print a table."""
    found = find_pythons(pythons)
    if not found:
        raise ReleaseError("no Python from 3.11 to 3.14 was found; name one with --python")
    results = check_matrix(wheel, found, extras or ("none", *EXTRAS, "all"), jobs=jobs)
    print(table(results))
    failed = [one for one in results if not one.is_ok]
    for one in failed:
        print(f"\n{one.python}, {one.extra}:\n{one.told}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        release(standalone_mode=False)
    except (ReleaseError, click.ClickException) as error:
        sys.exit(f"release: {error}")
