"""The rendering of pages: templates, and how figures, times and words are written in them.

Every text is escaped by the templates, shown without invisible characters, and words of conversations pass `said`,
which takes secrets out.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import nh3
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from everlong.inspector.pages.transcript import page_of_turn
from everlong.model import format_share
from everlong.redaction import redact
from everlong.store.transcripts import one_line, plain

__all__ = [
    "BASE",
    "LANGUAGES",
    "Translate",
    "choose_language",
    "load_texts",
    "render",
    "render_markdown",
    "said",
    "stream",
    "translator",
]

BASE = "/inspector"
"""The path under which all pages lie."""
_PIECES = 64
"""Pieces of a template that are sent together."""
_FLUSH = Markup("<!-- -->")
"""The mark in a template up to which a page is sent before the rest is made."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("everlong.inspector"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
        cache_size=-1,
        auto_reload=False,
    )
    made.filters |= {
        "count": format_count,
        "dollars": format_dollars,
        "line": lambda text: one_line(said(text)),
        "markdown": lambda text: render_markdown(said(text)),
        "said": said,
        "seconds": format_seconds,
        "segment": lambda text: quote(str(text), safe=""),
        "share": format_share,
        "short": format_short,
        "when": format_time,
    }
    made.globals |= {
        "BASE": BASE,
        "FLUSH": _FLUSH,
        "LANGUAGES": LANGUAGES,
        "VERSION": version("everlong"),
        "asset": asset,
        "change": format_change,
        "page_of_turn": page_of_turn,
        "query": format_query,
    }
    return made


def render(name: str, language: str, values: Mapping[str, Any]) -> str:
    """Return a page, or a part of one, from its template."""
    return _environment().get_template(name).render(t=translator(language), language=language, **values)


def stream(name: str, language: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a page in pieces, so that its beginning can be sent before its end is made."""
    held: list[str] = []
    for piece in _environment().get_template(name).generate(t=translator(language), language=language, **values):
        held.append(piece)
        if len(held) >= _PIECES or piece == _FLUSH:
            yield "".join(held)
            held.clear()
    if held:
        yield "".join(held)


def _visible(value: Any) -> Any:
    """Return a value as templates print it: every character of a text can be seen."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=4_000)
def said(text: str) -> str:
    """Return words of a conversation without the secrets in them."""
    return redact(text)


@cache
def asset(name: str) -> str:
    """Return the address of a file of ours; it changes with the file, so that browsers may keep it."""
    data = (files("everlong.inspector") / "static" / name).read_bytes()
    return f"{BASE}/static/{name}?v={hashlib.sha256(data).hexdigest()[:12]}"


def format_count(value: int | None) -> str:
    """Return a number with separators; a dash if it is not known."""
    return "–" if value is None else f"{value:,}"


def format_change(before: int | None, after: int | None) -> str:
    """Return two numbers with an arrow between them; one that is not known is left out."""
    return " → ".join(f"{value:,}" for value in (before, after) if value is not None)


def format_short(value: int | None) -> str:
    """Return a number in few characters: 950, 12.3k, 4.5M, 1.2B; a dash if it is not known."""
    if value is None:
        return "–"
    if abs(value) < 1_000:
        return str(value)
    if abs(value) < 999_500:
        return f"{value / 1_000:.3g}k"
    if abs(value) < 999_500_000:
        return f"{value / 1_000_000:.3g}M"
    return f"{value / 1_000_000_000:,.3g}B" if abs(value) < 999.5e9 else f"{value / 1e9:,.0f}B"


def format_seconds(value: float | None) -> str:
    """Return how long something took; nothing if it is not known."""
    if value is None:
        return ""
    return f"{value:,.1f} s" if value < 100 else f"{value / 60:,.0f} min"


def format_dollars(value: float | Decimal | None) -> str:
    """Return US dollars, rounded to the cent, or finer below one dollar; a dash if they are not known."""
    if value is None:
        return "–"
    if not value:
        return "$0"
    sign = "−" if value < 0 else ""
    amount = abs(float(value))
    return f"{sign}${amount:,.2f}" if amount >= 1 else f"{sign}${amount:,.4f}"


def format_time(seconds: float | None) -> Markup:
    """Return a time on this machine's clock, in a form that scripts can read too."""
    if seconds is None:
        return Markup("–")
    try:
        at = datetime.fromtimestamp(seconds, UTC)
        shown = f"{at.astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return escape(str(seconds))
    return Markup('<time datetime="{}">{}</time>').format(f"{at:%Y-%m-%dT%H:%M:%SZ}", shown)


def format_query(**values: Any) -> str:
    """Return the query of an address, without values that are empty."""
    told = urlencode({name: str(value) for name, value in values.items() if value not in (None, "")})
    return f"?{told}" if told else ""


# -- texts in every language -------------------------------------------------------------------------------------------


LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
"""The languages, by the name that addresses and cookies use."""

Translate = Callable[..., str]


@cache
def load_texts() -> dict[str, dict[str, str]]:
    """Return all texts by ``section.name``, each in every language."""
    data = tomllib.loads((files("everlong.inspector") / "texts.toml").read_text(encoding="utf-8"))
    return {f"{section}.{name}": texts for section, entries in data.items() for name, texts in entries.items()}


def translator(language: str) -> Translate:
    """Return the function that gives a text in a language, with its names filled in."""
    texts = load_texts()

    def translate(key: str, **values: Any) -> str:
        return texts[key][language].format(**values)  # a value that is missing is an error, never `{name}` on a page

    return translate


def choose_language(asked: str | None, kept: str | None, accepted: str) -> str:
    """Return the language for a reader: the one asked for, else the one kept, else the first that the browser wants."""
    for wanted in (asked, kept):
        if wanted is not None and wanted in LANGUAGES:
            return wanted
    ranked = (item.strip().lower()[:2] for item in accepted.split(","))  # browsers name what they want most first
    return next((name for name in ranked if name in LANGUAGES), "en")


# -- Markdown made safe: parsed without HTML, pictures or foreign schemes, and sanitised once more ---------------------


LONGEST = 20_000
"""Longer texts are shown as they are: to parse one would take longer than a reader waits."""
_REMEMBERED = 4_000
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h5", "hr", "li", "ol", "p", "pre"),
    *("s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
_SCHEMES = {"http", "https", "mailto"}


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
    tokens = _parser().parse(shown)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = "h5"  # the headings above belong to the page
        for inner in token.children or ():
            if inner.markup == "__":  # a name such as __init__.py, not bold words
                inner.type, inner.content = "text", "__"
    made = _parser().renderer.render(tokens, _parser().options, {})
    cleaned = nh3.clean(
        made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer nofollow"
    )
    return Markup(cleaned)  # noqa: S704 - sanitised
