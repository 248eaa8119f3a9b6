"""Markdown as blocks of styled text, and the places where a long answer is split into several messages.

`parse` reads Markdown, `split` deals the blocks out to messages. Each platform writes blocks in its own markup and says
how long they are there.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import regex

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = [
    "BlockKind",
    "MarkupBlock",
    "MarkupSpan",
    "Measure",
    "Style",
    "gap",
    "is_visible",
    "parse",
    "split",
    "text_width",
    "utf16_length",
]

Style = Literal["bold", "italic", "strike", "code"]
BlockKind = Literal["text", "heading", "code", "rule"]

_MOST_MARKDOWN = 40_000
"""Characters that are read as Markdown. Longer text is taken as it stands: hostile text takes seconds to parse."""
_MOST_NESTING = 60
_WIDEST_TABLE = 46
"""Columns of a table that a phone shows in one line. A wider table becomes a list."""
_STYLES: dict[str, Style] = {"strong": "bold", "em": "italic", "s": "strike"}
_BULLETS = ("•", "◦", "▪")
_CLUSTER = regex.compile(r"\X")
_LONGEST_CLUSTER = 64
_SENTENCE = regex.compile(r"[.!?…:;]['\")\]]*\s|[。！？；]|[؟۔]\s")
_SPACE = regex.compile(r"\s")
_CONTROLS = regex.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class MarkupSpan:
    """A stretch of text in one style."""

    text: str
    styles: frozenset[Style] = frozenset()
    link: str = ""
    """The address behind the text; empty for none."""


@dataclass(frozen=True, slots=True)
class MarkupBlock:
    """A paragraph, an item of a list, a heading, a block of code or a rule."""

    kind: BlockKind
    spans: tuple[MarkupSpan, ...] = ()
    """The words; for code a single span with all lines, for a rule nothing."""
    level: int = 0
    """The level of a heading, from 1."""
    language: str = ""
    """The language of a block of code, where it is named."""
    quote: int = 0
    """The number of quotations around the block."""
    indent: int = 0
    """The number of lists around the block."""
    marker: str = ""
    """The bullet or number of a list item (``•``, ``3.``); empty for its later paragraphs."""
    is_close: bool = False
    """True where no blank line parts it from the block before it."""

    @property
    def text(self) -> str:
        """The words without their styles."""
        return "".join(span.text for span in self.spans)


Measure = Callable[[MarkupBlock], int]
"""Returns the length of a block as the platform counts it, its markup included where that counts.

It is never less than the number of characters of the block's text.
"""


def gap(before: MarkupBlock, after: MarkupBlock) -> str:
    """Return what stands between two blocks of one message."""
    is_close = after.is_close and before.quote == after.quote
    return "\n" if is_close else "\n\n"


def is_visible(text: str) -> bool:
    """Return whether a person sees anything of a text: platforms refuse messages without a visible character."""
    return any(unicodedata.category(letter)[0] not in "CZ" for letter in text)


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, which platforms count."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def text_width(text: str) -> int:
    """Return the columns of a text in a fixed-width font."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


# -- reading -----------------------------------------------------------------------------------------------------------
def parse(markdown: str) -> list[MarkupBlock]:
    """Return the blocks of a text in Markdown; none where nothing of it can be seen.

    HTML in it is text. Line breaks stay. An open block of code at the end, as in an answer that is still being
    written, is a block of code.
    """
    text = _clean(markdown)
    if len(text) > _MOST_MARKDOWN:
        blocks = [MarkupBlock("text", (MarkupSpan(part.strip("\n")),)) for part in text.split("\n\n")]
    else:
        blocks = list(_Reader(_parser().parse(text)).blocks())
    return [block for block in blocks if block.kind == "rule" or is_visible(block.text)]


def _clean(text: str) -> str:
    """Return a text without the characters that no platform takes: control characters and halves of surrogate pairs."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str(_CONTROLS.sub("", text))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - belongs to the extras, and takes a quarter of a second

    options = {"html": False, "maxNesting": _MOST_NESTING}
    made = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    made.parse("*a*")  # it makes its tables at the first use, which two threads must not do at once
    return made


class _Reader:
    """Turns the tokens of a Markdown parser into blocks."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._quote = 0
        self._counters: list[int | None] = []
        """The number of the next item of each open list; None for bullets."""
        self._marker = ""
        self._after_item = False
        """True where the block before stood in a list."""

    def blocks(self) -> Iterator[MarkupBlock]:
        """Return the blocks in order."""
        table_end = -1
        for at, token in enumerate(self._tokens):
            if at <= table_end:
                continue
            match token.type:
                case "inline":
                    yield self._inline(self._tokens[at - 1], token)
                case "fence" | "code_block":
                    words = token.info.split()
                    code = MarkupSpan(token.content.rstrip("\n"), frozenset({"code"}))
                    yield self._block("code", (code,), language=words[0] if words else "")
                case "hr":
                    yield self._block("rule", ())
                case "table_open":
                    rows, table_end = self._table(at)
                    yield from self._table_blocks(rows)
                case _:
                    self._follow(token)

    def _follow(self, token: Token) -> None:
        """Keep count of the quotations and lists that are open."""
        match token.type:
            case "blockquote_open" | "blockquote_close":
                self._quote += token.nesting
            case "bullet_list_open":
                self._counters.append(None)
            case "ordered_list_open":
                self._counters.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._counters.pop()
            case "list_item_open":
                self._open_item()

    def _open_item(self) -> None:
        number = self._counters[-1]
        if number is None:
            depth = sum(counter is None for counter in self._counters)
            self._marker = _BULLETS[min(depth, len(_BULLETS)) - 1]
        else:
            self._marker = f"{number}."
            self._counters[-1] = number + 1

    def _inline(self, opening: Token, token: Token) -> MarkupBlock:
        spans = tuple(_spans(token.children or []))
        if opening.type == "heading_open":
            return self._block("heading", spans, level=int(opening.tag[1:]))
        return self._block("text", spans, is_close=opening.hidden)

    def _block(
        self,
        kind: BlockKind,
        spans: tuple[MarkupSpan, ...],
        *,
        level: int = 0,
        language: str = "",
        is_close: bool = False,
    ) -> MarkupBlock:
        marker, self._marker = self._marker, ""
        follows_item, self._after_item = self._after_item, bool(self._counters)
        return MarkupBlock(
            kind,
            spans,
            level=level,
            language=language,
            quote=self._quote,
            indent=len(self._counters),
            marker=marker,
            is_close=bool(self._counters) and follows_item and (is_close or kind == "code"),
        )

    def _table(self, at: int) -> tuple[list[list[tuple[MarkupSpan, ...]]], int]:
        """Return the cells of a table, the heads first, and the place of its last token."""
        rows: list[list[tuple[MarkupSpan, ...]]] = []
        while self._tokens[at].type != "table_close":
            token = self._tokens[at]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(tuple(_spans(token.children or [])))
            at += 1
        return rows, at

    def _table_blocks(self, rows: list[list[tuple[MarkupSpan, ...]]]) -> Iterator[MarkupBlock]:
        cells = [["".join(span.text for span in cell).replace("\n", " ") for cell in row] for row in rows]
        widths = [max(text_width(row[column]) for row in cells) for column in range(len(cells[0]))]
        if sum(widths) + 2 * (len(widths) - 1) <= _WIDEST_TABLE:
            lines = [_pad(row, widths) for row in cells]
            lines.insert(1, "  ".join("─" * width for width in widths))
            yield self._block("code", (MarkupSpan("\n".join(lines), frozenset({"code"})),))
            return
        heads = cells[0]
        for row in rows[1:]:
            spans = [replace(span, styles=span.styles | {"bold"}) for span in row[0]]
            for head, cell in zip(heads[1:], row[1:], strict=True):
                if cell:
                    spans += [MarkupSpan(f"\n{head}: " if head else "\n"), *cell]
            self._marker = self._marker or _BULLETS[0]
            block = self._block("text", tuple(spans))
            yield replace(block, indent=max(1, block.indent))


def _pad(row: list[str], widths: list[int]) -> str:
    return "  ".join(cell + " " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()


def _spans(tokens: Sequence[Token]) -> Iterator[MarkupSpan]:
    """Return the styled text of one paragraph."""
    styles: list[Style] = []
    link = ""
    for token in tokens:
        name = token.type.rsplit("_", 1)[0]
        if name in _STYLES:
            if token.nesting > 0:
                styles.append(_STYLES[name])
            else:
                styles.remove(_STYLES[name])
        elif name == "link":
            link = str(token.attrs.get("href", "")) if token.nesting > 0 else ""
        elif token.type == "code_inline":
            yield MarkupSpan(token.content, frozenset({*styles, "code"}), link)
        elif token.type == "image":
            address = str(token.attrs.get("src", ""))
            yield MarkupSpan(token.content or address, frozenset(styles), link or address)
        elif token.type in {"softbreak", "hardbreak"}:
            yield MarkupSpan("\n", frozenset(styles), link)
        elif token.content:
            yield MarkupSpan(token.content, frozenset(styles), link)


# -- splitting ---------------------------------------------------------------------------------------------------------
def split(blocks: Sequence[MarkupBlock], limit: int, measure: Measure) -> list[list[MarkupBlock]]:
    """Return the blocks of each message, so that no message is longer than a limit.

    Messages end between blocks where that is possible, and never after a heading. A block that is longer than a whole
    message ends between lines, sentences or words; code goes on as code in the same language.
    """
    pieces: list[list[MarkupBlock]] = []
    piece: list[MarkupBlock] = []
    used = 0
    waiting = deque(blocks)
    while waiting:
        block = waiting.popleft()
        between = len(gap(piece[-1], block)) if piece else 0
        size, room = measure(block), limit - used - between
        if size <= room:
            piece.append(block)
            used += between + size
            continue
        first, rest = (None, block) if piece and (size <= limit or room < limit // 4) else _cut(block, room, measure)
        if first is not None:
            piece.append(first)
            waiting.appendleft(rest)
        elif piece:
            kept = _drop_last_headings(piece)
            waiting.extendleft(reversed([*piece[len(kept) :], block]))
            piece = kept
        elif block != (
            plain := MarkupBlock("text", (MarkupSpan(block.text),))
        ):  # the markup alone is longer than a message
            waiting.appendleft(plain)
            continue
        else:  # a single letter is
            piece.append(MarkupBlock("text", (MarkupSpan(block.text[:1]),)))
            if block.text[1:]:
                waiting.appendleft(MarkupBlock("text", (MarkupSpan(block.text[1:]),)))
        pieces.append(piece)
        piece, used = [], 0
    if piece:
        pieces.append(piece)
    return pieces


def _drop_last_headings(piece: list[MarkupBlock]) -> list[MarkupBlock]:
    """Return a message without the headings at its end, unless it has nothing else."""
    end = len(piece)
    while end and piece[end - 1].kind == "heading":
        end -= 1
    return piece[:end] if end else piece


def _cut(block: MarkupBlock, room: int, measure: Measure) -> tuple[MarkupBlock | None, MarkupBlock]:
    """Return the part of a block that has room, and the rest; None and the block where nothing of it has room."""
    text = block.text
    low, high = 0, max(0, min(len(text) - 1, room))
    while low < high:  # the longest start that has room
        middle = (low + high + 1) // 2
        if measure(_part(block, 0, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    if low == 0 or measure(_part(block, 0, low)) > room:
        return None, block
    end = _code_end(text, low) if block.kind == "code" else _text_end(text, low)
    start = end
    if block.kind == "code":
        start += text[end : end + 1] == "\n"
    else:
        while start < len(text) and text[start].isspace():
            start += 1
    rest = _part(block, start, len(text))
    return _part(block, 0, end), replace(rest, marker="", is_close=block.indent > 0)


def _part(block: MarkupBlock, start: int, end: int) -> MarkupBlock:
    """Return a block with the text between two places only."""
    spans: list[MarkupSpan] = []
    at = 0
    for span in block.spans:
        text = span.text[max(start - at, 0) : max(end - at, 0)]
        if text:
            spans.append(replace(span, text=text))
        at += len(span.text)
    return replace(block, spans=tuple(spans))


def _code_end(text: str, most: int) -> int:
    """Return where to cut code: after a line, or in a very long line where the room ends."""
    if text[most] == "\n":
        return most
    line = text.rfind("\n", 0, most)
    return line if line > most // 4 else _cluster_end(text, most)


def _text_end(text: str, most: int) -> int:
    """Return where to cut text: after a line or sentence in the second half of the room, else after a word."""
    line = text.rfind("\n", most // 2, most + 1)
    if line > 0:
        return line
    for pattern, least in ((_SENTENCE, most // 2), (_SPACE, most // 5)):
        ends = [found.end() for found in pattern.finditer(text, least, most + 1)]
        if ends:
            return len(text[: ends[-1]].rstrip()) or ends[-1]
    return _cluster_end(text, most)


def _cluster_end(text: str, most: int) -> int:
    """Return the last place up to a limit where one character as people see it ends and the next begins."""
    start = max(0, most - _LONGEST_CLUSTER)
    ends = [found.end() for found in _CLUSTER.finditer(text, start, min(len(text), most + _LONGEST_CLUSTER))]
    return max((end for end in ends if start < end <= most), default=most)
