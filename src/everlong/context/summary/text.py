"""Small helpers on text: one line out of many, cut between words and never inside a name."""

from __future__ import annotations

_ENOUGH = 4
"""So many times the length that is wanted is nearly always more than enough, however much of it is white space."""


def one_line(text: str) -> str:
    """The text with every run of white space as one space; the very same one where there is nothing to change."""
    line = " ".join(text.split())
    return text if line == text else line  # what is remembered of a message then takes no room of its own


def beginning(text: str, length: int) -> str:
    """The first words of a text on one line, at most about ``length`` characters; reads no more than it needs."""
    if len(text) > _ENOUGH * length:
        line = one_line(text[: _ENOUGH * length])
        if len(line) > length:
            return clip(line, length)
    return clip(one_line(text), length)


def clip(text: str, length: int) -> str:
    """At most about ``length`` characters, cut at a space where there is one, never inside a name."""
    if len(text) <= length:
        return text
    cut = text.rfind(" ", length // 2, length)
    if cut < 0:
        cut = length
        # No space near: step back out of the name that the cut would halve, unless it is all one name.
        while cut > length // 2 and text[cut - 1].isascii() and text[cut - 1].isalnum() and text[cut].isalnum():
            cut -= 1
        cut = cut if cut > length // 2 else length
    return text[:cut].rstrip(" ,;:") + " ..."
