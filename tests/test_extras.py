"""The command that adds an extra, for each way in which Everlong may be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.extras import install_command, list_extras


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
