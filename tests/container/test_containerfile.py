"""deploy/Containerfile, step by step: what it copies, runs and starts, in a folder instead of an image."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
BASH = shutil.which("bash")


class Step(NamedTuple):
    stage: int
    kind: str
    words: str


def steps() -> list[Step]:
    """The instructions of the file, each with the number of its stage."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    found, stage = [], -1
    for line in filter(None, map(str.strip, text.splitlines())):
        kind, _, words = line.partition(" ")
        stage += kind == "FROM"
        found.append(Step(stage, kind, re.sub(r"\s+", " ", words)))
    return found


class Image:
    """A folder that stands for the file system of the image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = folder
        self.ran: list[str] = []

    def inside(self, words: str) -> str:
        """Lead absolute paths of an instruction into the folder."""
        return re.sub(r"(?<![\w./])/(opt|src|wheels|data)\b", rf"{self.folder}/\1", words)

    def take(self, step: Step) -> None:
        """Do what an instruction of the first stage says."""
        if step.kind == "WORKDIR":
            self.where = Path(self.inside(step.words))
            self.where.mkdir(parents=True, exist_ok=True)
        elif step.kind == "COPY":
            *sources, target = step.words.split()
            for source in sources:
                place = self.where / target
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, place)
        elif step.kind == "RUN":
            command = re.sub(r"(^|&& )python ", rf"\1{sys.executable} ", self.inside(step.words))
            # The same packages were installed for the tests: from pip's cache they take seconds.
            command = command.replace("--no-cache-dir ", "--disable-pip-version-check ")
            env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            assert BASH is not None
            done = subprocess.run(
                [BASH, "-ec", command], cwd=self.where, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{step.words}\n{done.stdout}{done.stderr}"
            self.ran.append(command)
        else:
            assert step.kind == "FROM", step


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    if BASH is None or sys.platform == "win32":
        pytest.skip("the image is for Linux, and its steps need bash")
    made = Image(tmp_path_factory.mktemp("image"))
    for step in steps():
        if step.stage == 0:
            made.take(step)
    return made


def last(kind: str) -> str:
    return [step.words for step in steps() if step.stage == 1 and step.kind == kind][-1]


def settings() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in last("ENV").split())


def test_the_steps_install_the_program_with_what_is_pinned(image: Image) -> None:
    assert len(image.ran) == 2
    done = subprocess.run(
        [image.folder / "opt/everlong/bin/everlong", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(image.folder), "PATH": os.environ["PATH"]},
    )
    assert done.stdout.startswith("everlong, version ")


def test_only_what_was_built_goes_into_the_image_and_nothing_runs_as_root() -> None:
    copied = [step.words for step in steps() if step.stage == 1 and step.kind == "COPY"]
    assert copied == ["--from=build /opt/everlong /opt/everlong"]
    (prepared,) = [step.words for step in steps() if step.stage == 1 and step.kind == "RUN"]
    number = re.search(r"useradd .*--uid (\d+)", prepared)
    assert number is not None
    assert last("USER") == number[1] != "0"
    assert (
        f"install --directory --owner everlong --group everlong --mode 0700 {settings()['EVERLONG_HOME']}" in prepared
    )
    assert last("VOLUME") == last("WORKDIR") == settings()["EVERLONG_HOME"]


@pytest.fixture
def environment(image: Image, tmp_path: Path) -> dict[str, str]:
    told = {name: value.replace("/opt", f"{image.folder}/opt") for name, value in settings().items()}
    return {
        **told,
        "PATH": told["PATH"].replace("$PATH", os.environ["PATH"]),
        "EVERLONG_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "EVERLONG_GATEWAY__PORT": "0",
    }


def test_it_does_not_start_without_a_key(image: Image, environment: dict[str, str], tmp_path: Path) -> None:
    command = json.loads(last("ENTRYPOINT"))
    program = image.folder / "opt/everlong/bin" / command[0]
    done = subprocess.run(
        [program, *command[1:]],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "without a key, because other machines could use it" in done.stderr


@pytest.fixture
def running(image: Image, environment: dict[str, str], tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The gateway as the image starts it, with a key, and its port."""
    keys = {
        "GATEWAY_KEY": "a-key-of-nobody-that-is-long-enough",
        "EVERLONG_GATEWAY__KEYS__TEAM__KEY_VARIABLE": "GATEWAY_KEY",
    }
    command = json.loads(last("ENTRYPOINT"))
    program = str(image.folder / "opt/everlong/bin" / command[0])
    env = environment | keys
    with subprocess.Popen([program, *command[1:]], env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        seen = ""
        for line in started.stderr:
            seen += line
            if found := re.search(r"http://[^\s\"/]*:(\d+)", line):
                yield started, found[1]
                break
        else:
            pytest.fail(f"the gateway did not start:\n{seen}")
        started.kill()


def test_it_starts_with_a_key_is_healthy_and_stops_by_its_signal(
    image: Image, environment: dict[str, str], running: tuple[subprocess.Popen[str], str]
) -> None:
    started, port = running
    _, _, check = last("HEALTHCHECK").partition("CMD ")
    assert last("EXPOSE") in check
    _, *words = [word.replace(last("EXPOSE"), port) for word in json.loads(check)]
    python = str(image.folder / "opt/everlong/bin/python")
    healthy = subprocess.run(
        [python, *words], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert healthy.returncode == 0, healthy.stderr
    started.send_signal(getattr(signal, last("STOPSIGNAL")))
    assert started.wait(PATIENCE) == 0
