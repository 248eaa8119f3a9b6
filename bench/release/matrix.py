"""The wheel on every Python with every extra: an environment for each, in which the program is used for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.release.tools import ReleaseError
from everlong.extras import list_extras

__all__ = ["EXTRAS", "Result", "check_matrix", "extras_of_all", "find_pythons", "table"]

EXTRAS = list_extras()
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_STEP_SECONDS = 900.0
"""The most seconds that one step of an installation may take."""
_BIN = "Scripts" if os.name == "nt" else "bin"
_PROBE = Path(__file__).parent / "probe.py"
_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@dataclass(frozen=True)
class Result:
    """An installation: what was tried, how long it took, and what was told if it went wrong."""

    python: str
    extra: str
    seconds: float
    packages: int
    told: str

    @property
    def is_ok(self) -> bool:
        """Whether everything worked."""
        return not self.told


def find_pythons(named: Sequence[str] = ()) -> dict[str, str]:
    """Return the interpreters of this machine by their version: those that are named, else all that can be found."""
    places = named or [path for path in map(_find, VERSIONS) if path]
    found = {_version(place): place for place in places}
    return {version: found[version] for version in sorted(found, key=lambda one: [*map(int, one.split("."))])}


def _find(version: str) -> str | None:
    uv = shutil.which("uv")
    if uv:  # it knows the places of pyenv, Homebrew and its own
        command = [uv, "python", "find", "--no-python-downloads", "--system", version]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            return asked.stdout.strip()
    return shutil.which(f"python{version}")


def _version(python: str) -> str:
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(f"{python} is no Python that runs: {error}") from error


def check_matrix(wheel: Path, pythons: dict[str, str], extras: Iterable[str], jobs: int = 2) -> list[Result]:
    """Install and use the wheel on each Python with each extra."""
    wanted = list(product(pythons, extras))
    with tempfile.TemporaryDirectory(prefix="everlong-release-") as folder, ThreadPoolExecutor(jobs) as pool:

        def check(pair: tuple[str, str]) -> Result:
            version, extra = pair
            made = _check(wheel.resolve(), pythons[version], version, extra, Path(folder) / f"{version}-{extra}")
            print(f"{version} {extra}: {'ok' if made.is_ok else 'FAILED'}, {made.seconds:.0f} s", file=sys.stderr)
            return made

        return list(pool.map(check, wanted))


def extras_of_all() -> list[str]:
    """Return the extras that `all` brings, as pyproject.toml lists them."""
    extras = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (listed,) = extras["all"]
    return re.findall(r"[\w-]+", listed)[1:]


def _check(wheel: Path, python: str, version: str, extra: str, folder: Path) -> Result:
    begun = time.monotonic()
    packages = 0
    try:
        installed = _install(wheel, python, extra, folder)
        packages = len(list(folder.glob("**/site-packages/*.dist-info")))
        probes = extras_of_all() if extra == "all" else [extra]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("EVERLONG_", "PYTHON"))}
        env |= {"EVERLONG_HOME": str(folder / "home"), "NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "default"}
        _run([str(installed), str(_PROBE), "none", *(one for one in probes if one != "none")], env, folder)
        told = ""
    except _StepError as error:
        told = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Result(version, extra, time.monotonic() - begun, packages, told)


def _install(wheel: Path, python: str, extra: str, folder: Path) -> Path:
    asked = str(wheel) if extra == "none" else f"{wheel}[{extra}]"
    installed = folder / _BIN / "python"
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", python, str(folder)])
        install = [uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", str(installed)]
    else:
        _run([python, "-m", "venv", str(folder)])
        install = [str(installed), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*install, asked])
    return installed


class _StepError(Exception):
    """A step that went wrong, with all that it printed."""


def _run(command: list[str], env: dict[str, str] | None = None, folder: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=env, cwd=folder, timeout=_STEP_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _StepError(f"    {error}") from error
    if done.returncode:
        shown = (done.stdout + done.stderr).strip()
        raise _StepError(re.sub(r"^", "    ", shown[-3_000:], flags=re.MULTILINE))


def table(results: Sequence[Result]) -> str:
    """Return the results as a table in Markdown: a row for each extra, a column for each Python."""
    versions = list(dict.fromkeys(one.python for one in results))
    rows = [f"| extra | {' | '.join(versions)} |", f"|---|{'---|' * len(versions)}"]
    cells = {(one.extra, one.python): one for one in results}
    for extra in dict.fromkeys(one.extra for one in results):
        found = [cells[extra, version] for version in versions]
        rows.append(
            f"| {extra} | "
            + " | ".join(f"ok, {one.packages} packages" if one.is_ok else "**fails**" for one in found)
            + " |"
        )
    return "\n".join(rows)
