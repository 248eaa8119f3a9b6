"""Texts made fit to be sent and shown.

Characters that no provider takes are replaced; those that a terminal would obey or that hide are spelled out.
"""

from __future__ import annotations

import re

from everlong.model.unseen import UNSEEN

_UNSENDABLE = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""Sequences that terminals obey rather than show: colours, titles, moves of the cursor."""

_DECEPTIVE = re.compile("[\xa0\u1680\u2000-\u200d\u202f\u205f\u2800\u3000\ufe0e\ufe0f]")
"""Spaces that a shell does not know as such, and joiners, which are invisible in a command."""

_MARKS = str.maketrans('[]{}<>［］｛｝＜＞【】〔〕⟦⟧"`', "()()‹›()()‹›()()()''")
"""Signs that begin and end our own marks, or look as if they did, and what stands in their place in a name."""


def sendable(text: str) -> str:
    """Return the text without characters that JSON, providers and databases refuse: lone surrogates and NUL."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    return text if text.isascii() else _UNSENDABLE.sub("\ufffd", text)


def plain(text: str) -> str:
    """Return the text without the escape sequences that programs write for a terminal."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def visible(text: str) -> str:
    """Return the text for a person to read: no character in it hides, or changes others."""
    return UNSEEN.sub(_spell_out, text)


def unmistakable(text: str) -> str:
    """Return the text for a person to decide on: also unusual spaces and joiners are spelled out."""
    return _DECEPTIVE.sub(_spell_out, visible(text))


def _spell_out(sign: re.Match[str]) -> str:
    code = ord(sign[0])
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def one_line(text: str, most: int = 200) -> str:
    """Return the text on one line of at most ``most`` characters, safe to show."""
    line = visible(" ".join(text[: 8 * most].split()))
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def outside_name(text: str, most: int = 80) -> str:
    """Return a name that somebody else chose, fit to stand in a line of our own: without brackets and quotes."""
    return one_line(text, most).translate(_MARKS)
