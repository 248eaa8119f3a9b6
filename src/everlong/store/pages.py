"""Reading a large message or output in pages of characters."""

from __future__ import annotations

import json
from typing import NamedTuple

from everlong.model import Message, calls_of, parts_of, text_of
from everlong.store.content import encoded


class ReadPage(NamedTuple):
    """A part of a message's words or of an output; ``pages`` and ``chars`` are of the whole."""

    text: str
    page: int
    pages: int
    chars: int


def readable_text(message: Message) -> str:
    """All that a message says: its words, its calls with their arguments, the results that it carries."""
    said = [text_of(message)]
    said += [f"{call.name}({call.arguments})" for call in calls_of(message)]
    for part in parts_of(message):
        kind = part.get("type")
        if kind == "tool_use":
            said.append(f"{part.get('name')}({json.dumps(part.get('input'), ensure_ascii=False)})")
        elif kind == "tool_result":
            said.append(readable_text({"content": part.get("content")}))
        elif kind == "thinking":
            said.append(str(part.get("thinking", "")))
    words = "\n".join(text for text in said if text)
    return words or encoded(message).decode()


def page_of(message: Message, page: int, chars: int) -> ReadPage:
    """One page of a message, counted from 0; past the last one the text is empty."""
    text, size = readable_text(message), max(1, chars)
    return ReadPage(text[page * size : (page + 1) * size], page, -(-len(text) // size), len(text))


def page_ends(text: str, chars: int) -> list[int]:
    """Where the pages of a text end: at most so many characters each, cut behind a line or a word where one ends."""
    size, ends, start = max(1, chars), [], 0
    while start < len(text):
        end = start + size
        if end < len(text):
            least = start + size // 2  # rather a torn line than a page that is half empty
            cut = text.rfind("\n", least, end) + 1 or text.rfind(" ", least, end) + 1
            end = cut or end
        start = min(end, len(text))
        ends.append(start)
    return ends


def page_of_text(text: str, page: int, chars: int) -> ReadPage:
    """One page of a text, counted from 0; past the last one the text is empty."""
    ends = [0, *page_ends(text, chars)]
    inside = 0 <= page < len(ends) - 1
    return ReadPage(text[ends[page] : ends[page + 1]] if inside else "", page, len(ends) - 1, len(text))
