"""The built wheel, installed into a fresh environment and used there as a person would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from bench.release.artifacts import strange_files
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
BIN = "Scripts" if os.name == "nt" else "bin"


def call(*command: str | Path, **options: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | options
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # The tests' environment has the build tool; without isolation nothing has to be fetched.
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires, and nothing else; `make release-check` asks an index."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / BIN / "python"
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile")
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    (site,) = (folder / ("Lib" if os.name == "nt" else "lib")).rglob("site-packages")
    (about,) = site.glob("everlong-*.dist-info")
    for name in required(Distribution.at(about)):
        for file in distribution(name).files or ():
            # Nothing is copied: a package is linked as a whole, and so is a module.
            top = site / file.parts[0]
            if file.parts[0] not in {"..", "__pycache__"} and not top.exists():
                top.symlink_to(str(distribution(name).locate_file(file.parts[0])))
    return folder / BIN


def required(of: Distribution) -> set[str]:
    """The names of all packages that one requires without its extras, and of those that they require."""
    found: set[str] = set()
    waiting = [(of, "")]
    while waiting:
        package, extra = waiting.pop()
        for text in package.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                new = {needed.name, *(f"{needed.name}[{one}]" for one in needed.extras)} - found
                found |= new
                waiting += [(distribution(needed.name), one) for one in ("", *needed.extras) if new]
    return {name for name in found if "[" not in name}


def test_the_wheel_carries_code_types_licence_and_the_demo_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "everlong/py.typed" in names
    assert "everlong/cli/demo_session/session.jsonl.zst" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert strange_files(names) == []
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/everlong").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == source


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("serve",), "the gateway is not installed; install it with: pip install aiohttp genai-prices tomlkit"),
        (
            ("inspect", "--web"),
            "the inspector is not installed; install it with: pip install aiohttp jinja2 markdown-it-py nh3",
        ),
    ],
)
def test_a_command_whose_extra_is_not_installed_says_what_to_install(
    arguments: tuple[str, ...], told: str, installed: Path, tmp_path: Path
) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(
        [installed / "everlong", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "EVERLONG_HOME": str(tmp_path)},
    )
    assert ran.returncode == 1
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_installed_program_finds_itself_well_without_an_extra(installed: Path, tmp_path: Path) -> None:
    assert "none is switched on" in call(installed / "everlong", "doctor", EVERLONG_HOME=str(tmp_path / "home"))


def test_the_installed_program_compacts_a_file(installed: Path, tmp_path: Path) -> None:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"word {n} " * 300} for n in range(60)]
    path = tmp_path / "session.json"
    path.write_text(json.dumps(messages), encoding="utf-8")
    home = str(tmp_path / "home")
    out = call(installed / "everlong", "compress", path, "--context-length", "8000", EVERLONG_HOME=home)
    assert len(json.loads(out)) < 60


def test_the_installed_library_can_be_imported(installed: Path) -> None:
    code = "import everlong; print(everlong.ContextCompressor(8000).threshold_tokens)"
    assert call(installed / "python", "-c", code).strip() == "6000"
