"""The site's table of contents as ``llms.txt``: every page with its first sentence, for programs that read the site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["llms_text", "nav_pages"]

_FENCE = re.compile(r"^```.*?^```[ \t]*$|^<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MOST = 300


def nav_pages(nav: Sequence[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield section, title and file of every page of a navigation; a title is empty if the page has its own."""
    for entry in nav:
        if isinstance(entry, str):
            yield section, "", entry
            continue
        for title, below in entry.items():
            if isinstance(below, str):
                yield section, title, below
            else:
                yield from nav_pages(below, section or title)


def llms_text(nav: Sequence[Any], pages: Mapping[str, str], description: str) -> str:
    """Return the text: the program in a sentence, then a list of links for each section."""
    lines = ["# Everlong", "", f"> {description}"]
    before = None
    for section, title, file in nav_pages(nav):
        if section != before:
            lines += ["", f"## {section or 'Start'}", ""]
            before = section
        text = pages[file]
        name = title or _title(text)
        target = re.sub(r"^README\.md$", "index.md", file)
        lines.append(f"- [{name}]({target.removesuffix('.md')}.html): {first_sentence(text)}")
    return "\n".join(lines) + "\n"


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose, without links and blocks."""
    prose = _FENCE.sub("", text)
    paragraphs = [one.strip() for one in re.split(r"\n\s*\n", prose)]
    told = next(
        (one for one in paragraphs if one and one[0] not in "#|!<-0123456789" and not one.startswith("    ")), ""
    )
    plain = re.sub(r"\s+", " ", _LINK.sub(r"\1", told))
    sentence = re.match(r".*?[.:](?=\s|$)", plain)
    shown = (sentence[0] if sentence else plain).rstrip(":.")
    return f"{shown[:_MOST]}."
