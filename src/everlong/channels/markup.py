"""Markdown as messages: where a long answer is split, and how each platform shows it.

Discord shows Markdown itself. For Telegram a piece becomes the small HTML that its API reads. Neither shows tables, so
these stand as code.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from everlong.agent.text import sendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["discord_pieces", "split_markdown", "telegram_pieces", "utf16_length", "visible_text"]

_FENCE = re.compile(r"^[ \t]*(`{3,8}|~{3,8})(?!`)([^`\n]*)$", re.MULTILINE)
"""The line that opens a block of code, or ends it."""
_LONGEST_OPENING = 40
"""Characters of the line that opens a block of code; a longer one is not repeated where the block is cut."""
_ENDS = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…:;]['\")\]]*\s|[。！？；]|[؟۔]\s"),
    re.compile(r"\s"),
)
"""Where text is cut: after a paragraph, a line, a sentence or a word."""
_BREAKS = re.compile(r"\n*")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TAG = re.compile(r"<[^<>]*>")
_MOST_NESTING = 60
_LINKS = ("http://", "https://", "tg://", "mailto:")
_INDENT = "   "


def discord_pieces(markdown: str, limit: int) -> list[str]:
    """Return Markdown as messages for Discord, none longer than a limit; no messages where there is nothing to see."""
    return [piece for piece in split_markdown(markdown, limit) if _is_visible(piece)]


def telegram_pieces(markdown: str, limit: int) -> list[str]:
    """Return Markdown as the HTML of messages for Telegram, none of which shows more UTF-16 units than a limit."""
    pieces: list[str] = []
    for size in (limit, limit // 2):  # deep lists grow, by less than half
        pieces = [_to_html(piece) for piece in split_markdown(markdown, size)]
        if all(utf16_length(visible_text(piece)) <= limit for piece in pieces):
            break
    return [piece for piece in pieces if _is_visible(visible_text(piece))]


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, which platforms count."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def visible_text(piece: str) -> str:
    """Return the text that a piece of HTML shows."""
    return html.unescape(_TAG.sub("", piece))


def _is_visible(text: str) -> bool:
    """Return whether a person sees anything of a text: platforms refuse messages without a visible character."""
    return any(unicodedata.category(letter)[0] not in "CZ" for letter in text)


# -- splitting ---------------------------------------------------------------------------------------------------------


def split_markdown(markdown: str, limit: int) -> list[str]:
    """Return Markdown in pieces of at most so many UTF-16 units; a block of code that is cut goes on as one."""
    text = _fence_tables(_clean(markdown))
    pieces: list[str] = []
    opening, place = "", 0
    while place < len(text):
        near = opening + text[place : place + limit + 1]  # the rest is not looked at for each piece
        if place + limit + 1 >= len(text):
            opened = _open_fence(near)
            room = limit - len(opened[1]) - 1 if opened is not None else limit
            if utf16_length(near) <= room:
                pieces.append(near if opened is None else f"{near}\n{opened[1]}")
                break
        piece, end, following = _cut(near, limit)
        pieces.append(piece)
        place += end - len(opening)
        opening = following
        if opening:
            place += text.startswith("\n", place)
        elif found := _BREAKS.match(text, place):
            place = found.end()
    return pieces


def _cut(text: str, limit: int) -> tuple[str, int, str]:
    """Return the first piece of a text that is longer than a limit, its end, and what opens its block of code again."""
    head = text[:limit].encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")
    opened = _open_fence(head)
    if opened is None:
        end = _end_of_text(head)
        return head[:end].rstrip(), end, ""
    if opened.start() > limit // 2:
        return head[: opened.start()].rstrip(), opened.start(), ""
    fence = opened[1]
    head = head[: len(head) - len(fence) - 1]
    line = head.rfind("\n", len(head) // 2)
    end = line if line > opened.end() else len(head)
    opening = opened[0] if len(opened[0]) <= min(_LONGEST_OPENING, limit // 4) else fence
    return f"{head[:end]}\n{fence}", end, f"{opening}\n"


def _end_of_text(head: str) -> int:
    """Return where to cut text: after something whole in the second half, else where the room ends."""
    for pattern in _ENDS:
        ends = [found.end() for found in pattern.finditer(head, len(head) // 2)]
        if ends:
            return ends[-1]
    return len(head)


def _open_fence(text: str) -> re.Match[str] | None:
    """Return the line that opens the block of code at the end of a text; None if no block is open there."""
    opened: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        if opened is None:
            opened = found
        elif found[1].startswith(opened[1]) and not found[2].strip():
            opened = None
    return opened


def _clean(text: str) -> str:
    """Return a text without the characters that no platform takes: control characters and halves of surrogate pairs."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return sendable(_CONTROLS.sub("", text))


def _fence_tables(markdown: str) -> str:
    """Return Markdown whose tables are blocks of code."""
    if "|" not in markdown:
        return markdown
    lines, parser = markdown.split("\n"), _parser("table")
    tokens: list[Token] = []
    parser.block.parse(markdown, parser, {}, tokens)  # without what is inside of lines, which takes far longer
    for token in reversed(tokens):
        if token.type == "table_open" and token.map is not None:
            start, end = token.map
            lines[start:end] = ["```", *lines[start:end], "```"]
    return "\n".join(lines)


# -- Telegram's HTML ---------------------------------------------------------------------------------------------------


def _to_html(markdown: str) -> str:
    """Return Markdown as HTML in which only tags stand that Telegram knows."""
    parser = _parser()
    tokens = parser.parse(markdown)
    text, marker, opening = "", "", ""
    depth, quotes, in_list = 0, 0, False
    for at, token in enumerate(tokens):
        is_close = False
        match token.type:
            case "bullet_list_open" | "ordered_list_open" | "bullet_list_close" | "ordered_list_close":
                depth += token.nesting
                continue
            case "list_item_open":
                marker = f"{token.info}{token.markup} " if token.info else "• "
                continue
            case "blockquote_open" | "blockquote_close":
                quotes += token.nesting
                if token.nesting == 1 and quotes == 1:  # Telegram knows no quotes in quotes
                    opening = "<blockquote>"
                elif not quotes:
                    text += "" if opening else "</blockquote>"
                    opening = ""
                continue
            case "inline":
                _simplify(token.children or [])
                words = parser.renderer.render(token.children or [], parser.options, {})
                block = f"<b>{words}</b>" if tokens[at - 1].type == "heading_open" else words
                is_close = tokens[at - 1].hidden
            case "fence":
                block = str(parser.renderer.render([token], parser.options, {})).rstrip("\n")
            case "hr":
                block = "⸻"
            case _:
                continue
        inset = _INDENT * (depth - 1) + (marker or _INDENT) if depth else ""
        gap = "" if not text else "\n" if is_close and in_list else "\n\n"
        text += f"{gap}{opening}{inset}{block}"
        marker, opening, in_list = "", "", depth > 0
    return text


@cache
def _parser(*more: str) -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - belongs to the extras, and takes a quarter of a second

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MOST_NESTING})
    parser.enable(["strikethrough", *more]).disable(["code", "reference"])  # a piece may begin in the middle of a list
    parser.render("*a*")  # it makes its tables at the first use, which two threads must not do at once
    return parser


def _simplify(words: Sequence[Token]) -> None:
    """Put text in the place of what Telegram does not know: pictures, and links that it would not open."""
    address = ""
    for token in words:
        match token.type:
            case "image":
                token.type, token.content = "text", f"{token.content} ({token.attrs.get('src', '')})"
            case "hardbreak":
                token.type = "softbreak"
            case "link_open":
                address = str(token.attrs.get("href", ""))
                token.attrs = {"href": address}
                if not address.startswith(_LINKS):
                    token.type = "text"
            case "link_close" if not address.startswith(_LINKS):
                token.type, token.content = "text", f" ({address})"
