"""Entities: the paths, identifiers, numbers, ids and addresses that later work will need by their exact name.

A word of prose can be put differently; a port number cannot. One pass over a text with one expression, then cheap
looks at each token. Knows nothing of messages.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z0-9_~@#$][A-Za-z0-9_./:@~+#%=&?\-]*[A-Za-z0-9_/]|\d")
_EDGES = ".:,-=?&+/"
_MAX_LENGTH = 160
_MOST_REMEMBERED = 50_000
_COMMON = frozenset(
    ("e.g", "i.e", "and/or", "either/or", "true/false", "yes/no", "n/a", "N/A", "I/O", "UTF-8", "utf-8")
)


_JOINTS = re.compile(r"[/:=&?#@,]+|\.(?=[A-Za-z_]*[A-Z_])|(?<=[a-z_A-Z]{4})\.(?![a-z]{1,4}$)")
"""Where a path or a dotted name falls apart into names of its own; a file keeps its ending."""


class _Remembered(dict[str, tuple[str, ...]]):
    """What each token turned out to be: the entities in it, if any. Tokens recur, so most looks are one lookup."""

    def __missing__(self, raw: str) -> tuple[str, ...]:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        whole = _entity(raw)
        parts = [part for piece in _JOINTS.split(raw) if piece and (part := _entity(piece))]
        found = self[raw] = tuple(dict.fromkeys([whole, *parts] if whole else parts))
        return found


_remembered = _Remembered()


def entities(text: str) -> list[str]:
    """The entities of a text in order of appearance, repeats included; of a path or dotted name also its parts."""
    return [name for raw in _TOKEN.findall(text) for name in _remembered[raw]]


def _entity(raw: str) -> str:
    if raw.isalpha():
        # A plain word, unless a capital in its middle makes it an identifier such as parseDate.
        return raw if len(raw) > 3 and not (raw.islower() or raw.isupper() or raw.istitle()) else ""
    token = raw.strip(_EDGES) if raw[-1] in _EDGES or raw[0] in _EDGES else raw
    if token.isdigit():
        return token if len(token) > 1 else ""
    if len(token) < 3 or len(token) > _MAX_LENGTH or token in _COMMON or "://" in token[:2]:
        return ""
    if token.isalpha():
        return token if len(token) > 3 and not (token.islower() or token.isupper() or token.istitle()) else ""
    return token if any(mark in token for mark in "_./:@#-=0123456789") and not _is_hyphenated_word(token) else ""


def _is_hyphenated_word(token: str) -> bool:
    return "-" in token and token.replace("-", "").isalpha() and not token.isupper()
