"""The built wheel, installed into a fresh environment and used there as a person would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from bench.release.artifacts import MOST_BYTES, strange_files
from bench.release.parts import PARTS, take_apart
from packaging.requirements import Requirement

import everlong
from everlong.extras import PARTS as EXTRAS_OF_PARTS

ROOT = Path(__file__).parent.parent
BIN = "Scripts" if os.name == "nt" else "bin"


def call(*command: str | Path, **options: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | options
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dist")
    # The tests' environment has the build tool; without isolation nothing has to be fetched.
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return take_apart(built)


@pytest.fixture(scope="module")
def wheel(wheels: list[Path]) -> Path:
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires, and nothing else; `make release-check` asks an index."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / BIN / "python"
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
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


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(opened.read(name))


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
    assert "everlong/plugins/template_files/tests/test_engine.py.txt" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert strange_files(names) == []
    assert wheel.stat().st_size < MOST_BYTES


def test_the_parts_hold_what_the_wheel_leaves_out_each_file_once(wheels: list[Path]) -> None:
    held = [{name for name in zipfile.ZipFile(one).namelist() if name.startswith("everlong/")} for one in wheels]
    for part, names in zip(PARTS, held[1:], strict=True):
        assert {name.split("/")[1] for name in names} == {*part.folders}
        assert not held[0] & names
    source = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/everlong").rglob("*.py") if path.is_file()
    }
    assert {name for names in held for name in names if name.endswith(".py")} == source


def test_an_extra_brings_the_part_that_it_needs(wheels: list[Path]) -> None:
    version = everlong.__version__
    required = metadata_of(wheels[0]).get_all("Requires-Dist") or []
    for part, one in zip(PARTS, wheels[1:], strict=True):
        about = metadata_of(one)
        assert (about["Name"], about["Version"]) == (part.name, version)
        assert about.get_all("Requires-Dist") == [f"everlong=={version}"]
        bringing = {f"{part.name}=={version}; extra == '{extra}'" for extra in part.extras}
        assert bringing == {line for line in required if line.startswith(part.name)}
    assert {*EXTRAS_OF_PARTS.values()} <= {extra for part in PARTS for extra in part.extras}
    assert {*EXTRAS_OF_PARTS} == {folder for part in PARTS for folder in part.folders}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("serve",), "the gateway is not installed; install it with: pip install 'everlong[gateway]'"),
        (("inspect", "--web"), "the inspector is not installed; install it with: pip install 'everlong[inspector]'"),
        (("channels", "list"), "this needs everlong.channels, which is not installed; install it with: pip install"),
        (("setup", "claude-code"), "this needs everlong.gateway, which is not installed; install it with: pip install"),
    ],
)
def test_a_command_whose_part_is_not_installed_says_what_to_install(
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


def test_the_installed_program_forgets_and_finds_itself_well_without_its_parts(installed: Path, tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text(json.dumps([{"role": "user", "content": "The cormorant nests."}]), encoding="utf-8")
    home = str(tmp_path / "home")
    call(installed / "everlong", "sessions", "import", path, EVERLONG_HOME=home)
    call(installed / "everlong", "sessions", "forget", "cormorant", "--yes", EVERLONG_HOME=home)
    assert "cormorant" not in call(installed / "everlong", "sessions", "export", "--all", EVERLONG_HOME=home)
    assert "not installed, and none is switched on" in call(installed / "everlong", "doctor", EVERLONG_HOME=home)


def test_a_part_is_found_once_it_is_installed_too(wheels: list[Path], installed: Path, tmp_path: Path) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target", tmp_path)
    call(sys.executable, "-m", "pip", "--python", installed / "python", "install", *options, *wheels)
    code = (
        "import everlong.testing; from everlong.extras import PARTS, has_part\n"
        "print(everlong.__file__, everlong.testing.ModelServer.__name__, [has_part(name) for name in sorted(PARTS)])"
    )
    ran = subprocess.run(
        [installed / "python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert ran.stdout.strip() == f"{tmp_path / 'everlong/__init__.py'} ModelServer [True, True, True, True]"


def test_the_installed_program_compacts_a_file(installed: Path, tmp_path: Path) -> None:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"word {n} " * 300} for n in range(60)]
    path = tmp_path / "session.json"
    path.write_text(json.dumps(messages), encoding="utf-8")
    home = str(tmp_path / "home")
    out = call(installed / "everlong", "compress", path, "--context-length", "8000", EVERLONG_HOME=home)
    assert len(json.loads(out)) < 60


def test_the_installed_program_plays_the_demo(installed: Path, tmp_path: Path) -> None:
    shown = call(installed / "everlong", "demo", "--fast", EVERLONG_HOME=str(tmp_path))
    assert "What to run next" in shown


def test_the_installed_library_can_be_imported(installed: Path) -> None:
    code = "import everlong; print(everlong.ContextCompressor(8000).threshold_tokens)"
    assert call(installed / "python", "-c", code).strip() == "6000"
