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

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters, and those that change the order in which others are seen or cannot be seen themselves."""

_MISTAKEN = re.compile("[\xa0\u1680\u2000-\u200d\u202f\u205f\u2800\u3000\ufe0e\ufe0f]")
"""Spaces that are none to a shell, and joiners that stand in emoji and scripts, but hide in a command."""


def sendable(text: str) -> str:
    """The text without what JSON, providers and databases refuse: halves of surrogate pairs, and NUL."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    return text if text.isascii() else _UNSENDABLE.sub("\ufffd", text)


def plain(text: str) -> str:
    """The text without the escape sequences that programs write for a terminal."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def visible(text: str) -> str:
    """The text as it may be shown to a person: nothing in it can hide, or change what they see."""
    return _OBEYED.sub(_spelled, text)


def unmistakable(text: str) -> str:
    """The text as it is shown to a person who decides on it: what looks like nothing or like a space is spelled out."""
    return _MISTAKEN.sub(_spelled, visible(text))


def _spelled(sign: re.Match[str]) -> str:
    code = ord(sign[0])
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def one_line(text: str, most: int = 200) -> str:
    """The text on one line of at most so many characters, safe to be shown."""
    line = visible(" ".join(text[: 8 * most].split()))
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
