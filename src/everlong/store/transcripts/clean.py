"""Texts of unknown origin made harmless to look at.

A message may hold what moves a cursor, hides words or turns them round. Terminals and browsers are given what is left
when colour codes are taken out and every other such character is replaced by a mark.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_BREAK = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
# Controls, halves of surrogate pairs, what reverses the order of writing, and tags that do not show.
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARK = "\ufffd"


def plain(text: str) -> str:
    """A text in which every character shows what it is; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return _UNSEEN.sub(_MARK, _BREAK.sub("\n", _ANSI.sub("", text)))


def one_line(text: str) -> str:
    """The same on one line."""
    return " ".join(plain(text).split())
