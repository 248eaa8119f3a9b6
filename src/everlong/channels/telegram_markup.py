"""Answers as Telegram shows them: blocks of Markdown as a small HTML, and that HTML as text with entities.

A message goes out as plain text and a list of entities, which Telegram cannot refuse to read. The HTML is only the form
in which one piece of an answer is a single string; it has the tags that Telegram's own HTML has.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from everlong.channels.markup import MarkupBlock, MarkupSpan, gap, is_visible, parse, split, utf16_length

__all__ = ["Entity", "EntityType", "read_piece", "write_pieces"]

EntityType = Literal["bold", "italic", "underline", "strikethrough", "code", "pre", "text_link", "blockquote"]

MOST_ENTITIES = 100
"""Entities of one message that Telegram looks at; it ignores the others."""
_TAGS: dict[str, EntityType] = {
    "b": "bold",
    "i": "italic",
    "u": "underline",
    "s": "strikethrough",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "blockquote": "blockquote",
}
_NEEDED = ("pre", "code", "text_link")
"""The entities that a message with too many of them keeps first."""
_NAMES = "|".join(_TAGS)
_TAG = re.compile(rf'<(?:({_NAMES})(?: (?:href|lang)="([^"<>]*)")?|/({_NAMES}))>')
_STYLE_TAGS = (("bold", "b"), ("italic", "i"), ("strike", "s"))
_LINKS = ("http://", "https://", "tg://", "mailto:")
_RULE = "⸻"
_INDENT = "   "


@dataclass(frozen=True, slots=True)
class Entity:
    """A styled stretch of a message, in UTF-16 code units as Telegram counts."""

    type: EntityType
    offset: int
    length: int
    detail: str = ""
    """The address of a link, or the language of a block of code."""


# -- writing -----------------------------------------------------------------------------------------------------------
def write_pieces(markdown: str, limit: int) -> list[str]:
    """Return Markdown as the HTML of messages, none of which shows more than a number of UTF-16 units."""
    pieces = split(parse(markdown), limit, lambda block: utf16_length(read_piece(_write(block))[0]))
    written = [_join(blocks) for blocks in pieces]
    return [piece for piece in written if is_visible(read_piece(piece)[0])]


def _join(blocks: list[MarkupBlock]) -> str:
    """Return the blocks of one message; neighbours of one quotation are one quotation."""
    text = ""
    for at, block in enumerate(blocks):
        before = blocks[at - 1] if at else None
        goes_on = before is not None and _is_quoted(before) and _is_quoted(block)
        if before is not None:
            if goes_on:
                text = text.removesuffix("</blockquote>")
            text += gap(before, block)
        text += _write(block).removeprefix("<blockquote>") if goes_on else _write(block)
    return text


def _is_quoted(block: MarkupBlock) -> bool:
    return block.quote > 0 and block.kind != "code"


def _write(block: MarkupBlock) -> str:
    if block.kind == "code":
        language = f' lang="{html.escape(block.language)}"' if block.language else ""
        before = f"{_INDENT * (block.indent - 1)}{block.marker}\n" if block.marker else ""
        return f"{before}<pre{language}>{html.escape(block.text, quote=False)}</pre>"
    if block.kind == "rule":
        text = _RULE
    elif block.kind == "heading":
        inner = "".join(_style(span, outer="bold") for span in block.spans)
        text = f"<b><u>{inner}</u></b>" if block.level == 1 else f"<b>{inner}</b>"
    else:
        text = "".join(_style(span) for span in block.spans)
    if block.indent:
        before = _INDENT * (block.indent - 1)
        text = f"{before}{block.marker} {text}" if block.marker else f"{before}{_INDENT}{text}"
    return f"<blockquote>{text}</blockquote>" if _is_quoted(block) else text


def _style(span: MarkupSpan, outer: str = "") -> str:
    """Return a span with its tags. Telegram takes no other entity in code, and no code in a link."""
    text = html.escape(span.text, quote=False)
    if span.link.startswith(_LINKS):
        text = f'<a href="{html.escape(span.link)}">{text}</a>'
    elif span.link and span.link != span.text:
        text = f"{text} ({html.escape(span.link, quote=False)})"
    elif "code" in span.styles and not outer:
        return f"<code>{text}</code>"
    for style, tag in _STYLE_TAGS:
        if style in span.styles and style != outer:
            text = f"<{tag}>{text}</{tag}>"
    return text


# -- reading -----------------------------------------------------------------------------------------------------------
def read_piece(piece: str) -> tuple[str, list[Entity]]:
    """Return the text of a piece and its entities. What is no tag of ours stays as it stands."""
    text: list[str] = []
    at = 0
    entities: list[Entity] = []
    opened: list[tuple[str, int, str]] = []
    for kind, value, detail in _tokens(piece):
        if kind == "text":
            text.append(value)
            at += utf16_length(value)
        elif kind == "open":
            opened.append((value, at, detail))
        else:
            found = next((place for place in reversed(range(len(opened))) if opened[place][0] == value), None)
            if found is None:
                continue
            name, start, about = opened.pop(found)
            if at > start:
                entities.append(Entity(_TAGS[name], start, at - start, about))
    if len(entities) > MOST_ENTITIES:
        entities = sorted(entities, key=lambda entity: entity.type not in _NEEDED)[:MOST_ENTITIES]
    entities.sort(key=lambda entity: (entity.offset, -entity.length))
    return "".join(text), entities


def _tokens(piece: str) -> Iterator[tuple[Literal["text", "open", "close"], str, str]]:
    at = 0
    for found in _TAG.finditer(piece):
        if found.start() > at:
            yield "text", html.unescape(piece[at : found.start()]), ""
        if found[1]:
            yield "open", found[1], html.unescape(found[2] or "")
        else:
            yield "close", found[3], ""
        at = found.end()
    if at < len(piece):
        yield "text", html.unescape(piece[at:]), ""
