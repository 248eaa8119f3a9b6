"""Markdown made safe: parsed without HTML, pictures or foreign schemes, and sanitised once more."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

from everlong.store.transcripts import plain

__all__ = ["render_markdown"]

LONGEST = 20_000
"""Longer texts are shown as they are: to parse one would take longer than a reader waits."""
_REMEMBERED = 4_000
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h5", "hr", "li", "ol", "p", "pre"),
    *("s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
_SCHEMES = {"http", "https", "mailto"}
_SYNTAX = re.compile(r"[`*_~#\[\]<>|&\\]|^\s*(?:[-+]\s|\d+[.)]\s|={3,}|-{3,})|^ {4}|\t", re.MULTILINE)
"""Characters without which a text has no Markdown in it."""
_PARAGRAPH = re.compile(r"\n\s*\n")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    return parser.disable(["image", "html_block", "html_inline"])


@lru_cache(maxsize=_REMEMBERED)
def render_markdown(text: str) -> Markup:
    """Return a text as HTML without anything that could run, load or leave the page unasked."""
    shown = plain(text)
    if len(shown) > LONGEST:
        return Markup(f'<div class="plain">{escape(shown)}</div>')  # noqa: S704 - escaped
    if not _SYNTAX.search(shown):
        paragraphs = (escape(one.strip("\n")) for one in _PARAGRAPH.split(shown) if one.strip())
        return Markup("".join(f"<p>{one}</p>" for one in paragraphs))  # noqa: S704 - escaped
    tokens = _parser().parse(shown)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = "h5"  # the headings above belong to the page
    made = _parser().renderer.render(tokens, _parser().options, {})
    cleaned = nh3.clean(
        made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer nofollow"
    )
    return Markup(cleaned)  # noqa: S704 - sanitised
