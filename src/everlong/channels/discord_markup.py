"""Answers in Discord's dialect of Markdown.

Discord knows bold, italic, strike-through, code, links, quotations, lists and three levels of headings, but no tables,
rules or pictures. Characters that would style the text by accident are escaped, except in addresses and code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from everlong.channels.markup import MarkupBlock, MarkupSpan, Style, gap, is_visible, parse, split, utf16_length

__all__ = ["discord_pieces"]

_ADDRESS = re.compile(r"https?://[^\s<>]+")
_SPECIAL = re.compile(r"[\\*~`\[\]]|\|(?=\|)|(?<=\|)\||(?<!\w)_|_(?!\w)|<(?=[@#:ta/h])")
_LINE_START = re.compile(r"^(?=(?:#{1,3}|-#|>{1,3}|[-*+]) )", re.MULTILINE)
_NUMBER_START = re.compile(r"^(\d+)\. ", re.MULTILINE)
_MARKS: tuple[tuple[Style, str], ...] = (("bold", "**"), ("italic", "*"), ("strike", "~~"))
_RULE = "⎯" * 12
_HEADINGS = 3
_INDENT = "  "
_BULLETS = "•◦▪"


def discord_pieces(markdown: str, limit: int) -> list[str]:
    """Return Markdown as messages for Discord, none longer than a limit; no messages for an empty text."""
    pieces = split(parse(markdown), limit, lambda block: utf16_length(_write(block)))
    return [text for blocks in pieces if is_visible(text := _join(blocks))]


def _join(blocks: list[MarkupBlock]) -> str:
    text = ""
    for at, block in enumerate(blocks):
        text += (gap(blocks[at - 1], block) if at else "") + _write(block)
    return text


def _write(block: MarkupBlock) -> str:
    if block.kind == "code":
        text = _fence(block)
    elif block.kind == "rule":
        text = _RULE
    elif block.kind == "heading":
        words = _style(block.spans).replace("\n", " ")
        text = f"{'#' * block.level} {words}" if block.level <= _HEADINGS else f"**{words}**"
    else:
        text = _escape_lines(_style(block.spans))
    if block.indent and block.kind != "code":
        inset = _INDENT * (block.indent - 1)
        text = f"{inset}{_marker(block)} {text}" if block.marker else f"{inset}{_INDENT}{text}"
    if block.quote:
        text = "> " + text.replace("\n", "\n> ")
    return text


def _marker(block: MarkupBlock) -> str:
    return "-" if block.marker in _BULLETS else block.marker


def _fence(block: MarkupBlock) -> str:
    """Return a block of code. Three backticks in it would end it, so an invisible space parts them."""
    before = f"{_INDENT * (block.indent - 1)}{_marker(block)}\n" if block.marker else ""
    language = block.language if re.fullmatch(r"[\w+#.-]{1,20}", block.language) else ""
    code = block.text.replace("```", "`\u200b``")
    return f"{before}```{language}\n{code}\n```"


def _style(spans: tuple[MarkupSpan, ...]) -> str:
    """Return spans with the marks that open and close their styles, each link around its words."""
    text = ""
    for link, group in groupby(spans, key=lambda span: span.link):
        linked = list(group)
        words = "".join(_mark(linked))
        plain = "".join(span.text for span in linked)
        if not link:
            text += words
        elif not link.startswith(("http://", "https://")):
            text += words if plain == link else f"{words} ({_escape(link)})"
        elif plain == link:
            text += link
        else:
            text += f"[{words}](<{link}>)"
    return text


def _mark(spans: list[MarkupSpan]) -> Iterator[str]:
    open_marks: list[tuple[Style, str]] = []
    for span in spans:
        wanted = [style for style, _ in _MARKS if style in span.styles]
        while open_marks and any(style not in wanted for style, _ in open_marks):
            yield open_marks.pop()[1]
        for style, mark in _MARKS:
            if style in wanted and all(style != known for known, _ in open_marks):
                shown = "_" if style == "italic" and open_marks else mark
                open_marks.append((style, shown))
                yield shown
        yield _inline_code(span.text) if "code" in span.styles else _escape(span.text)
    while open_marks:
        yield open_marks.pop()[1]


def _inline_code(text: str) -> str:
    text = text.replace("\n", " ")
    if "`" not in text:
        return f"`{text}`"
    text = text.replace("``", "`\u200b`")
    return f"`` {text} ``"


def _escape(text: str) -> str:
    """Return a text that Discord shows as it stands; addresses stay as they are."""
    parts = []
    at = 0
    for found in _ADDRESS.finditer(text):
        parts += [_SPECIAL.sub(r"\\\g<0>", text[at : found.start()]), found[0]]
        at = found.end()
    parts.append(_SPECIAL.sub(r"\\\g<0>", text[at:]))
    return "".join(parts)


def _escape_lines(text: str) -> str:
    """Return a text whose lines do not begin like a heading, a quotation or a list."""
    return _NUMBER_START.sub(r"\1\\. ", _LINE_START.sub(r"\\", text))
