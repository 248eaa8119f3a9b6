"""Texts made fit to be sent and shown: what no provider takes is replaced, what a terminal would obey is spelled out.

Knows characters only, and nothing of tools or messages.
"""

from __future__ import annotations

import re

_UNSENDABLE = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""What terminals obey rather than show: colours, titles, moves of the cursor."""

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Control characters, and those that change the order in which others are seen or cannot be seen themselves."""


def sendable(text: str) -> str:
    """The text without what JSON, providers and databases refuse: halves of surrogate pairs, and NUL."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    return text if text.isascii() else _UNSENDABLE.sub("\ufffd", text)


def plain(text: str) -> str:
    """The text without the escape sequences that programs write for a terminal."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def visible(text: str) -> str:
    """The text as it may be shown to a person who decides on it: nothing in it can hide or change what they see."""
    return _OBEYED.sub(lambda sign: f"\\x{ord(sign[0]):02x}" if sign[0] < "\x80" else f"\\u{ord(sign[0]):04x}", text)


def one_line(text: str, most: int = 200) -> str:
    """The text on one line of at most so many characters, safe to be shown."""
    line = visible(" ".join(text[: 8 * most].split()))
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
