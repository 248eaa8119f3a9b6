"""A long session with an engine from a package that others wrote, with a restart in the middle."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import everlong
from tests.examples import length
from tests.plugins.making import SAMPLES

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "long_session.py"
HALF = str(length(150, 15))
"""Turns before the restart, and after it."""
BIN = "Scripts" if os.name == "nt" else "bin"


def ran(python: Path | str, *arguments: str, cwd: Path, **env: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    run = subprocess.run(
        [str(python), str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**kept, **env},
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def check(half: dict[str, Any], engine: str) -> None:
    assert half["engine"] == engine
    assert half["stops"] == ["end"]
    assert half["notices"] == []
    assert half["rejections"] == []
    assert half["fallbacks"] == []
    assert half["problems"] == 0
    assert half["largest"] <= 8_000
    assert half["outcomes"].count("compacted") >= int(HALF) // 15


@pytest.fixture(scope="module")
def wheel_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment in which the wheel of an engine is installed, and which sees Everlong."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = made_wheel(folder)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / BIN / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)
    (site,) = (folder / "venv").rglob("site-packages")
    ours = [Path(everlong.__file__).parents[1], sysconfig.get_paths()["purelib"], ROOT]
    (site / "everlong.pth").write_text("".join(f"{path}\n" for path in ours), encoding="utf-8")
    return python


def made_wheel(folder: Path) -> Path:
    """The wheel of the sample package, made as build tools make it."""
    about = "tally_engine-2.0.1.dist-info"
    files = {
        "tally_engine/__init__.py": (SAMPLES / "tally" / "tally_engine" / "__init__.py").read_bytes(),
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: tally-engine\nVersion: 2.0.1\n"
        b"Summary: Counts what it drops.\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": b"[everlong.engines]\ntally = tally_engine:make_engine\n",
    }
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    path = folder / "tally_engine-2.0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n".encode()}.items():
            archive.writestr(name, data)
    return path


@pytest.mark.spec("2.1", "2.2")
def test_an_engine_in_a_wheel_keeps_a_long_session_and_survives_a_restart(
    tmp_path: Path, home: Path, wheel_python: Path
) -> None:
    file, tally = str(tmp_path / "store.db"), tmp_path / "tally.json"
    env = {"EVERLONG_HOME": str(home), "PYTHONPATH": "", "TALLY_FILE": str(tally)}
    first = ran(wheel_python, file, "tally", "0", HALF, cwd=tmp_path, **env)
    check(first, "tally")
    dropped = int(tally.read_text(encoding="utf-8"))
    second = ran(wheel_python, file, "tally", HALF, HALF, first["session"], cwd=tmp_path, **env)
    check(second, "tally")
    assert int(tally.read_text(encoding="utf-8")) > dropped > int(HALF)
