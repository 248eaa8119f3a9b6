"""What is installed is pinned: versions with hashes, from whatever index, for all that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from everlong.extras import install_command, list_extras

ROOT = Path(__file__).parent.parent
FILES = ("app", "browser", "build", "cluster", "dev", "docs", "local-model", "release")
EXTRAS = ("gateway", "inspector", "postgres", "anthropic", "openai")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned(name: str) -> dict[str, tuple[Requirement, int]]:
    """The requirements of a file by their names, each with the number of its hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, tuple[Requirement, int]] = {}
    for line in text.splitlines():
        asked, *hashes = re.split(r"\s+--hash=", line.strip())
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), line[:80]
        made = Requirement(asked)
        found[canonicalize_name(made.name)] = (made, len(hashes))
    return found


def grouped(name: str) -> list[str]:
    """The requirements of a dependency group, with those that it includes."""
    found: list[str] = []
    for one in PROJECT["dependency-groups"][name]:
        found += grouped(one["include-group"]) if isinstance(one, dict) else [one]
    return found


@pytest.mark.parametrize("name", FILES)
def test_each_requirement_has_one_version_and_hashes_and_no_address(name: str) -> None:
    assert not re.search(r"://|^-", (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8"), re.MULTILINE)
    for made, hashes in pinned(name).values():
        assert [one.operator for one in made.specifier] == ["=="], made
        assert hashes, f"{made} has no hash"


def asked_for() -> dict[str, list[str]]:
    project = PROJECT["project"]
    app = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    groups = {name: grouped(name) for name in ("browser", "build", "docs", "release")}
    return {"app": app, "dev": [*app, *grouped("dev")], **groups}


@pytest.mark.parametrize("name", ["app", "browser", "build", "dev", "docs", "release"])
def test_what_the_project_asks_for_is_there_in_a_version_that_it_allows(name: str) -> None:
    found = pinned(name)
    for one in asked_for()[name]:
        wanted = Requirement(one)
        made, _ = found[canonicalize_name(wanted.name)]
        (version,) = (exact.version for exact in made.specifier)
        assert version in wanted.specifier, f"{made} is not {wanted}; run: make lock"


def test_the_application_is_tested_with_what_it_is_installed_with() -> None:
    tested = pinned("dev")
    for name, (made, hashes) in {**pinned("app"), **pinned("build")}.items():
        assert (tested[name][0].specifier, tested[name][1]) == (made.specifier, hashes)


def test_what_could_break_us_with_a_major_version_has_a_bound() -> None:
    bound = [Requirement(one) for one in PROJECT["project"]["dependencies"]]
    open_ended = {one.name for one in bound if not any(part.operator == "<" for part in one.specifier)}
    assert open_ended == {
        "regex",
        "rich",
    }  # the one counts by the calendar, of the other only what never changed is used


@pytest.mark.parametrize("file", ["Makefile", "deploy/Containerfile"])
def test_nothing_is_installed_without_hashes(file: str) -> None:
    for line in (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        for command in re.split("&&|;", line):
            if re.search(r"pip\)? .*\binstall\b|pip install", command) and "pip-audit" not in command:
                assert "--require-hashes" in command or "--no-deps" in command, command


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/mira/project/.venv", "pip install aiohttp jinja2 markdown-it-py nh3"),
        ("/home/mira/.local/share/pipx/venvs/everlong", "pipx inject everlong aiohttp jinja2 markdown-it-py nh3"),
        (
            "/home/mira/.local/share/uv/tools/everlong",
            "uv pip install --python /home/mira/.local/share/uv/tools/everlong aiohttp jinja2 markdown-it-py nh3",
        ),
    ],
)
def test_the_command_fits_how_this_copy_was_installed(prefix: str, command: str) -> None:
    assert install_command("inspector", Path(prefix)) == command


@pytest.mark.parametrize(
    ("file", "begins"), [("pipx_metadata.json", "pipx inject env "), ("uv-receipt.toml", "uv pip ")]
)
def test_pipx_and_uv_are_known_by_the_file_that_they_leave(tmp_path: Path, file: str, begins: str) -> None:
    place = tmp_path / "env"
    place.mkdir()
    assert install_command("gateway", place).startswith("pip install ")
    (place / file).touch()
    assert install_command("gateway", place).startswith(begins)


def test_the_page_on_installing_names_the_extras_that_there_are() -> None:
    page = (Path(__file__).parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.split("| extra | for |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in row.split("|")[1].replace("`", "").split(", ")}
    assert {name.strip() for name in named} == {*list_extras()} - {"all"}
