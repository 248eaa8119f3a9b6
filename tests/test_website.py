"""What the site is made from: the reference out of the code, its navigation, and the messages that it explains."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from bench.record_chat.still import STILLS
from ruamel.yaml import YAML
from website.reference import PACKAGES, api_part, commands_part, settings_part
from website.table_of_contents import llms_text, nav_pages

import everlong
from everlong.cli.chat.command import command_registry
from everlong.cli.main import cli
from everlong.config import load_settings
from everlong.config.listing import NAMED

ROOT = Path(__file__).parent.parent
CONFIG: dict[str, Any] = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
MADE = {"changelog.md"}
"""Pages that have no file in docs/."""


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [file for _, _, file in nav_pages(CONFIG["nav"])]
    assert sorted(listed) == sorted({path.name for path in (ROOT / "docs").glob("*.md")} | MADE)


def test_the_reference_has_every_setting_with_its_default() -> None:
    text = settings_part()
    keys = [key for key in load_settings().origins if not key.startswith("plugins.") and key not in NAMED]
    assert len(keys) > 40
    assert [key for key in keys if f"| `{key}` |" not in text] == []
    assert "| `compression.protect_last_n` | `20` | a whole number from 1 to 1,000,000,000 |" in text
    assert "| `gateway.keys.NAME.dollars_per_day` |" in text


def test_the_reference_has_every_command_and_option() -> None:
    text = commands_part()

    def check(command: click.Command, path: str) -> None:
        assert f"## {path}\n" in text
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                if below is not None and not below.hidden:
                    check(below, f"{path} {name}")

    check(cli, "everlong")
    assert "| `--focus TEXT` |" in text
    assert [name for name in command_registry().commands if f"| `/{name}" not in text] == []


def test_the_reference_has_every_exported_name_with_its_example() -> None:
    text = api_part()
    for name in everlong.__all__:
        entry = re.search(rf"^### {name}\n(.*?)(?=^#{{2,3}} |\Z)", text, re.DOTALL | re.MULTILINE)
        assert entry is not None, name
        assert "```pycon\n>>> " in entry[1], name
    others = {name for package in PACKAGES for name in import_module(package).__all__}
    assert [name for name in others if f"### {name}\n" not in text] == []


def test_the_table_of_contents_has_a_sentence_for_each_page() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    text = llms_text(CONFIG["nav"], pages | dict.fromkeys(MADE, "# Made\n\nFrom the code."), "Keeps going.")
    assert text.startswith("# Everlong\n\n> Keeps going.\n")
    assert "- [Comparison](comparison.html): What else keeps an agent going" in text


def test_every_explained_message_is_one_of_the_program() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    spoken = re.sub(r'"\s*\n\s*f?"', "", code)  # a message may stand on several lines
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(explained) > 5
    assert [words for words in explained if words not in spoken] == []


def test_every_picture_comes_from_a_script() -> None:
    makers = [ROOT / "bench" / name for name in ("inspector_pictures.py", "house.py", "public/page.py")]
    scripts = "".join(maker.read_text(encoding="utf-8") for maker in makers)
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for picture in re.findall(r"!\[[^\]]+\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            file = (page.parent / picture).resolve()
            assert file.is_file(), f"{page.name}: {picture}"
            drawn = {file.name, file.stem, file.stem.removeprefix("inspector-")}
            assert file.name in STILLS or any(name in scripts for name in drawn), picture


DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The places of a page that a link may name, as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for page, link in [(one, link) for one in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", prose(one))]:
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page} links to {link}, and there is no such heading"


def test_the_index_has_every_page() -> None:
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose(DOCS / "README.md"))}
    assert [page.name for page in DOCS.glob("*.md") if page.name not in linked | {"README.md"}] == []


@pytest.mark.parametrize("name", ["development.md", "glossary.md", "how-it-works.md"])
def test_every_file_of_the_map_exists(name: str) -> None:
    named = set(re.findall(r"`((?:[\w.]+/)*[\w.]+\.py|(?:[\w.]+/)+)`", prose(DOCS / name)))
    places = (ROOT / "src" / "everlong", ROOT)
    gone = [file for file in sorted(named) if "NAME" not in file and not any((at / file).exists() for at in places)]
    assert gone == [], f"docs/{name} names files that are not there"


def test_every_package_is_in_the_table_of_the_map() -> None:
    page = prose(DOCS / "development.md")
    packages = [path.parent.name for path in (ROOT / "src" / "everlong").glob("*/__init__.py")]
    assert packages
    assert [name for name in packages if f"| `{name}/` |" not in page] == []
