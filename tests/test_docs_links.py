"""Links of the documentation lead somewhere, the index has every page, and file names of the map exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
