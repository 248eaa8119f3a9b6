"""The site as CI builds it: strict, with every link inside leading somewhere, and nothing from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent.parent
FETCHED = {(tag, "src") for tag in ("script", "img", "iframe", "source", "video", "audio", "embed")}
"""Attributes whose address a browser fetches by itself."""
RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
"""Kinds of ``<link>`` that a browser fetches by itself."""


class Page(HTMLParser):
    """The addresses of a page: what a browser fetches, where its links lead, and the places that links may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.places |= {named[name] for name in ("id", "name") if name in named}
        self.fetched += [named[name] for kind, name in FETCHED if kind == tag and name in named]
        if tag == "link" and RELATIONS & set(named.get("rel", "").split()):
            self.fetched.append(named.get("href", ""))
        if tag == "a" and "href" in named:
            self.links.append(named["href"])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs mkdocs-material: make site")
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > 20
    return found


def test_no_font_script_style_or_picture_comes_from_another_host(site: Path) -> None:
    strange = [
        f"{path.name}: {address}"
        for path in pages(site)
        for address in page(path).fetched
        if urlsplit(address).netloc or urlsplit(address).scheme not in {"", "data"}
    ]
    assert strange == []


def test_no_style_fetches_from_another_host(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        named = re.findall(r"(?:url\(|@import )\s*[\"']?([^\"')\s]+)", style.read_text(encoding="utf-8"))
        assert [one for one in named if re.match(r"(?:https?:)?//", one)] == [], style.name


def test_every_link_inside_leads_to_a_page_and_a_place_on_it(site: Path) -> None:
    broken = []
    for path in pages(site):
        for link in (*page(path).links, *page(path).fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                broken.append(f"{path.name}: {link} is a folder, which opens no page from a file")
            elif not target.exists():
                broken.append(f"{path.name}: {link}")
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page(target).places:
                broken.append(f"{path.name}: {link} names no place")
    assert broken == []


def test_every_page_of_the_documentation_is_there(site: Path) -> None:
    for source in (ROOT / "docs").glob("*.md"):
        assert (site / source.name.replace("README.md", "index.md")).with_suffix(".html").is_file()


def test_the_table_of_contents_for_programs_names_pages_that_exist(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    named = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): .{10,}\.$", text, re.MULTILINE)
    assert len(named) == text.count("\n- ") > 20
    assert [name for name in named if not (site / name).is_file()] == []


def test_the_search_knows_what_is_made_from_the_code(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    for place in (
        "configuration.html#compression",
        "commands.html#everlong-compress",
        "api.html#contextcompressor",
        "changelog.html",
    ):
        assert place in index
